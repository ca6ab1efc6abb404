//! Process entry.

use std::process::ExitCode;

fn main() -> ExitCode {
    fairq::cli::main()
}
