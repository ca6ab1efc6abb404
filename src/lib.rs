//! fairq (library for its own binary and tests; it promises nothing to others).

pub mod ambient;
pub mod crew;
pub mod error;
pub mod model;
pub mod tally;
