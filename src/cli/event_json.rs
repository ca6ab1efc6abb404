//! Events as lines of JSON: the one form in which they are printed, kept and read again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::model::{Band, FairnessKey, RunnerId, StepId, Timestamp, Weight};
use crate::store::Arrival;

/// The version of the form. Fields may be added under the same number, and only then.
const SCHEMA: u32 = 1;

/// Who tells of an event: a runner, and the number of the event among all that it told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller {
    pub(super) runner: RunnerId,
    pub(super) number: u64,
}

#[derive(Serialize)]
struct Line<T> {
    schema: u32,
    at: InUtc,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<RunnerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    level: &'static str,
    #[serde(flatten)]
    event: T,
}

/// An instant that is written as RFC 3339.
struct InUtc(Timestamp);

impl fmt::Display for InUtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for InUtc {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What no runner tells, because the store knows it.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Derived<'a> {
    Enqueued {
        id: StepId,
        band: Band,
        key: &'a FairnessKey,
        weight: Weight,
        name: Option<&'a str>,
    },
    /// The teller could not keep so many events.
    Missed { events: u64 },
}

fn line<T: Serialize>(
    at: Timestamp,
    teller: Option<Teller>,
    level: &'static str,
    event: T,
) -> String {
    let line = Line {
        schema: SCHEMA,
        at: InUtc(at),
        by: teller.map(|teller| teller.runner),
        seq: teller.map(|teller| teller.number),
        level,
        event,
    };
    // Strings, numbers and structs: there is nothing in it that JSON cannot say.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Returns an event of a runner, without a newline.
pub(super) fn event(at: Timestamp, teller: Option<Teller>, event: &Event) -> String {
    line(at, teller, event.level().word(), event)
}

/// Returns that so many events could not be kept.
pub(super) fn missed(at: Timestamp, teller: Teller, events: u64) -> String {
    line(at, Some(teller), "warn", Derived::Missed { events })
}

/// Returns that a step was put in.
pub(super) fn enqueued(arrival: &Arrival) -> String {
    let event = Derived::Enqueued {
        id: arrival.id,
        band: arrival.band,
        key: &arrival.key,
        weight: arrival.weight,
        name: arrival.name.as_deref(),
    };
    line(arrival.created, None, "debug", event)
}

/// What one must know of a line to sort and to select it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) at: Timestamp,
    pub(super) id: Option<StepId>,
    pub(super) key: Option<FairnessKey>,
}

impl Known {
    /// Reads it from a line; `None` for what is no event, such as a line that was cut off.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Raw {
            at: String,
            id: Option<String>,
            key: Option<String>,
        }
        // Runners write none; one outside of a string could not be escaped when it is shown.
        if line.iter().any(u8::is_ascii_control) {
            return None;
        }
        let raw: Raw = serde_json::from_slice(line).ok()?;
        let at: jiff::Timestamp = raw.at.parse().ok()?;
        Some(Self {
            at: Timestamp::from_millis(at.as_millisecond()),
            id: raw.id.and_then(|id| id.parse().ok()),
            key: raw.key.map(|key| FairnessKey::from_store(&key)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_enough_to_sort_and_select_it() {
        let at = Timestamp::from_millis(1_234_567);
        let teller = Teller {
            runner: RunnerId::new(0xabc),
            number: 7,
        };
        let lost = Event::TakenBack {
            id: "b5".parse().unwrap(),
            runner: RunnerId::new(1),
            state: crate::model::StepState::Ready,
        };
        let text = event(at, Some(teller), &lost);
        let start =
            "{\"schema\":1,\"at\":\"1970-01-01T00:20:34.567Z\",\"by\":\"00000abc\",\"seq\":7,";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(text.matches("\"runner\"").count(), 1, "{text}");
        let known = Known::of(text.as_bytes()).unwrap();
        assert_eq!((known.at, known.key), (at, None));
        assert_eq!(known.id, "b5".parse().ok());
        for cut in 0..text.len() {
            assert_eq!(Known::of(&text.as_bytes()[..cut]), None);
        }
    }
}
