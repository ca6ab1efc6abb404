//! Steering steps with the binary: what was asked for happens, to all that was meant and nothing
//! else, and is said so.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/page.rs"]
mod page;

mod cancel;
mod clean;
mod depend;
mod edit;
mod kit;
mod limit;
mod live;
mod pause;
mod retry;
mod tangle;
mod the_page;
mod watch;
