//! How much of what is over is kept, and who says so when it becomes much.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;

use super::Context;
use super::render::number;
use crate::config::Settings;
use crate::model::{ShardId, StepState};
use crate::store::sqlite::{SqliteStore, output_dir};
use crate::store::{Read as _, Store as _};

/// More than this is worth a word, unless it is bounded.
const MANY: u64 = 100_000;
const LARGE: u64 = 1024 * 1024 * 1024;
/// So many files of outputs are looked at: whoever only asks for a status does not wait for more.
const MOST_FILES: usize = 4_096;

/// What is kept of steps that are over.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Kept {
    /// How many steps there are.
    steps: u64,
    /// What the store takes on the disk with the outputs of its steps, at least.
    bytes: u64,
}

impl Kept {
    /// Looks at a store. What cannot be read counts as nothing.
    pub(super) fn of(store: &SqliteStore) -> Self {
        let mut kept = Self::default();
        for shard in ShardId::first(store.shard_count()) {
            let counts = store.counts(shard).unwrap_or_default();
            let of = |state: &StepState| counts.states.get(state).copied().unwrap_or(0);
            kept.steps += StepState::OVER.iter().map(of).sum::<u64>();
            kept.bytes += store.file(shard).map_or(0, taken);
        }
        let folders = entries(&output_dir(store.root()));
        let files = folders.flat_map(|folder| entries(&folder));
        kept.bytes += files.take(MOST_FILES).map(|file| taken(&file)).sum::<u64>();
        kept
    }

    /// Returns what is to be said of it: nothing while it is little, or where it is bounded.
    fn notice(self, settings: &Settings) -> Option<String> {
        let much = self.steps >= MANY || self.bytes >= LARGE;
        (much && settings.keep.is_none()).then(|| {
            format!(
                "notice: {} that are over are kept, and the store takes {}: fairq clean forgets \
                 them, and so do runners after a time such as 30d that is set as keep, or FAIRQ_KEEP",
                number::many(self.steps, "step"),
                number::bytes(self.bytes)
            )
        })
    }
}

/// Says how much is kept, if that is worth a word.
pub(super) fn announce(store: &SqliteStore, context: &mut Context) {
    if let Some(notice) = Kept::of(store).notice(&context.settings) {
        context.screen.talk(&notice);
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns what a file takes on the disk.
fn taken(path: &Path) -> u64 {
    path.symlink_metadata()
        .map_or(0, |about| about.blocks() * 512)
}
