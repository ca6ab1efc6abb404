//! Running the steps.
//!
//! What runs one command: [`Capture`] holds what it writes, [`Child`] is its
//! process group, [`Leftovers`] ends what it leaves behind, and the [`Journal`] says who it was to
//! whoever comes after us.

pub mod capture;
pub mod child;
pub mod journal;
pub mod leftovers;
pub mod process;
mod program;
mod refusal;

pub use capture::{Capture, Stream};
pub use child::{Child, Ended, StartError};
pub use journal::{Journal, SlotState, Testament};
pub use leftovers::{Leftover, Leftovers};
pub use process::{Birth, BootId, ProcessIdentity};
