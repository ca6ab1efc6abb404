//! Asking the live runners.

use serde_json::Value;

use crate::cli::Context;
use crate::cli::render::{number, text};
use crate::error::{Error, ErrorKind, Result};
use crate::model::RunnerId;
use crate::presence::control::{Question, ask};
use crate::presence::{self, Card};
use crate::store::sqlite::runners_dir;

/// A live runner and what it answered.
pub(super) struct Answered {
    /// Who it is.
    pub(super) runner: RunnerId,
    /// What it says of itself, if that can be read.
    pub(super) card: Option<Card>,
    /// The answer.
    pub(super) answer: Value,
}

impl Answered {
    /// Returns its process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.card.as_ref().map(|card| card.pid)
    }

    /// Returns what people call it.
    pub(super) fn name(&self) -> String {
        let pid = self.pid().map(|pid| format!(" pid {pid}"));
        format!("runner {}{}", self.runner, pid.unwrap_or_default())
    }
}

/// Asks each live runner; empty if there is none. Of one that does not answer the person is told.
///
/// # Errors
///
/// `Unavailable` if there are runners and none answers.
pub(super) fn ask_those_there(context: &mut Context, question: &Question) -> Result<Vec<Answered>> {
    let runners = runners_dir(&context.settings.store);
    let mut answered = Vec::new();
    let mut silent = None;
    for (runner, card) in presence::alive(&runners)? {
        match ask(&runners, runner, question) {
            Ok(answer) => answered.push(Answered {
                runner,
                card,
                answer,
            }),
            Err(error) => {
                let told = format!("warning: {}", text::shown(error.to_string()));
                context.screen.talk(&told);
                silent = Some(error);
            }
        }
    }
    match silent {
        Some(error) if answered.is_empty() => Err(error),
        _ => Ok(answered),
    }
}

/// Asks each live runner.
///
/// # Errors
///
/// `NotFound` if there is none; else as [`ask_those_there`].
pub(super) fn ask_all(context: &mut Context, question: &Question) -> Result<Vec<Answered>> {
    let answered = ask_those_there(context, question)?;
    if answered.is_empty() {
        return Err(nobody());
    }
    Ok(answered)
}

/// Returns the error for that there is nobody to ask.
pub(super) fn nobody() -> Error {
    Error::new(ErrorKind::NotFound, "no runner is alive")
        .hint("start one with fairq run; fairq inspect plan and shards work without")
}

/// Returns a value of an answer as it is shown: a text without its quotes, nothing for null. Safe to
/// show, whatever the runner answers.
pub(super) fn told(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(said) => text::shown(said),
        Value::Number(number) => number
            .as_u64()
            .map_or_else(|| number.to_string(), number::count),
        other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            text::shown(other.to_string())
        }
    }
}

/// Returns the middle and the 99th percentile of durations in microseconds: `12µs/1.5ms`.
pub(super) fn quantiles(of: &Value) -> String {
    let [Some(middle), Some(high)] = ["p50", "p99"].map(|part| of[part].as_u64()) else {
        return "-".to_owned();
    };
    format!("{}/{}", number::micros(middle), number::micros(high))
}

/// Returns a part of a whole; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
pub(super) fn share(part: &Value, whole: &Value) -> f64 {
    let [part, whole] = [part, whole].map(|value| value.as_u64().unwrap_or(0));
    part as f64 / whole.max(1) as f64
}
