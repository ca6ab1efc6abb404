//! Words in, words out: the only part that knows the command line and the terminal.

pub mod render;
pub mod time;
pub mod words;
