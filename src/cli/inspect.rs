//! `fairq inspect`: what the scheduler sees and would do.

use clap::{Args, Subcommand};

use super::Context;
use super::Done;
use crate::error::Result;

mod cache;
#[cfg(test)]
mod hostile;
mod live;
pub(super) mod picture;
mod plan;
mod plan_tables;
mod pool;
mod runners;
mod shards;

/// Look at plans, caches, shards, pools and runners
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(Debug, Subcommand)]
enum InspectCommand {
    Plan(plan::PlanArgs),
    Cache(cache::CacheArgs),
    Shards(shards::ShardsArgs),
    Pool(pool::PoolArgs),
    Runners(runners::RunnersArgs),
}

pub(super) fn run(args: &InspectArgs, context: &mut Context) -> Result<Done> {
    match &args.command {
        InspectCommand::Plan(args) => plan::run(args, context),
        InspectCommand::Cache(args) => cache::run(args, context),
        InspectCommand::Shards(args) => shards::run(args, context),
        InspectCommand::Pool(args) => pool::run(args, context),
        InspectCommand::Runners(args) => runners::run(args, context),
    }
}
