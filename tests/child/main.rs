//! Running one command: what it gets, what is seen of it, and what it leaves.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

mod support;

mod crew;
mod endings;
mod leftovers;
mod limits;
mod orphans;
mod output;
mod refusals;
mod seat;
mod ways;
mod what_it_gets;
