//! Keeping a store: looking it over, copying it, living with other versions, with full and read-only
//! disks, with many at once, and with what grows.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of tests are tests"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/page.rs"]
mod page;

mod backup;
mod crowd;
mod doctor;
mod full;
mod growth;
mod kit;
mod the_page;
mod versions;
