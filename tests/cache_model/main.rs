//! What the candidate cache promises, by example, against a naive model, and with threads.
//!
//! The promises are numbered I1 to I36; a test that holds one to account carries its number. Those
//! about structure (I1 to I5, I7, I13 to I15, I17, I19, I22) are checked after every command of
//! every random sequence, because there the whole view of the cache must equal the model's.

#![cfg(not(loom))]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails as the test does"
)]

mod kit;
mod naive;
mod random;
mod rules;
mod threads;
