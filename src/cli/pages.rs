//! `fairq completions` and `fairq man`: what the command line says of itself, for other programs.

use clap::{Args, CommandFactory as _, ValueEnum};

use super::{Cli, Context, Done};
use crate::error::{Context as _, Error, ErrorKind, Result};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq completions bash >~/.local/share/bash-completion/completions/fairq
  fairq completions zsh >~/.zfunc/_fairq
  fairq completions fish >~/.config/fish/completions/fairq.fish")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A shell that can complete.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print a page of the manual, as man reads it
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq man | man -l -
  fairq man enqueue >fairq-enqueue.1")]
pub(super) struct ManArgs {
    /// The command that it is about, such as enqueue or inspect plan [default: all of fairq]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn completions(args: &CompletionsArgs, context: &mut Context) -> Result<Done> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fairq", &mut text);
    context.screen.raw(&text)?;
    Ok(Done::Well)
}

pub(super) fn man(args: &ManArgs, context: &mut Context) -> Result<Done> {
    let mut command = Cli::command();
    command.build();
    let mut about = &command;
    for word in &args.command {
        about = about.find_subcommand(word).ok_or_else(|| {
            let name = args.command.join(" ");
            Error::new(ErrorKind::Usage, format!("there is no command {name:?}"))
                .hint("fairq --help lists the commands")
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(about.clone())
        .render(&mut text)
        .or_fail(ErrorKind::Internal, || "cannot write the page".to_owned())?;
    context.screen.raw(&text)?;
    Ok(Done::Well)
}
