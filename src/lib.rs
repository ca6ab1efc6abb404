//! fairq (library for its own binary and tests; it promises nothing to others).

pub mod ambient;
pub mod cli;
pub mod config;
pub mod error;
pub mod event;
pub mod model;
mod sync;

pub mod store;

pub mod tally;

pub mod cache;

pub mod completion;

pub mod presence;
