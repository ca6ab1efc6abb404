//! The planner's promises, over random worlds.
//!
//! `FAIRQ_TEST_SEED` is the first world's seed, `FAIRQ_TEST_WORLDS` the number of worlds; a failure
//! prints the seed of its world. The numbers in the comments are those of the list of invariants
//! that the planner was designed by.

mod concurrency;
mod machine;
mod properties;
mod statistics;
mod stride;
mod world;
