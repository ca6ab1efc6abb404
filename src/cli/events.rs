//! `fairq events`: what happened, as one stream.

mod source;

use std::time::Duration;

use clap::Args;

use self::source::{Item, Sources};
use super::words::{self, IdRange};
use super::{Context, Done};
use crate::engine::Notice;
use crate::error::Result;
use crate::model::{FairnessKey, Span};
use crate::store::Read as _;
use crate::store::sqlite::SqliteStore;

/// Between two looks at files that may have grown.
const PAUSE: Duration = Duration::from_millis(100);
/// Where nobody says from when on.
const DAY: Span = Span::from_millis(86_400_000);

/// Print what happened, a JSON object a line
///
/// Merged by time: what runners tell of themselves and of steps, from logs that each keeps in the
/// store, and that steps were put in, from the store itself. The logs are bounded: of each runner
/// the latest 4 to 8 MiB are there. With --follow, a runner's events come up to a moment late.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq events --since 1h | jq -r 'select(.event == \"ended\") | .id'
  fairq events --follow --key alice
  fairq events --id a17                       all that happened to a step today")]
pub(super) struct EventsArgs {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
    /// From when on: a duration until now, or a time [default: 24h; now with --follow]
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only of steps of these keys
    #[arg(short, long, value_name = "KEY")]
    key: Vec<FairnessKey>,
    /// Only of these steps, as a3 or as ranges a5-a9
    #[arg(long, value_name = "ID", value_parser = words::ids)]
    id: Vec<IdRange>,
}

pub(super) fn run(args: &EventsArgs, context: &mut Context) -> Result<Done> {
    let now = context.clock.now();
    let since = match &args.since {
        Some(since) => words::since(since, &context.zone, now)?,
        None if args.follow => now,
        None => now - DAY,
    };
    let store = context.store_with_steps()?;
    let mut sources = Sources::new(&store, since);
    let nobody = Notice::default();
    loop {
        sources.look()?;
        while let Some(item) = sources.next()? {
            if args.wants(&store, &item)? {
                context.screen.json_text(&item.line)?;
            }
            if context.screen.is_closed() {
                return Ok(Done::Well);
            }
        }
        context.screen.flush()?;
        if !args.follow || context.screen.is_closed() {
            return Ok(Done::Well);
        }
        nobody.wait(nobody.seen(), PAUSE);
    }
}

impl EventsArgs {
    fn wants(&self, store: &SqliteStore, item: &Item) -> Result<bool> {
        if self.key.is_empty() && self.id.is_empty() {
            return Ok(true);
        }
        let Some(id) = item.known.id else {
            return Ok(false);
        };
        if !self.id.is_empty() && !self.id.iter().any(|range| range.contains(id)) {
            return Ok(false);
        }
        if self.key.is_empty() {
            return Ok(true);
        }
        // Not every event repeats its step's key.
        let key = match &item.known.key {
            Some(key) => Some(key.clone()),
            None => store.get(id)?.map(|step| step.key),
        };
        Ok(key.is_some_and(|key| self.key.contains(&key)))
    }
}
