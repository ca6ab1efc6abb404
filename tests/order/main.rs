//! Who is run when, seen from outside: each step writes a line into a file as it starts, and the
//! file is the order.
//!
//! `FAIRQ_TEST_STEPS` sets the size of the large tests.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod bands;
mod crash;
mod fairness;
mod sharing;
mod stopping;
mod tree;

/// Returns the size of a large test.
fn steps(usual: usize) -> usize {
    std::env::var("FAIRQ_TEST_STEPS").map_or(usual, |steps| steps.parse().unwrap())
}
