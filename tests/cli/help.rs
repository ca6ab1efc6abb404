//! Help is an answer; a command line that is none is an error.

use crate::common::Sandbox;

const COMMANDS: [&str; 22] = [
    "init",
    "enqueue",
    "run",
    "status",
    "show",
    "logs",
    "wait",
    "inspect",
    "config",
    "cancel",
    "kill",
    "retry",
    "hold",
    "release",
    "edit",
    "pause",
    "resume",
    "limit",
    "workers",
    "clean",
    "completions",
    "man",
];

#[test]
fn help_is_data_and_a_success() {
    let sandbox = Sandbox::new();
    let mut asked: Vec<Vec<&str>> = vec![vec!["-h"], vec!["--help"], vec!["help"]];
    for command in COMMANDS {
        asked.extend([
            vec![command, "-h"],
            vec![command, "--help"],
            vec!["help", command],
        ]);
    }
    asked.extend([vec!["inspect", "plan", "-h"], vec!["config", "show", "-h"]]);
    for args in asked {
        let ran = sandbox.fairq(&args).expect(0);
        assert!(ran.text().contains("Usage: fairq"), "{args:?}");
        assert_eq!(ran.err, "", "{args:?}");
        assert!(!ran.out.contains(&0x1b), "{args:?}");
    }
    assert!(!sandbox.store().exists());
}

#[test]
fn the_overview_names_every_command_and_the_long_help_begins_with_examples() {
    let sandbox = Sandbox::new();
    let overview = sandbox.fairq(["-h"]).text();
    for command in COMMANDS {
        let named = |line: &str| line.split_whitespace().next() == Some(command);
        assert!(overview.lines().any(named), "{command}:\n{overview}");
        let long = sandbox.fairq([command, "--help"]).text();
        let has_subcommands = ["inspect", "config", "limit"].contains(&command);
        assert!(long.starts_with("Examples:") || has_subcommands, "{long}");
    }
}

#[test]
fn aliases_are_the_command_itself() {
    let sandbox = Sandbox::new();
    for (command, aliases) in [
        ("enqueue", &["add", "submit"][..]),
        ("run", &["work"]),
        ("status", &["ls", "list"]),
        ("show", &["info"]),
        ("logs", &["log", "cat"]),
    ] {
        let help = sandbox.fairq(["help", command]).expect(0).out;
        for alias in aliases {
            assert_eq!(
                sandbox.fairq(["help", alias]).expect(0).out,
                help,
                "{alias}"
            );
        }
    }
}

#[test]
fn the_version_is_one_line() {
    let version = format!("fairq {}\n", env!("CARGO_PKG_VERSION"));
    for flag in ["-V", "--version"] {
        assert_eq!(Sandbox::new().fairq([flag]).expect(0).text(), version);
    }
}

#[test]
fn what_is_no_command_line_is_an_error_and_makes_no_store() {
    let sandbox = Sandbox::new();
    for args in [
        &[][..],
        &["--nope"],
        &["nope"],
        &["help", "nope"],
        &["--nope", "status"],
        &["status", "--nope"],
        &["run", "a1"],
        &["enqueue"],
        &["enqueue", "--"],
        &["enqueue", "--nope", "true"],
        &["enqueue", "-b"],
        &["enqueue", "-x", "true"],
        &["enqueue", "--shell", "true", "more"],
        &["enqueue", "--from", "-", "true"],
        &["enqueue", "-0", "true"],
        &["enqueue", "--hold", "--delay", "1s", "true"],
        &["show"],
        &["show", "a1", "a2"],
        &["logs", "--stdout", "--stderr", "a1"],
        &["inspect"],
        &["config"],
    ] {
        let ran = sandbox.fairq(args).expect(2);
        assert_eq!(ran.text(), "", "{args:?}");
        assert_ne!(ran.err, "", "{args:?}");
        assert!(!ran.err.contains('\x1b'), "{args:?}");
    }
    assert!(!sandbox.store().exists());
}

#[test]
fn a_mistyped_word_is_named_with_what_may_have_been_meant() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        (&["statsu"][..], "'statsu'"),
        (&["statsu"], "'status'"),
        (&["enqueue", "--bnd", "3", "true"], "'--bnd'"),
        (&["enqueue", "--bnd", "3", "true"], "'--band'"),
        (&["status", "--state", "don"], "--state"),
        (&["show", "17"], "\"17\""),
    ] {
        let ran = sandbox.fairq(args).expect(2);
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    }
}
