//! The threads that run steps, and how many of them may do so at once.

mod permit;

pub use permit::{Gate, GateView, Permit};
