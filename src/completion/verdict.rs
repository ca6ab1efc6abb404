//! What an ending means for its step. Pure.

use crate::model::{Ending, Verdict};

/// Returns the verdict on a try.
pub const fn verdict(ending: &Ending) -> Verdict {
    match ending {
        Ending::Exited { code: 0 } => Verdict::Succeeded,
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Unstarted { .. }
        | Ending::TimedOut { .. }
        | Ending::Cancelled
        | Ending::Skipped { .. }
        | Ending::Expired => Verdict::Failed,
        // Not the step's doing: it goes back, and the try is not counted.
        Ending::Interrupted | Ending::Lost => Verdict::GiveBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_zero_is_success() {
        assert_eq!(verdict(&Ending::Exited { code: 0 }), Verdict::Succeeded);
        for code in [1, 2, 125, 126, 127, 128, 130, 143, 255] {
            assert_eq!(verdict(&Ending::Exited { code }), Verdict::Failed);
        }
        for signal in [6, 9, 11, 15] {
            assert_eq!(verdict(&Ending::Signalled { signal }), Verdict::Failed);
        }
        assert_eq!(
            verdict(&Ending::Unstarted {
                reason: String::new()
            }),
            Verdict::Failed
        );
    }

    #[test]
    fn a_step_does_not_pay_for_our_shutdown() {
        assert_eq!(verdict(&Ending::Interrupted), Verdict::GiveBack);
        assert_eq!(verdict(&Ending::Lost), Verdict::GiveBack);
    }
}
