//! What a worker needs of whatever runs commands.

use std::sync::Arc;

use crate::model::{Captured, Claim, Ending, Timestamp};

/// Runs steps. The real one starts processes; tests and benches have others.
pub trait Executor: Send + Sync {
    /// Prepares a place for one worker: what it keeps for life. Costs nothing before the first step.
    fn seat(&self, worker: u32) -> Box<dyn Seat>;
}

/// One worker's place.
pub trait Seat {
    /// Runs one claimed step to its end. `started` is told of the process as soon as there is one.
    fn run(&mut self, claim: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran;
}

/// What running a step came to.
#[derive(Debug)]
pub enum Ran {
    /// It is over.
    Ended(Outcome),
    /// It could not be started for want of something that may come back (processes, descriptors,
    /// memory): to be tried again, no fault of the step.
    NotNow(String),
}

/// A try that is over.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// When its process was started; `None` if there never was one.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// What it wrote to its standard output.
    pub stdout: Captured,
    /// What it wrote to its standard error.
    pub stderr: Captured,
}

/// How hard a process is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// With the signal of the step's policy: it may clean up, also if it was stopped.
    Ask,
    /// At once.
    Kill,
}

/// A running step's process, as others may reach it. Nothing here waits for anything.
pub trait Process: Send + Sync {
    /// Signals the whole group; `false` if it has ended already.
    fn end(&self, force: Force) -> bool;

    /// Sends one signal, by its number, to the whole group; `false` if it has ended already, or if
    /// there is no such signal.
    fn signal(&self, number: i32) -> bool;

    /// Cuts off what the step has written beyond what is kept of it.
    fn trim(&self);

    /// Returns the number of the main process.
    fn pid(&self) -> u32;
}
