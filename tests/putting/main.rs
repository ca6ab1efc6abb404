//! Putting steps in, by every way there is, and what comes of each option when they are run.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/page.rs"]
mod page;
#[path = "../conformance/seeds.rs"]
mod seeds;

mod flows;
mod following;
mod hostile;
mod kit;
mod many;
mod members;
mod once;
mod options;
mod pages;
mod serving;
mod size;
mod surroundings;
mod ties;
mod times;
