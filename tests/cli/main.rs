//! What scripts rely on: words, streams, exit codes, JSON, and what is left on disk.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod help;
mod injection;
mod output;
mod refusals;
mod steps;
mod store;
mod unstarted;
mod waiting;
