//! Every promise of the storage seam, asked of every backend.
//!
//! To add a backend, add its line below: it gets a fresh directory, a number of shards and a
//! placement. The promises themselves are in `conformance/`, one file a role.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that called them"
)]

mod conformance;

use fairq::store::memory::MemoryStore;

conformance::every_promise! {
    memory = |root, shards, placement| {
        Box::new(MemoryStore::new(shards, placement).with_outputs_below(root))
    };
}
