//! What came of steering, step by step, for people and for scripts.

use serde::Serialize;

use super::super::render::number;
use super::super::{Context, Done};
use crate::error::{ErrorKind, Result};
use crate::model::{RunnerId, StepId, StepState};
use crate::store::Steered;

/// So many lines are said of single steps; of more only how many they are.
const MOST_LINES: usize = 50;

/// What came of it for one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// It was done.
    Done,
    /// There was nothing to do: it is so already.
    Unchanged,
    /// Its end was asked for, and has not come yet.
    Asked,
    /// It cannot be done to a step that stands there.
    Refused,
    /// There is no such step.
    Missing,
}

/// The answer for one step, in the form that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    pub(super) id: StepId,
    pub(super) result: Outcome,
    /// Where it stood before; null if there is no such step.
    pub(super) from: Option<StepState>,
    /// Where it stands now; null if there is no such step.
    pub(super) to: Option<StepState>,
    /// Who is to end it, if that was asked for.
    pub(super) runner: Option<RunnerId>,
}

#[derive(Serialize)]
struct Answers<'a> {
    steps: &'a [Answer],
}

impl Answer {
    /// Says what the store answered; `wanted` is where a step that cannot be moved there any more
    /// may stand and be as it was wished to be.
    pub(super) fn new(id: StepId, steered: Steered, wanted: Option<StepState>) -> Self {
        let (result, from, to, runner) = match steered {
            Steered::Done { from, to } => (Outcome::Done, Some(from), Some(to), None),
            Steered::Asked { runner } => {
                let runs = Some(StepState::Running);
                (Outcome::Asked, runs, runs, Some(runner))
            }
            Steered::Refused { state } if Some(state) == wanted => {
                (Outcome::Unchanged, Some(state), Some(state), None)
            }
            Steered::Refused { state } => (Outcome::Refused, Some(state), Some(state), None),
            Steered::Missing => (Outcome::Missing, None, None, None),
        };
        Self {
            id,
            result,
            from,
            to,
            runner,
        }
    }

    /// Returns whether it is as it was wished.
    const fn is_well(&self) -> bool {
        !matches!(self.result, Outcome::Refused | Outcome::Missing)
    }

    /// Says it in words; `done` is the participle of what was wished.
    fn line(&self, done: &str) -> String {
        let word = |state: Option<StepState>| state.map_or("gone", StepState::word);
        let (id, from, to) = (self.id, word(self.from), word(self.to));
        match self.result {
            Outcome::Done if self.from == self.to => format!("{id} {done} ({to})"),
            Outcome::Done => format!("{id} {done}: {from}, now {to}"),
            Outcome::Unchanged => format!("{id} is {to} already"),
            Outcome::Asked => match self.runner {
                Some(runner) => format!("{id} is cancelling: runner {runner} ends it"),
                None => format!("{id} is cancelling"),
            },
            Outcome::Refused => format!("{id} cannot be {done}: it is {to}"),
            Outcome::Missing => format!("{id} cannot be {done}: there is no such step"),
        }
    }
}

/// Says what came of it, and returns the exit code: 0 if all went as wished, 3 if there is none of
/// the steps, else 1. `left_open` are answers that count as gone wrong besides those that say so.
pub(super) fn tell(
    context: &mut Context,
    answers: &[Answer],
    done: &str,
    json: bool,
    left_open: bool,
) -> Result<Done> {
    let counted = |result| answers.iter().filter(|one| one.result == result).count();
    let few = answers.len() <= MOST_LINES;
    let told = answers.iter().filter(|one| few || !one.is_well());
    for answer in told.take(MOST_LINES) {
        context.screen.talk(&answer.line(done));
    }
    if !few {
        let parts = [
            (counted(Outcome::Done), done),
            (counted(Outcome::Unchanged), "as wished already"),
            (counted(Outcome::Asked), "cancelling"),
            (counted(Outcome::Refused), "refused"),
            (counted(Outcome::Missing), "not there"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", number::count(count as u64)))
            .collect();
        context.screen.talk(&parts.join(", "));
    }
    if json {
        context.screen.json(&Answers { steps: answers })?;
    }
    Ok(if counted(Outcome::Missing) == answers.len() {
        Done::Code(ErrorKind::NotFound.exit_code())
    } else if left_open || !answers.iter().all(Answer::is_well) {
        Done::Code(1)
    } else {
        Done::Well
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(steered: Steered, wanted: Option<StepState>) -> String {
        Answer::new("a3".parse().unwrap(), steered, wanted).line("cancelled")
    }

    #[test]
    fn each_answer_says_where_the_step_stands() {
        let done = Steered::Done {
            from: StepState::Ready,
            to: StepState::Cancelled,
        };
        assert_eq!(said(done, None), "a3 cancelled: ready, now cancelled");
        let refused = |state| Steered::Refused { state };
        let wanted = Some(StepState::Cancelled);
        let over = refused(StepState::Succeeded);
        assert_eq!(
            said(over, wanted),
            "a3 cannot be cancelled: it is succeeded"
        );
        let already = refused(StepState::Cancelled);
        assert_eq!(said(already, wanted), "a3 is cancelled already");
        assert_eq!(
            said(Steered::Missing, wanted),
            "a3 cannot be cancelled: there is no such step"
        );
    }
}
