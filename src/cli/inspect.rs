//! `fairq inspect`: what the scheduler sees and would do.

use clap::{Args, Subcommand};

use super::Context;
use super::Done;
use crate::error::Result;

mod cache;
mod plan;

/// Look at plans and caches
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(Debug, Subcommand)]
enum InspectCommand {
    Plan(plan::PlanArgs),
    Cache(cache::CacheArgs),
}

pub(super) fn run(args: &InspectArgs, context: &mut Context) -> Result<Done> {
    match &args.command {
        InspectCommand::Plan(args) => plan::run(args, context),
        InspectCommand::Cache(args) => cache::run(args, context),
    }
}
