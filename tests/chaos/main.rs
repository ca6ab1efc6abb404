//! What holds when processes are killed without a chance to tidy up, at any moment: each test kills
//! the real binary, and looks at what is left.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each target needs a part of it")]
mod common;

mod audit;
mod chance;
mod storm;
