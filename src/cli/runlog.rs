//! What a run says while it goes on: lines of events, or one line that stands and changes.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::event_json;
use super::render::{number, text};
use crate::event::{Event, Level, Sink};
use crate::model::{Span, StepState, Timestamp};

/// How a run talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// Only what someone must know of.
    Quiet,
    /// A line an event.
    Lines,
    /// A JSON object an event.
    Json,
    /// One line that changes in place.
    Live,
}

/// Gathers events; they are written by whoever calls [`RunLog::flush`], so that no worker waits for a
/// terminal.
#[derive(Debug)]
pub(super) struct RunLog {
    voice: Voice,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    ended: BTreeMap<StepState, u64>,
    /// The width of the line that stands.
    standing: usize,
}

/// What is written at most between two flushes before lines are left out.
const MOST: usize = 4 << 20;

impl RunLog {
    /// Returns the log of a run with this voice.
    pub(super) fn new(voice: Voice) -> Self {
        Self {
            voice,
            state: Mutex::default(),
        }
    }

    /// Writes what has gathered. `false` if nobody reads any more.
    pub(super) fn flush(&self) -> bool {
        let lines = std::mem::take(
            &mut self
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .lines,
        );
        if lines.is_empty() {
            return true;
        }
        // Events are data where they are asked for as such, and talk elsewhere.
        let written = match self.voice {
            Voice::Lines | Voice::Json => {
                let mut out = std::io::stdout().lock();
                out.write_all(&lines).and_then(|()| out.flush())
            }
            Voice::Quiet | Voice::Live => {
                self.wipe();
                std::io::stderr().lock().write_all(&lines)
            }
        };
        written.is_ok()
    }

    /// Draws the line that stands, if there is one.
    pub(super) fn draw(&self, running: usize, due: u64, since_start: Duration) {
        if self.voice != Voice::Live || !std::io::stderr().is_terminal() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done: u64 = state.ended.values().sum();
        let failed = state.ended.get(&StepState::Failed).copied().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = done as f64 / since_start.as_secs_f64().max(0.001);
        let all = done + due + running as u64;
        #[expect(clippy::cast_precision_loss, reason = "a bar for people")]
        let part = if all == 0 {
            0.0
        } else {
            done as f64 / all as f64
        };
        let mut line = format!(
            "[{}] {}/{} done, {running} running, {}",
            number::bar(part, 20),
            number::count(done),
            number::count(all),
            number::rate(rate),
        );
        if failed > 0 {
            line.push_str(&format!(", {} failed", number::count(failed)));
        }
        if rate > 0.0 && due > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
            let left = Duration::from_secs_f64((due as f64 / rate).min(1e9));
            line.push_str(&format!(", about {} left", Span::from(left)));
        }
        let width = text::width(&line);
        let padding = " ".repeat(state.standing.saturating_sub(width));
        state.standing = width;
        drop(state);
        // Nothing is lost where it cannot be drawn.
        drop(write!(std::io::stderr().lock(), "\r{line}{padding}"));
    }

    /// Takes the standing line away.
    pub(super) fn wipe(&self) {
        let width = std::mem::take(
            &mut self
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .standing,
        );
        if width > 0 {
            drop(write!(
                std::io::stderr().lock(),
                "\r{}\r",
                " ".repeat(width)
            ));
        }
    }

    fn wants(&self, event: &Event) -> bool {
        match self.voice {
            Voice::Json => event.level() > Level::Trace,
            // Ended says what settled says, and more.
            Voice::Lines => event.level() > Level::Trace && !matches!(event, Event::Settled { .. }),
            Voice::Live | Voice::Quiet => event.level() >= Level::Warn,
        }
    }
}

impl Sink for RunLog {
    fn emit(&self, at: Timestamp, event: &Event) {
        if self.voice == Voice::Live
            && let Event::Settled { state, .. } = event
        {
            let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *inner.ended.entry(*state).or_default() += 1;
        }
        if !self.wants(event) {
            return;
        }
        let line = if self.voice == Voice::Json {
            event_json::event(at, None, event)
        } else {
            // The level is for what went wrong; the rest is what one runs it to see.
            let level = match event.level() {
                Level::Trace | Level::Debug | Level::Info => String::new(),
                Level::Warn | Level::Error => format!("{}: ", event.level().word()),
            };
            format!("{at} {level}{}", text::shown(event.to_string()))
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that has stopped reading must not fill our memory.
        if state.lines.len() < MOST {
            state.lines.extend_from_slice(line.as_bytes());
            state.lines.push(b'\n');
        }
    }
}
