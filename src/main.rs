//! Process entry.
fn main() {}
