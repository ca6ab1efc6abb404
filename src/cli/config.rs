//! `fairq config`: what is set, and by whom.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::render::table::Column;
use super::render::{Cell, Table};
use super::{Context, Done};
use crate::error::Result;

/// Show the configuration
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show every setting
    ///
    /// A flag wins over a variable of the environment, a variable over the file, the file over the
    /// default.
    #[command(before_long_help = "\
Examples:
  fairq config show
  fairq config show --origin                  and where each value comes from
  FAIRQ_WORKERS=3 fairq config show --json")]
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Listing {
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    key: String,
    value: String,
    origin: String,
}

pub(super) fn run(args: &ConfigArgs, context: &mut Context) -> Result<Done> {
    let ConfigCommand::Show { origin, json } = args.command;
    let settings: Vec<Setting> = context
        .settings
        .shown()
        .into_iter()
        .map(|shown| Setting {
            key: shown.key,
            value: shown.value,
            origin: shown.origin.to_string(),
        })
        .collect();
    if json {
        context.screen.json(&Listing { settings })?;
        return Ok(Done::Well);
    }
    let mut columns = vec![Column::words("KEY"), Column::text("VALUE")];
    if origin {
        columns.push(Column::text("ORIGIN"));
    }
    let mut table = Table::new(columns);
    for setting in settings {
        let mut cells = vec![Cell::new(setting.key), Cell::new(setting.value)];
        if origin {
            cells.push(Cell::new(setting.origin));
        }
        table.row(cells);
    }
    context.screen.table(&table)?;
    Ok(Done::Well)
}
