//! The least that a durable enqueue could be: a process that opens a database, commits one row so that
//! it survives a power cut, and closes.

use std::path::Path;

use rusqlite::Connection;

use super::kit::Any;

/// Makes the database.
pub(crate) fn make(at: &Path) -> Any<()> {
    let connection = Connection::open(at)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch("CREATE TABLE steps(id INTEGER PRIMARY KEY, command BLOB) STRICT")?;
    Ok(())
}

/// Is that process.
pub(crate) fn main() -> Any<()> {
    let at = std::env::args_os().nth(1).ok_or("no database")?;
    let connection = Connection::open(at)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute("INSERT INTO steps(command) VALUES (zeroblob(300))", [])?;
    Ok(())
}
