//! fairq (library for its own binary and tests; it promises nothing to others).

pub mod ambient;
pub mod crew;
pub mod error;
pub mod event;
pub mod model;
mod sync;

pub mod config;
pub mod store;

pub mod tally;

pub mod planner;

pub mod cache;

pub mod refiller;

pub mod completion;
pub mod presence;

pub mod cli;
