//! What an ending means for its step. Pure.

use crate::model::{Backoff, Ending, Policy, Span, Timestamp, Verdict};

/// Returns the verdict on a try of this number (from 1) that was over at `now`. `chance` is a number
/// in [0, 1): it decides how much sooner than at the latest a step is tried again.
pub fn verdict(
    ending: &Ending,
    policy: &Policy,
    attempt: u32,
    now: Timestamp,
    chance: f64,
) -> Verdict {
    match ending {
        Ending::Exited { code: 0 } => Verdict::Succeeded,
        // Not the step's doing: it goes back, and the try is not counted.
        Ending::Interrupted | Ending::Lost => Verdict::GiveBack,
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Unstarted { .. }
        | Ending::TimedOut { .. }
            if attempt <= policy.retries && is_to_be_tried_again(ending, policy) =>
        {
            Verdict::Retry {
                at: now + delay(&policy.backoff, attempt, chance),
            }
        }
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Unstarted { .. }
        | Ending::TimedOut { .. }
        | Ending::Cancelled
        | Ending::Skipped { .. }
        | Ending::Expired => Verdict::Failed,
    }
}

/// Returns whether a try that failed like this is worth another one, by the code that a shell would
/// report. A command that could not be started is only if that was asked for: it rarely helps.
fn is_to_be_tried_again(ending: &Ending, policy: &Policy) -> bool {
    let names = |codes: &[u8]| {
        codes
            .iter()
            .any(|code| i32::from(*code) == ending.shell_code())
    };
    let asked_for = names(&policy.retry_on);
    let by_default = policy.retry_on.is_empty() && !matches!(ending, Ending::Unstarted { .. });
    (asked_for || by_default) && !names(&policy.no_retry_on)
}

/// Returns how long a step waits after so many failed tries: the longest wait, less up to a half.
fn delay(backoff: &Backoff, failed: u32, chance: f64) -> Span {
    let longest = backoff.longest(failed).millis();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a whole number of milliseconds; the cast saturates"
    )]
    let less = (longest as f64 / 2.0 * chance) as u64;
    Span::from_millis(longest.saturating_sub(less))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn failures() -> Vec<Ending> {
        let mut all: Vec<Ending> = [1, 2, 75, 125, 126, 127, 128, 130, 143, 255]
            .map(|code| Ending::Exited { code })
            .into();
        all.extend([6, 9, 11, 15].map(|signal| Ending::Signalled { signal }));
        all.extend([false, true].map(|killed| Ending::TimedOut { killed }));
        all
    }

    fn unstarted() -> Ending {
        Ending::Unstarted {
            reason: String::new(),
        }
    }

    fn retrying(retries: u32) -> Policy {
        Policy {
            retries,
            ..Policy::default()
        }
    }

    fn judged(ending: &Ending, policy: &Policy, attempt: u32) -> Verdict {
        verdict(ending, policy, attempt, NOW, 0.0)
    }

    fn is_retry(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Retry { .. })
    }

    #[test]
    fn only_code_zero_is_success() {
        for policy in [Policy::default(), retrying(3)] {
            let ended = judged(&Ending::Exited { code: 0 }, &policy, 1);
            assert_eq!(ended, Verdict::Succeeded);
        }
        for ending in failures().iter().chain([&unstarted()]) {
            assert_eq!(judged(ending, &Policy::default(), 1), Verdict::Failed);
        }
    }

    #[test]
    fn a_step_does_not_pay_for_our_shutdown() {
        for ending in [Ending::Interrupted, Ending::Lost] {
            for attempt in [1, 4] {
                assert_eq!(judged(&ending, &retrying(3), attempt), Verdict::GiveBack);
            }
        }
    }

    #[test]
    fn every_failure_is_tried_again_as_often_as_was_asked_for() {
        for ending in failures() {
            for attempt in 1..=3 {
                assert!(is_retry(judged(&ending, &retrying(3), attempt)), "{ending}");
            }
            for attempt in [4, 5, u32::MAX] {
                assert_eq!(judged(&ending, &retrying(3), attempt), Verdict::Failed);
            }
        }
    }

    #[test]
    fn what_never_ran_is_over() {
        let skipped = Ending::Skipped {
            reason: "a1 failed".to_owned(),
        };
        let all: Vec<u8> = (0..=255).collect();
        let policy = Policy {
            retry_on: all,
            ..retrying(3)
        };
        for ending in [Ending::Cancelled, Ending::Expired, skipped] {
            assert_eq!(judged(&ending, &policy, 1), Verdict::Failed, "{ending}");
        }
    }

    #[test]
    fn codes_decide_as_a_shell_would_report_them() {
        let only = |retry_on: &[u8], no_retry_on: &[u8]| Policy {
            retry_on: retry_on.into(),
            no_retry_on: no_retry_on.into(),
            ..retrying(1)
        };
        let exit = |code| Ending::Exited { code };
        let cases = [
            (only(&[75], &[]), exit(75), true),
            (only(&[75], &[]), exit(1), false),
            (only(&[137], &[]), Ending::Signalled { signal: 9 }, true),
            (only(&[124], &[]), Ending::TimedOut { killed: true }, true),
            (only(&[1], &[]), Ending::TimedOut { killed: true }, false),
            (only(&[], &[2]), exit(2), false),
            (only(&[], &[2]), exit(3), true),
            (only(&[], &[124]), Ending::TimedOut { killed: false }, false),
            (only(&[5], &[5]), exit(5), false),
            (only(&[], &[]), unstarted(), false),
            (only(&[127], &[]), unstarted(), true),
            (only(&[127], &[127]), unstarted(), false),
        ];
        for (policy, ending, again) in cases {
            let told = judged(&ending, &policy, 1);
            assert_eq!(is_retry(told), again, "{ending} by {policy:?}");
        }
    }

    #[test]
    fn chance_takes_up_to_a_half_of_the_wait() {
        let policy = Policy {
            backoff: Backoff {
                base: Span::from_millis(1_000),
                factor: 2.0,
                cap: Span::from_millis(3_000),
            },
            ..retrying(9)
        };
        let wait = |attempt, chance| {
            let told = verdict(&Ending::Exited { code: 1 }, &policy, attempt, NOW, chance);
            let Verdict::Retry { at } = told else {
                panic!("{told:?}")
            };
            at.since(NOW).millis()
        };
        assert_eq!(
            [1, 2, 3, 9].map(|n| wait(n, 0.0)),
            [1_000, 2_000, 3_000, 3_000]
        );
        assert_eq!(
            [1, 2, 3, 9].map(|n| wait(n, 0.5)),
            [750, 1_500, 2_250, 2_250]
        );
        let least = [1, 2, 3, 9].map(|n| wait(n, 1.0 - f64::EPSILON));
        assert_eq!(least, [501, 1_001, 1_501, 1_501]);
    }

    #[test]
    fn a_wait_is_never_negative_and_never_wraps() {
        let huge = Span::from_millis(u64::MAX);
        let backoff = Backoff {
            base: huge,
            factor: f64::MAX,
            cap: huge,
        };
        for backoff in [
            backoff,
            Backoff {
                factor: 1.0,
                ..backoff
            },
        ] {
            let policy = Policy {
                backoff,
                ..retrying(u32::MAX)
            };
            for attempt in [1, 2, 200, u32::MAX] {
                for chance in [0.0, 0.5, 1.0 - f64::EPSILON] {
                    let now = Timestamp::from_millis(i64::MAX - 5);
                    let told = verdict(&Ending::Exited { code: 1 }, &policy, attempt, now, chance);
                    assert!(
                        matches!(told, Verdict::Retry { at } if at >= now),
                        "{told:?}"
                    );
                }
            }
        }
    }
}
