//! A step as JSON: the form that scripts rely on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::render::quote;
use crate::model::{
    Backoff, Band, Command, Ending, FairnessKey, LimitName, OnLost, Policy, RunnerId, Span, StepId,
    StepState, Timestamp, Weight,
};
use crate::store::{Attempt, Link, StepView};

/// One step. Times are RFC 3339 in UTC; fields that do not apply are null.
#[derive(Debug, Serialize)]
pub(super) struct StepJson<'s> {
    id: StepId,
    state: StepState,
    /// Whether it runs and its end was asked for.
    cancelling: bool,
    band: Band,
    key: &'s FairnessKey,
    weight: Weight,
    name: Option<&'s str>,
    tags: &'s [String],
    flow: Option<&'s str>,
    /// The words of an argv, or the one line for the shell; bytes that are no UTF-8 are replaced.
    argv: Vec<String>,
    shell: bool,
    /// The command as a shell takes it, exact whatever bytes it has.
    command: String,
    cwd: String,
    created: String,
    /// Since when it has been due, if it is.
    since: Option<String>,
    /// When it will be due, if it is delayed.
    due: Option<String>,
    /// When it was claimed, if it runs.
    claimed: Option<String>,
    /// When its last try's process was started, if it is over.
    started: Option<String>,
    /// When it ended, if it is over.
    ended: Option<String>,
    /// The limit that it was last seen to wait for, if it is limited.
    limit: Option<&'s LimitName>,
    attempt: u32,
    runner: Option<RunnerId>,
    ending: Option<&'s Ending>,
    /// The code that a shell would have reported: 128 + the signal for a signal.
    exit_code: Option<i32>,
    policy: PolicyJson<'s>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<AttemptJson<'s>>>,
    /// What it waits for, or has waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'s [Link]>,
    /// Which steps wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    dependents: Option<&'s [StepId]>,
}

/// How a step is treated, with what is left out where it is kept.
#[derive(Debug, Serialize)]
struct PolicyJson<'s> {
    on_lost: OnLost,
    grace_ms: Span,
    leave_group: bool,
    retries: u32,
    backoff: Backoff,
    retry_on: &'s [u8],
    no_retry_on: &'s [u8],
    timeout_ms: Option<Span>,
    kill_signal: i32,
    expire: Option<String>,
    limits: &'s BTreeMap<LimitName, u32>,
    max_output: Option<u64>,
    vars: &'s BTreeMap<String, String>,
}

/// One try that is over.
#[derive(Debug, Serialize)]
pub(super) struct AttemptJson<'a> {
    attempt: u32,
    fence: u32,
    runner: RunnerId,
    worker: u32,
    since: String,
    claimed: String,
    started: Option<String>,
    ended: String,
    ending: &'a Ending,
    exit_code: i32,
}

impl<'s> StepJson<'s> {
    /// Returns a step without its tries.
    pub(super) fn new(step: &'s StepView) -> Self {
        let (argv, shell) = match &step.command {
            Command::Shell(line) => (vec![line.to_string_lossy().into_owned()], true),
            Command::Argv(words) => (
                words
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect(),
                false,
            ),
        };
        let at_in = |state: StepState| (step.state == state).then(|| time(step.at));
        Self {
            id: step.id,
            state: step.state,
            cancelling: is_cancelling(step),
            band: step.band,
            key: &step.key,
            weight: step.weight,
            name: step.name.as_deref(),
            tags: &step.tags,
            flow: step.flow.as_deref(),
            argv,
            shell,
            command: quote::command_shown(&step.command),
            cwd: step.cwd.to_string_lossy().into_owned(),
            created: time(step.created),
            since: at_in(StepState::Ready),
            due: at_in(StepState::Delayed),
            claimed: at_in(StepState::Running),
            started: step.started.map(time),
            ended: step.state.is_final().then(|| time(step.at)),
            limit: step.limit.as_ref(),
            attempt: step.attempt,
            runner: step.runner,
            ending: step.ending.as_ref(),
            exit_code: step.ending.as_ref().map(Ending::shell_code),
            policy: PolicyJson::new(&step.policy),
            attempts: None,
            after: None,
            dependents: None,
        }
    }

    /// Adds its tries.
    pub(super) fn with_attempts(mut self, attempts: &'s [Attempt]) -> Self {
        let json = |attempt: &'s Attempt| AttemptJson {
            attempt: attempt.attempt,
            fence: attempt.fence,
            runner: attempt.runner,
            worker: attempt.worker,
            since: time(attempt.since),
            claimed: time(attempt.claimed),
            started: attempt.started.map(time),
            ended: time(attempt.ended),
            ending: &attempt.ending,
            exit_code: attempt.ending.shell_code(),
        };
        self.attempts = Some(attempts.iter().map(json).collect());
        self
    }

    /// Adds what it waits for, and what waits for it.
    pub(super) const fn with_links(mut self, after: &'s [Link], dependents: &'s [StepId]) -> Self {
        self.after = Some(after);
        self.dependents = Some(dependents);
        self
    }
}

impl<'s> PolicyJson<'s> {
    fn new(policy: &'s Policy) -> Self {
        // Taken apart, so that no part is forgotten here.
        let Policy {
            on_lost,
            grace,
            leave_group,
            retries,
            backoff,
            retry_on,
            no_retry_on,
            timeout,
            kill_signal,
            expire,
            limits,
            max_output,
            vars,
        } = policy;
        Self {
            on_lost: *on_lost,
            grace_ms: *grace,
            leave_group: *leave_group,
            retries: *retries,
            backoff: *backoff,
            retry_on,
            no_retry_on,
            timeout_ms: *timeout,
            kill_signal: *kill_signal,
            expire: expire.map(time),
            limits,
            max_output: *max_output,
            vars,
        }
    }
}

/// Returns whether a step runs and its end was asked for.
pub(super) fn is_cancelling(step: &StepView) -> bool {
    step.state == StepState::Running && step.cancelling
}

fn time(instant: Timestamp) -> String {
    instant.to_string()
}
