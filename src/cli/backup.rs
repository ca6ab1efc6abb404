//! `fairq backup`: copy a store while it is used.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{Context, Done};
use crate::cli::render::{number, text};
use crate::error::Result;
use crate::store::sqlite::Copied;

/// Copy the store into a new or empty directory, while runners work
///
/// The copy is a store: give it to --store, or copy it back to restore it while nothing runs. Each
/// shard is copied as it was at one instant, different shards at different ones; news between them
/// that fell into the gap are set right by the next runner. Steps that ran at that instant are run
/// again once their leases have ended. What lives with a runner only, such as logs of events, is not
/// copied.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq backup /mnt/backups/$(date +%F)
  fairq --store /mnt/backups/2026-01-31 status   look into a copy")]
pub(super) struct BackupArgs {
    /// Where to; it is made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct BackupJson<'b> {
    store: std::borrow::Cow<'b, str>,
    dir: std::borrow::Cow<'b, str>,
    #[serde(flatten)]
    copied: Copied,
}

pub(super) fn run(args: &BackupArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let screen = &mut context.screen;
    let copied = store.back_up(&args.dir, &mut |part| screen.progress(&text::shown(part)))?;
    if copied.missing > 0 {
        context.screen.talk(&format!(
            "{} gone before their turn came: their steps were forgotten meanwhile",
            number::many(copied.missing, "output")
        ));
    }
    if args.json {
        context.screen.json(&BackupJson {
            store: store.root().to_string_lossy(),
            dir: args.dir.to_string_lossy(),
            copied,
        })?;
    } else {
        context.screen.talk(&format!(
            "copied {} and {} to {} ({})",
            number::many(copied.shards.into(), "shard"),
            number::many(copied.outputs, "output file"),
            text::shown(args.dir.to_string_lossy().as_bytes()),
            number::bytes(copied.bytes)
        ));
    }
    Ok(Done::Well)
}
