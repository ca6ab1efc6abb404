//! `fairq init`: make a store.

use clap::Args;
use serde::Serialize;

use super::{Context, Done};
use crate::cli::render::{number, text};
use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::SqliteStore;

/// Make a store, which is otherwise made at its first use
///
/// A store's number of shards and its placement are chosen when it is made and never change.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq init                                  with the usual shards, where the store would be
  fairq --store /var/lib/jobs init --shards 8
  fairq init --store .fairq                   a store for this project")]
pub(super) struct InitArgs {
    /// How many shards, 1 to 26 [default: the number of CPUs, at most 4]
    #[arg(long, value_name = "N")]
    pub(super) shards: Option<String>,
    /// Where new steps go: key (all of a key on one shard) or spread (to each shard in turn)
    #[arg(long, value_name = "HOW")]
    pub(super) placement: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made<'m> {
    store: std::borrow::Cow<'m, str>,
    shards: u8,
    made: bool,
}

pub(super) fn run(args: &InitArgs, context: &mut Context) -> Result<Done> {
    let root = context.settings.store.clone();
    let made = SqliteStore::create(&root, context.new_store(), context.clock.as_ref())?;
    let asked = args.shards.is_some() || args.placement.is_some();
    let store = context.store_with_steps()?;
    let shards = crate::store::Store::shard_count(&store);
    if !made
        && asked
        && (shards, store.placement()) != {
            let new = context.new_store();
            (new.shards, new.placement)
        }
    {
        return Err(Error::new(
            ErrorKind::General,
            format!(
                "{} is there already, with {}",
                root.display(),
                number::many(shards.into(), "shard")
            ),
        )
        .hint("it was left as it is; the number of shards and the placement cannot be changed"));
    }
    if args.json {
        context.screen.json(&Made {
            store: root.to_string_lossy(),
            shards,
            made,
        })?;
    } else {
        let what = if made { "made" } else { "is there already" };
        context.screen.talk(&format!(
            "{} {what}, with {}",
            text::shown(root.display().to_string()),
            number::many(shards.into(), "shard")
        ));
    }
    Ok(Done::Well)
}
