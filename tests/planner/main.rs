//! The planner's promises, over random worlds.
//!
//! `FAIRQ_TEST_SEED` is the first world's seed, `FAIRQ_TEST_WORLDS` the number of worlds; a failure
//! prints the seed of its world. The numbers in the comments are those of the list of invariants
//! that the planner was designed by.

#[cfg(test)]
mod blind;
mod concurrency;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod statistics;
#[cfg(test)]
mod stride;
#[cfg(test)]
mod world;
