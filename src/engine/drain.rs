//! From signals to what is stopped next. Pure.

use std::time::Duration;

/// How far a runner is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes work.
    Serving,
    /// It takes no new work and lets what runs go on.
    Draining,
    /// It has asked what runs to end, at this time of the monotonic clock.
    Ending(Duration),
    /// It has killed what ran.
    Killing,
}

/// What is to be done on entering a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take no new work.
    Drain,
    /// Ask every step's group to end.
    Term,
    /// Kill every step's group.
    Kill,
}

/// Returns the phase that follows, and what to do: the first signal drains, the second asks the steps
/// to end and kills them after the grace, the third kills at once. One step at a time: signals that
/// came together are worked off by calling again.
pub fn next(
    phase: Phase,
    signals: usize,
    now: Duration,
    grace: Duration,
) -> (Phase, Option<Action>) {
    match phase {
        Phase::Serving if signals >= 1 => (Phase::Draining, Some(Action::Drain)),
        Phase::Draining if signals >= 2 => (Phase::Ending(now), Some(Action::Term)),
        Phase::Ending(since) if signals >= 3 || now.saturating_sub(since) >= grace => {
            (Phase::Killing, Some(Action::Kill))
        }
        Phase::Serving | Phase::Draining | Phase::Ending(_) | Phase::Killing => (phase, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn run(signals: usize, now: Duration, mut phase: Phase) -> (Phase, Vec<Action>) {
        let mut actions = Vec::new();
        while let (after, Some(action)) = next(phase, signals, now, GRACE) {
            phase = after;
            actions.push(action);
        }
        (phase, actions)
    }

    #[test]
    fn each_signal_is_one_step_further() {
        let now = Duration::from_secs(1);
        assert_eq!(run(0, now, Phase::Serving), (Phase::Serving, vec![]));
        assert_eq!(
            run(1, now, Phase::Serving),
            (Phase::Draining, vec![Action::Drain])
        );
        assert_eq!(
            run(2, now, Phase::Serving),
            (Phase::Ending(now), vec![Action::Drain, Action::Term])
        );
        assert_eq!(
            run(9, now, Phase::Serving),
            (
                Phase::Killing,
                vec![Action::Drain, Action::Term, Action::Kill]
            )
        );
    }

    #[test]
    fn what_was_asked_to_end_is_killed_after_the_grace() {
        let since = Duration::from_secs(1);
        let asked = Phase::Ending(since);
        assert_eq!(run(2, since + GRACE / 2, asked), (asked, vec![]));
        assert_eq!(
            run(2, since + GRACE, asked),
            (Phase::Killing, vec![Action::Kill])
        );
    }
}
