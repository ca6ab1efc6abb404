//! Words in, words out: the only part that knows the command line and the terminal.
//!
//! Each command is a file: its arguments, what it asks of the core, and how the answer is shown.
//! Errors are printed in one place, which also chooses the exit code.

mod answers;
mod backup;
mod config;
mod doctor;
mod ears;
mod enqueue;
mod event_json;
mod eventlog;
mod events;
mod explain;
mod follow;
#[cfg(test)]
mod hostile;
mod init;
mod inspect;
mod kept;
mod lean;
mod logs;
mod pace;
mod pages;
pub mod render;
mod run;
mod runlog;
mod select;
mod show;
mod stats;
mod status;
mod steer;
mod step_json;
pub mod time;
mod wait;
pub mod words;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};

use self::render::Screen;
use self::time::Zone;
use crate::ambient::{Clock, SystemClock};
use crate::config::{Durability, Flags, Knob, Placement, Settings, Surroundings};
use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::{self, Mode, NewStore, SqliteStore};

const EXIT_CODES: &str = "\
Exit codes:
  0    done; for wait: all steps succeeded
  1    a step did not succeed, or something failed
  2    wrong usage
  3    no such step, or nothing matched
  4    enqueue --unique-fail met a step that was there already
  70   a bug of fairq
  75   the store is busy or cannot be reached: try again
  78   wrong configuration
  124  wait --timeout ran out
  else the step's own code, 128+n for a signal (of one step: wait, enqueue --wait, logs --exit-code)";

/// A durable job queue for one machine: strict bands, fair keys, shell commands as steps.
#[derive(Debug, Parser)]
#[command(
    name = "fairq",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = EXIT_CODES,
    before_long_help = "\
Examples:
  fairq enqueue 'make -j8 | tee log'          put in a shell line
  fairq enqueue -k alice -- convert a.png b.jpg   an exact argv, for alice
  fairq run --workers 4 --drain               run what is due, then stop
  fairq status                                what is where
  fairq logs a17                              what a step wrote"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command has.
#[derive(Debug, Args)]
struct Global {
    /// The store's directory [default: the nearest .fairq upwards, else the user's data directory]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    store: Option<PathBuf>,
    /// The configuration file
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    config: Option<PathBuf>,
    /// Coloured output: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", help_heading = "Everywhere")]
    color: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
    #[command(visible_aliases = lean::ALIASES)]
    Enqueue(Box<enqueue::EnqueueArgs>),
    #[command(visible_alias = "work")]
    Run(run::RunArgs),
    #[command(visible_aliases = ["ls", "list"])]
    Status(status::StatusArgs),
    #[command(visible_alias = "info")]
    Show(show::ShowArgs),
    #[command(visible_aliases = ["log", "cat"])]
    Logs(logs::LogsArgs),
    Wait(wait::WaitArgs),
    #[command(visible_alias = "why")]
    Explain(explain::ExplainArgs),
    Cancel(steer::cancel::CancelArgs),
    Kill(steer::kill::KillArgs),
    Retry(steer::moves::RetryArgs),
    Hold(steer::moves::HoldArgs),
    Release(steer::moves::ReleaseArgs),
    Edit(Box<steer::edit::EditArgs>),
    Pause(steer::pause::PauseArgs),
    Resume(steer::pause::ResumeArgs),
    Limit(steer::limit::LimitArgs),
    Workers(steer::workers::WorkersArgs),
    Clean(steer::clean::CleanArgs),
    Doctor(doctor::DoctorArgs),
    Backup(backup::BackupArgs),
    Stats(stats::StatsArgs),
    Events(events::EventsArgs),
    Inspect(inspect::InspectArgs),
    Config(config::ConfigArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
}

/// What every command works with.
struct Context {
    settings: Settings,
    around: Surroundings,
    screen: Screen,
    clock: Arc<dyn Clock>,
    zone: Zone,
}

impl Context {
    /// Opens the store, and makes it if there is none.
    fn store(&mut self, mode: Mode) -> Result<SqliteStore> {
        let store = SqliteStore::open_or_create(
            &self.settings.store,
            self.new_store(),
            mode,
            self.durability(),
            &self.clock,
        )?;
        self.warn_if_loose();
        Ok(store)
    }

    /// Opens the store to read from it; `None` if there is none yet.
    fn existing_store(&mut self) -> Result<Option<SqliteStore>> {
        let store = SqliteStore::open(
            &self.settings.store,
            Mode::Visit,
            self.durability(),
            &self.clock,
        )?;
        if store.is_some() {
            self.warn_if_loose();
        }
        Ok(store)
    }

    /// Opens the store in which a step is to be found.
    fn store_with_steps(&mut self) -> Result<SqliteStore> {
        let root = self.settings.store.clone();
        self.existing_store()?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no store at {}", root.display()),
            )
            .hint("enqueue something first, or name the store with --store")
        })
    }

    fn new_store(&self) -> NewStore {
        NewStore {
            shards: self.settings.shards(),
            placement: match self.settings.placement {
                Placement::Key => crate::store::placement::Placement::Key,
                Placement::Spread => crate::store::placement::Placement::Spread,
            },
        }
    }

    const fn durability(&self) -> sqlite::Durability {
        match self.settings.durability {
            Durability::Normal => sqlite::Durability::Normal,
            Durability::Full => sqlite::Durability::Full,
        }
    }

    fn warn_if_loose(&mut self) {
        if let Some(warning) = sqlite::looseness(&self.settings.store) {
            self.screen
                .talk(&format!("warning: {}", render::text::shown(warning)));
        }
    }
}

/// How a command went, when nothing failed.
#[derive(Debug)]
enum Done {
    /// As it should.
    Well,
    /// With this exit code.
    Code(u8),
}

impl Done {
    /// Returns what this exit code means.
    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Well,
            code => Self::Code(code),
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let mut screen = Screen::of_process(
            crate::config::ColorChoice::Auto,
            &Surroundings::of_process(),
        );
        screen.error(
            &Error::new(
                ErrorKind::Internal,
                format!("fairq failed at {place}: this is a bug of fairq"),
            )
            .hint("nothing that was acknowledged is lost; please report it with what you did"),
        );
    }));
    let code = catch_unwind(AssertUnwindSafe(|| run(std::env::args_os())));
    ExitCode::from(code.unwrap_or(ErrorKind::Internal.exit_code()))
}

fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let around = Surroundings::of_process();
    let cli = match lean::parse(args.into_iter().collect()) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, &around),
    };
    let mut flags = Flags {
        config: cli.global.config.clone(),
        store: cli.global.store.clone(),
        knobs: std::collections::BTreeMap::new(),
    };
    if let Some(color) = &cli.global.color {
        flags.knobs.insert(Knob::Color, color.clone());
    }
    cli.command.knobs(&mut flags);
    let settings = match Settings::load(&flags, &around) {
        Ok(settings) => settings,
        Err(error) => {
            Screen::of_process(crate::config::ColorChoice::Auto, &around).error(&error);
            return error.kind().exit_code();
        }
    };
    let mut context = Context {
        screen: Screen::of_process(settings.color, &around),
        settings,
        around,
        clock: Arc::new(SystemClock::new()),
        zone: Zone::of_process(),
    };
    let done = cli.command.run(&mut context).and_then(|done| {
        context.screen.flush()?;
        Ok(done)
    });
    match done {
        Ok(Done::Well) => 0,
        Ok(Done::Code(code)) => code,
        Err(error) => {
            context.screen.error(&error);
            error.kind().exit_code()
        }
    }
}

/// Answers a command line that is none, or that asks for help.
fn refuse(error: &clap::Error, around: &Surroundings) -> u8 {
    use clap::error::ErrorKind as Kind;
    let asked_for = matches!(
        error.kind(),
        Kind::DisplayHelp | Kind::DisplayVersion | Kind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked_for {
        // Help goes to standard output where it was asked for, and to standard error where the command
        // is missing; where nobody reads, there is nothing to add.
        drop(error.print());
        return u8::try_from(error.exit_code()).unwrap_or(ErrorKind::Usage.exit_code());
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let what: Vec<&str> = first
        .trim_start_matches("error: ")
        .split_whitespace()
        .collect();
    let mut said = Error::new(ErrorKind::Usage, what.join(" "));
    // Several tips stand in one paragraph, each perhaps on several lines.
    for paragraph in paragraphs {
        for tip in paragraph.split("tip: ").skip(1) {
            let words: Vec<&str> = tip.split_whitespace().collect();
            said = said.hint(words.join(" "));
        }
    }
    said = said.hint("--help shows how it is used, with examples");
    Screen::of_process(crate::config::ColorChoice::Auto, around).error(&said);
    ErrorKind::Usage.exit_code()
}

impl Command {
    /// Enters those settings that the command's own flags give.
    fn knobs(&self, flags: &mut Flags) {
        let mut knob = |knob, value: Option<&String>| {
            if let Some(value) = value {
                flags.knobs.insert(knob, value.clone());
            }
        };
        match self {
            Self::Init(args) => {
                knob(Knob::Shards, args.shards.as_ref());
                knob(Knob::Placement, args.placement.as_ref());
            }
            Self::Run(args) => knob(Knob::Workers, args.workers.as_ref()),
            Self::Enqueue(_)
            | Self::Status(_)
            | Self::Show(_)
            | Self::Logs(_)
            | Self::Wait(_)
            | Self::Explain(_)
            | Self::Cancel(_)
            | Self::Kill(_)
            | Self::Retry(_)
            | Self::Hold(_)
            | Self::Release(_)
            | Self::Edit(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Limit(_)
            | Self::Workers(_)
            | Self::Clean(_)
            | Self::Doctor(_)
            | Self::Backup(_)
            | Self::Stats(_)
            | Self::Events(_)
            | Self::Inspect(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_) => {}
        }
    }

    fn run(&self, context: &mut Context) -> Result<Done> {
        match self {
            Self::Init(args) => init::run(args, context),
            Self::Enqueue(args) => enqueue::run(args, context),
            Self::Run(args) => run::run(args, context),
            Self::Status(args) => status::run(args, context),
            Self::Show(args) => show::run(args, context),
            Self::Logs(args) => logs::run(args, context),
            Self::Wait(args) => wait::run(args, context),
            Self::Explain(args) => explain::run(args, context),
            Self::Cancel(args) => steer::cancel::run(args, context),
            Self::Kill(args) => steer::kill::run(args, context),
            Self::Retry(args) => steer::moves::retry(args, context),
            Self::Hold(args) => steer::moves::hold(args, context),
            Self::Release(args) => steer::moves::release(args, context),
            Self::Edit(args) => steer::edit::run(args, context),
            Self::Pause(args) => steer::pause::pause(args, context),
            Self::Resume(args) => steer::pause::resume(args, context),
            Self::Limit(args) => steer::limit::run(args, context),
            Self::Workers(args) => steer::workers::run(args, context),
            Self::Clean(args) => steer::clean::run(args, context),
            Self::Doctor(args) => doctor::run(args, context),
            Self::Backup(args) => backup::run(args, context),
            Self::Stats(args) => stats::run(args, context),
            Self::Events(args) => events::run(args, context),
            Self::Inspect(args) => inspect::run(args, context),
            Self::Config(args) => config::run(args, context),
            Self::Completions(args) => pages::completions(args, context),
            Self::Man(args) => pages::man(args, context),
        }
    }
}
