//! What people and scripts get to see.
//!
//! [`Screen`] alone writes to standard output and standard error. Everything else makes text, and
//! text that users chose goes through [`text`] first, so that it can neither move the cursor nor
//! pretend to be a row of ours.

pub mod color;
pub mod number;
pub mod quote;
mod screen;
pub mod table;
pub mod text;

pub use color::{Paint, Tone};
pub use screen::Screen;
pub use table::{Cell, Table};
