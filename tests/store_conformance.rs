//! Every promise of the storage seam, asked of every backend.
//!
//! To add a backend, add its line below: it gets a fresh directory, a number of shards and a
//! placement. The promises themselves are in `conformance/`, one file a role.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that called them"
)]

mod conformance;

use std::path::Path;
use std::sync::Arc;

use fairq::ambient::{Clock, SystemClock};
use fairq::store::Store;
use fairq::store::memory::MemoryStore;
use fairq::store::placement::Placement;
use fairq::store::sqlite::{Durability, Mode, NewStore, SqliteStore};

/// Opens a SQLite store in a directory that the test owns.
fn sqlite(root: &Path, shards: u8, placement: Placement, mode: Mode) -> Box<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let new = NewStore { shards, placement };
    let opened = SqliteStore::open_or_create(root, new, mode, Durability::Normal, &clock);
    Box::new(opened.unwrap())
}

conformance::every_promise! {
    memory = |root, shards, placement| {
        Box::new(MemoryStore::new(shards, placement).with_outputs_below(root))
    };
    sqlite_that_serves = |root, shards, placement| sqlite(root, shards, placement, Mode::Serve);
    sqlite_that_visits = |root, shards, placement| sqlite(root, shards, placement, Mode::Visit);
}
