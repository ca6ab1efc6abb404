//! How a step is to be treated while and after it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::key::ParseKeyError;
use super::{Span, Timestamp};

/// What becomes of a step whose runner dies while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// It is run again, the lost attempt given back; but so many in a row mean that it is the step that
    /// kills its runners: then it ends as failed.
    #[default]
    Retry,
    /// It ends as failed.
    Fail,
    /// It waits for a person.
    Hold,
}

/// A named limit: so many steps that name it run at once, on all shards and runners together.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LimitName(Arc<str>);

impl LimitName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 100;

    /// Takes a name as the store holds it, unchecked.
    pub fn from_store(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LimitName {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |why: String| Err(ParseKeyError::new(why));
        if text.is_empty() {
            return refuse("a limit's name cannot be empty".to_owned());
        }
        if text.len() > Self::MAX_BYTES {
            let most = Self::MAX_BYTES;
            return refuse(format!("a limit's name has at most {most} bytes"));
        }
        // The colon stands before the number of places, and a comma between names.
        if text.contains([':', ',']) || text.chars().any(char::is_control) {
            return refuse(
                "a limit's name cannot hold a colon, a comma or a control character".to_owned(),
            );
        }
        Ok(Self(Arc::from(text)))
    }
}

impl TryFrom<String> for LimitName {
    type Error = ParseKeyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<LimitName> for String {
    fn from(name: LimitName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long a step waits before it is tried again: `base` the first time, `factor` times as long
/// each further time, never longer than `cap`; less a random part of up to a half, so that steps
/// that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the second try.
    #[serde(rename = "base_ms")]
    pub base: Span,
    /// How much longer each further wait is; from 1 to [`Self::MOST_FACTOR`].
    pub factor: f64,
    /// The longest wait.
    #[serde(rename = "cap_ms")]
    pub cap: Span,
}

impl Backoff {
    /// The largest factor.
    pub const MOST_FACTOR: f64 = 1e6;

    /// Returns the longest wait after so many failed tries, at least one: what is left of it when
    /// chance has taken its part is at least half.
    pub fn longest(&self, failed: u32) -> Span {
        let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
        // Saturates at infinity, and the cap is below that; no sum or product can wrap.
        #[expect(
            clippy::cast_precision_loss,
            reason = "a wait of 2^53 ms is beyond every cap"
        )]
        let wait = self.base.millis() as f64 * self.factor.powi(exponent);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the cap, which was a whole number"
        )]
        let capped = wait.min(self.cap.millis() as f64).max(0.0) as u64;
        // A cap beyond 2^53 has been rounded on the way, perhaps up.
        Span::from_millis(capped).min(self.cap)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Span::from_millis(10_000),
            factor: 2.0,
            cap: Span::from_millis(3_600_000),
        }
    }
}

/// How a step is to be treated while and after it runs. Kept with the step as JSON; a field that
/// holds its default is left out, and one that is missing has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// What becomes of it if its runner dies.
    pub on_lost: OnLost,
    /// How long what is asked to end may take before it is killed.
    #[serde(rename = "grace_ms")]
    pub grace: Span,
    /// Whether processes that the step leaves behind in its group may live on.
    pub leave_group: bool,
    /// How often it is tried again after a failure.
    #[serde(skip_serializing_if = "is_default")]
    pub retries: u32,
    /// How long it waits before that.
    #[serde(skip_serializing_if = "is_default")]
    pub backoff: Backoff,
    /// The codes, as a shell reports them, after which alone it is tried again; empty for every
    /// failure of a command that could be started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retry_on: Vec<u8>,
    /// The codes after which it is never tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_retry_on: Vec<u8>,
    /// How long one try may run.
    #[serde(rename = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The number of the signal that asks it to end, when its time is over or it is cancelled.
    #[serde(skip_serializing_if = "is_term")]
    pub kill_signal: i32,
    /// When it fails if it was never started by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire: Option<Timestamp>,
    /// How many places it takes of which limits while it runs; at least one of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<LimitName, u32>,
    /// How many bytes of each of its streams are kept; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Variables that it gets besides its environment, which many steps share: what tells one member
    /// of an array from the others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn is_term(signal: &i32) -> bool {
    *signal == Policy::TERM
}

impl Policy {
    /// The grace of a step that names none.
    pub const DEFAULT_GRACE: Span = Span::from_millis(5_000);
    /// The number of SIGTERM, which asks a step to end that names no other signal.
    pub const TERM: i32 = 15;
    /// The largest number of a signal that can be asked for.
    const LAST_SIGNAL: i32 = 31;
    /// After so many lost runs in a row a step is not run again of itself.
    pub const MAX_LOST: u32 = 3;

    /// Returns what becomes of a step that was lost just now, after so many lost runs since anything
    /// else became of it. Somebody who tries it again grants it as many runs as it had at first.
    pub const fn after_loss(&self, lost_before: u32) -> OnLost {
        let is_enough = (lost_before + 1).is_multiple_of(Self::MAX_LOST);
        match self.on_lost {
            OnLost::Retry if is_enough => OnLost::Fail,
            OnLost::Retry | OnLost::Fail | OnLost::Hold => self.on_lost,
        }
    }
}

impl Policy {
    /// Reads the JSON that a policy was kept as; `None` for what is none, or one that nobody could
    /// have asked for.
    pub fn from_json(text: &str) -> Option<Self> {
        let policy: Self = serde_json::from_str(text).ok()?;
        let backoff = &policy.backoff;
        let possible = (1.0..=Backoff::MOST_FACTOR).contains(&backoff.factor)
            && backoff.base <= backoff.cap
            && (1..=Self::LAST_SIGNAL).contains(&policy.kill_signal)
            && policy.limits.values().all(|places| *places > 0);
        possible.then_some(policy)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_lost: OnLost::Retry,
            grace: Self::DEFAULT_GRACE,
            leave_group: false,
            retries: 0,
            backoff: Backoff::default(),
            retry_on: Vec::new(),
            no_retry_on: Vec::new(),
            timeout: None,
            kill_signal: Self::TERM,
            expire: None,
            limits: BTreeMap::new(),
            max_output: None,
            vars: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_to_its_cap_and_never_wraps() {
        let backoff = Backoff {
            base: Span::from_millis(1),
            factor: 2.0,
            cap: Span::from_millis(60_000),
        };
        let waits: Vec<u64> = (1..=5).map(|n| backoff.longest(n).millis()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16]);
        for failed in [17, 63, 64, 200, 2_000, u32::MAX] {
            assert_eq!(backoff.longest(failed).millis(), 60_000);
        }
        let vast = Backoff {
            base: Span::from_millis(u64::MAX),
            factor: f64::MAX,
            cap: Span::from_millis(7),
        };
        assert_eq!(vast.longest(u32::MAX).millis(), 7);
    }

    #[test]
    fn what_is_default_is_not_kept() {
        let text = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(
            text,
            r#"{"on_lost":"retry","grace_ms":5000,"leave_group":false}"#
        );
        let read: Policy = serde_json::from_str("{}").unwrap();
        assert_eq!(read, Policy::default());
    }

    #[test]
    fn a_limit_has_a_name_that_can_be_written_with_a_number() {
        assert!("gpu".parse::<LimitName>().is_ok());
        for bad in ["", "a:b", "a,b", "a\nb", &"x".repeat(101)] {
            assert!(bad.parse::<LimitName>().is_err(), "{bad:?}");
        }
    }
}
