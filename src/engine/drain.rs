//! From signals to what is stopped next. Pure.

/// How far a runner is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes work.
    Serving,
    /// It takes no new work and lets what runs go on.
    Draining,
    /// It has asked what runs to end; the crew kills each step when its own grace is over.
    Ending,
    /// It has killed what ran.
    Killing,
}

/// What is to be done on entering a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take no new work.
    Drain,
    /// Ask every step's group to end.
    Ask,
    /// Kill every step's group.
    Kill,
}

/// Returns the phase that follows, and what to do: the first signal drains, the second asks the steps
/// to end, the third kills them at once. One step at a time: signals that came together are worked
/// off by calling again.
pub const fn next(phase: Phase, signals: usize) -> (Phase, Option<Action>) {
    match phase {
        Phase::Serving if signals >= 1 => (Phase::Draining, Some(Action::Drain)),
        Phase::Draining if signals >= 2 => (Phase::Ending, Some(Action::Ask)),
        Phase::Ending if signals >= 3 => (Phase::Killing, Some(Action::Kill)),
        Phase::Serving | Phase::Draining | Phase::Ending | Phase::Killing => (phase, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_is_one_step_further() {
        let run = |signals| {
            let (mut phase, mut actions) = (Phase::Serving, Vec::new());
            while let (after, Some(action)) = next(phase, signals) {
                phase = after;
                actions.push(action);
            }
            (phase, actions)
        };
        let all = [Action::Drain, Action::Ask, Action::Kill];
        assert_eq!(run(0), (Phase::Serving, vec![]));
        assert_eq!(run(1), (Phase::Draining, all[..1].to_vec()));
        assert_eq!(run(2), (Phase::Ending, all[..2].to_vec()));
        assert_eq!(run(3), (Phase::Killing, all.to_vec()));
        assert_eq!(run(9), (Phase::Killing, all.to_vec()));
    }
}
