//! Forgetting what was over long ago, beside the work.
//!
//! What is forgotten is a write like any other, and outcomes wait for it on the shard's writer: so it
//! comes in small portions, with rests between them that are several times as long.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Manner, Notice, With, spawn};
use crate::ambient::Clock;
use crate::error::Result;
use crate::model::{ShardId, Span, StepState};
use crate::store::{Retention, Store};

/// How many steps are forgotten in one go.
const FEW: usize = 100;
/// A rest is so many times as long as the work before it.
const REST: u32 = 4;
/// Steps stay at most this part longer than they are to be kept, but for the time that it takes.
const PART: u32 = 20;
/// Between two looks, at least and at most.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3_600);

struct Keeper {
    store: Arc<dyn Store>,
    /// The store's directory.
    root: PathBuf,
    keep: Span,
    clock: Arc<dyn Clock>,
    closing: Arc<Notice>,
    /// What was seen of `closing` while it was open.
    open: u64,
}

/// Starts the thread that forgets, if steps are not kept for ever.
pub(super) fn start(
    with: &With,
    manner: Manner,
    closing: &Arc<Notice>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    let (Some(keep), Some(neighbours)) = (manner.keep, &with.neighbours) else {
        return Ok(());
    };
    let keeper = Keeper {
        store: Arc::clone(&with.store),
        root: neighbours.store.clone(),
        keep,
        clock: Arc::clone(&with.clock),
        closing: Arc::clone(closing),
        // Seen here and not in the thread: a run may be over before its threads have begun.
        open: closing.seen(),
    };
    threads.push(spawn("keeper".to_owned(), move || keeper.serve())?);
    Ok(())
}

impl Keeper {
    fn serve(&self) {
        let pause = (Duration::from(self.keep) / PART).clamp(SHORTEST, LONGEST);
        while self.is_open() {
            let began = self.clock.monotonic();
            for shard in ShardId::first(self.store.shard_count()) {
                // One that cannot be read or written is left to the next time.
                drop(self.clean(shard));
            }
            // Looking for what is old is a walk over all that is over.
            let took = self.clock.monotonic() - began;
            self.closing.wait(self.open, pause.max(took * PART));
        }
    }

    /// Forgets what is old enough on a shard.
    fn clean(&self, shard: ShardId) -> Result<()> {
        let mut retention = Retention {
            ended_before: self.clock.now() - self.keep,
            states: StepState::OVER.to_vec(),
            only: None,
            most: FEW,
            tidy: false,
        };
        let mut is_any = false;
        while self.is_open() {
            let began = self.clock.monotonic();
            let cleaned = self.store.clean(shard, &retention)?;
            for file in &cleaned.files {
                // One that stays belongs to nobody, and `doctor` finds it.
                fs::remove_file(self.root.join(file)).ok();
            }
            is_any |= cleaned.steps > 0;
            if retention.tidy || (cleaned.done && !is_any) {
                break;
            }
            retention.tidy = cleaned.done;
            let took = self.clock.monotonic() - began;
            self.closing.wait(self.open, took * REST);
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.closing.seen() == self.open
    }
}
