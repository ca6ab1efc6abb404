//! The life of a step as its user sees it: how long it may run, how often it is tried, how it is
//! ended, and what a runner that drains waits for.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each target needs a part of it")]
mod common;

mod cancel;
mod deadly;
mod draining;
mod given;
mod retries;
mod scarce;
mod timeouts;
