//! `fairq doctor`: look a store over, and set right what can be.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::{Context, Done};
use crate::cli::kept::{self, Kept};
use crate::cli::render::{Tone, number, text};
use crate::error::{Error, Result};
use crate::model::ShardId;
use crate::presence::bell;
use crate::store::Store as _;
use crate::store::sqlite::{Finding, Look, Severity, SqliteStore, runners_dir};

mod runners;

/// Look the store over: files, tables, leases, dead runners, the clock
///
/// Reads everything that is stored, while others work, and changes nothing unless --repair is given.
/// Each finding is a line: how bad, where, what it means, what to do. Exits with 0 if nothing was
/// found, with 1 if something was; with --repair by what is left afterwards.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq doctor
  fairq doctor --full                         compare every index with its table, too
  fairq doctor --repair                       set right what can be set right without guessing
  fairq doctor --json | jq -r '.findings[].what'")]
pub(super) struct DoctorArgs {
    /// Compare every index with its table, too: slower
    #[arg(long)]
    full: bool,
    /// Set right what is safe: count sums anew, hold steps that stand nowhere, bring news between
    /// shards, take steps back from dead runners, remove what belongs to no step
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DoctorJson<'d> {
    store: std::borrow::Cow<'d, str>,
    /// What was found; with --repair, before it.
    findings: &'d [Finding],
    /// What --repair did, and what it could not do.
    repaired: Vec<String>,
    failed: Vec<String>,
    /// What is left after --repair; null without it.
    left: Option<&'d [Finding]>,
    /// What is kept of steps that are over.
    kept: Kept,
}

pub(super) fn run(args: &DoctorArgs, context: &mut Context) -> Result<Done> {
    let store = Arc::new(context.store_with_steps()?);
    let found = look(&store, args.full, context);
    let mut repaired = Vec::new();
    let mut failed = Vec::new();
    let mut left = None;
    // Also where nothing was found: what is under way between shards is not looked at while runners
    // live, and doing it twice does no harm.
    if args.repair {
        repaired = runners::take_back(&store, context);
        for done in store.repair(context.clock.now()) {
            match done {
                Ok(line) => repaired.push(line),
                Err(error) => failed.push(error),
            }
        }
        // Steps may have become due, on any shard.
        let shards: Vec<ShardId> = ShardId::first(store.shard_count()).collect();
        bell::ring(&runners_dir(store.root()), &shards);
        left = Some(look(&store, args.full, context));
    }
    let code = u8::from(!left.as_ref().unwrap_or(&found).is_empty() || !failed.is_empty());
    if args.json {
        context.screen.json(&DoctorJson {
            store: store.root().to_string_lossy(),
            findings: &found,
            repaired,
            failed: failed.iter().map(Error::to_string).collect(),
            left: left.as_deref(),
            kept: Kept::of(&store),
        })?;
        return Ok(Done::of(code));
    }
    show(&found, context)?;
    for line in &repaired {
        context
            .screen
            .line(&text::shown(format!("repaired: {line}")))?;
    }
    for error in &failed {
        context.screen.error(error);
    }
    if let Some(left) = left.filter(|left| !left.is_empty() && !found.is_empty()) {
        context.screen.line("left:")?;
        show(&left, context)?;
    }
    if found.is_empty() && repaired.is_empty() && failed.is_empty() {
        let shards = number::many(store.shard_count().into(), "shard");
        context.screen.talk(&format!("nothing found in {shards}"));
    }
    kept::announce(&store, context);
    Ok(Done::of(code))
}

/// Looks at the runners and at what is stored.
fn look(store: &SqliteStore, full: bool, context: &Context) -> Vec<Finding> {
    let clock = context.clock.as_ref();
    let there = runners::check(store, clock);
    let look = Look {
        full,
        alive: there.alive,
    };
    let mut findings = store.check(look, clock);
    findings.extend(there.findings);
    findings
}

fn show(findings: &[Finding], context: &mut Context) -> Result<()> {
    let paint = context.screen.paint();
    for finding in findings {
        let tone = match finding.severity {
            Severity::Error => Tone::Bad,
            Severity::Warning => Tone::Notice,
        };
        let heading = paint.tone(tone, &format!("{}:", finding.severity));
        let mut line = format!("{}: {}", finding.place, finding.what);
        if !finding.remedy.is_empty() {
            line.push_str("; ");
            line.push_str(&finding.remedy);
        }
        context
            .screen
            .line(&format!("{heading} {}", text::shown(line)))?;
    }
    Ok(())
}
