//! Which columns `fairq status` shows, and what stands in them.

use crate::cli::Context;
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number, quote};
use crate::cli::step_json::is_cancelling;
use crate::cli::time::ago;
use crate::model::{Ending, StepState, Timestamp};
use crate::store::StepView;

/// A column of the list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    State,
    Band,
    Key,
    Weight,
    When,
    Enqueued,
    Tries,
    Limit,
    Runner,
    Result,
    Name,
    Tags,
    Flow,
    Cwd,
    Command,
}

/// What is shown if nothing else is asked for.
pub(super) const USUAL: &str = "id,state,band,key,when,result,name,command";

impl Field {
    const ALL: [(Self, &'static str); 16] = [
        (Self::Id, "id"),
        (Self::State, "state"),
        (Self::Band, "band"),
        (Self::Key, "key"),
        (Self::Weight, "weight"),
        (Self::When, "when"),
        (Self::Enqueued, "enqueued"),
        (Self::Tries, "tries"),
        (Self::Limit, "limit"),
        (Self::Runner, "runner"),
        (Self::Result, "result"),
        (Self::Name, "name"),
        (Self::Tags, "tags"),
        (Self::Flow, "flow"),
        (Self::Cwd, "cwd"),
        (Self::Command, "command"),
    ];

    /// Reads the word for a column.
    pub(super) fn read(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, name)| *name == word);
        found.map(|(field, _)| field).ok_or_else(|| {
            let words = Self::ALL.map(|(_, name)| name).join(", ");
            format!("columns are {words}")
        })
    }

    fn column(self) -> Column {
        let found = Self::ALL.into_iter().find(|(field, _)| *field == self);
        let title = found.map_or("", |(_, name)| name).to_uppercase();
        match self {
            Self::Band | Self::Weight | Self::Tries => Column::numbers(&title),
            Self::Name | Self::Tags | Self::Cwd | Self::Command => Column::text(&title),
            Self::Id
            | Self::State
            | Self::Key
            | Self::When
            | Self::Enqueued
            | Self::Limit
            | Self::Runner
            | Self::Result
            | Self::Flow => Column::words(&title),
        }
    }

    fn cell(self, context: &Context, step: &StepView, now: Timestamp) -> Cell {
        match self {
            Self::Id => Cell::new(step.id.to_string()),
            Self::State => Cell::new(state(step)).tone(super::tone(step.state)),
            Self::Band => Cell::new(step.band.to_string()),
            Self::Key => Cell::new(step.key.as_str()),
            Self::Weight => Cell::new(step.weight.to_string()),
            Self::When => Cell::new(when(context, step, now)),
            Self::Enqueued if context.screen.is_terminal() => Cell::new(ago(step.created, now)),
            Self::Enqueued => Cell::new(step.created.to_string()),
            Self::Tries => Cell::new(number::count(u64::from(step.attempt))),
            Self::Limit => Cell::new(step.limit.as_ref().map_or("", |limit| limit.as_str())),
            Self::Runner => Cell::new(step.runner.map_or_else(String::new, |it| it.to_string())),
            Self::Result => Cell::new(step.ending.as_ref().map(result).unwrap_or_default()),
            Self::Name => Cell::new(step.name.as_deref().unwrap_or_default()),
            Self::Tags => Cell::new(step.tags.join(",")),
            Self::Flow => Cell::new(step.flow.as_deref().unwrap_or_default()),
            Self::Cwd => Cell::new(step.cwd.as_os_str().as_encoded_bytes()),
            Self::Command => Cell::new(quote::summary(&step.command)),
        }
    }
}

/// Returns the steps as a table of these columns.
pub(super) fn table(context: &Context, steps: &[StepView], fields: &[Field]) -> Table {
    let now = context.clock.now();
    let mut table = Table::new(fields.iter().map(|field| field.column()));
    for step in steps {
        table.row(fields.iter().map(|field| field.cell(context, step, now)));
    }
    table
}

/// Returns where a step stands, in a word: one that runs until its end comes is on its way there.
pub(in crate::cli) fn state(step: &StepView) -> &'static str {
    if is_cancelling(step) {
        "cancelling"
    } else {
        step.state.word()
    }
}

/// Returns when a step began to be what it is: for people how long ago, for scripts the instant.
fn when(context: &Context, step: &StepView, now: Timestamp) -> String {
    if !context.screen.is_terminal() {
        return step.at.to_string();
    }
    match step.state {
        StepState::Delayed => context.zone.show(step.at),
        StepState::Running
        | StepState::Ready
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled => ago(step.at, now),
    }
}

/// Returns an ending in a few words.
fn result(ending: &Ending) -> String {
    match ending {
        Ending::Unstarted { .. } | Ending::Cancelled => "not started".to_owned(),
        Ending::Skipped { .. } => "skipped".to_owned(),
        Ending::Expired => "expired".to_owned(),
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Interrupted
        | Ending::Lost
        | Ending::TimedOut { .. } => ending.to_string(),
    }
}
