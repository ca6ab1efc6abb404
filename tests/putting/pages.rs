//! The pages about putting steps in, run as they are written; and what programs are told of them.

use crate::common::Sandbox;
use crate::page::{parts, run};

#[track_caller]
fn holds(page: &str, least: usize) {
    let sandbox = Sandbox::new();
    let parts = parts(page, "run");
    assert!(parts.len() >= least, "{page} has {} parts", parts.len());
    for part in &parts {
        run(&sandbox, part);
    }
}

#[test]
fn the_page_about_enqueue_prints_what_it_says() {
    holds("docs/enqueue.md", 9);
}

#[test]
fn the_page_about_flows_prints_what_it_says() {
    holds("docs/flows.md", 4);
}

#[test]
fn every_shell_is_told_every_command() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = sandbox.fairq(["completions", shell]).expect(0).text();
        for word in ["enqueue", "from-ndjson", "inspect", "completions"] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
    }
    sandbox.fairq(["completions", "tcsh"]).expect(2);
    let bash = "\"$FAIRQ\" completions bash >c && bash -n c";
    let mut shell = sandbox.program("sh");
    crate::common::Ran::of(shell.args(["-c", bash])).expect(0);
    assert!(!sandbox.store().exists());
}

#[test]
fn each_command_has_a_page_of_the_manual() {
    let sandbox = Sandbox::new();
    for (args, title) in [
        (&["man"][..], "fairq"),
        (&["man", "enqueue"], "fairq-enqueue"),
        (&["man", "inspect", "plan"], "fairq-inspect-plan"),
    ] {
        let text = sandbox.fairq(args).expect(0).text();
        assert!(text.contains(&format!(".TH {title} 1")), "{args:?}: {text}");
        assert!(text.contains(".SH SYNOPSIS"), "{args:?}");
    }
    let ran = sandbox.fairq(["man", "nothing"]).expect(2);
    assert!(ran.err.contains("nothing"), "{}", ran.err);
}
