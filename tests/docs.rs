//! The README and the examples, run as they are written.
//!
//! A page that lies costs a newcomer an hour and us a user. What can be run is run here with the
//! binary under test; what is listed is compared with what the binary says of itself.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FAIRQ: &str = env!("CARGO_BIN_EXE_fairq");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Returns a command that knows nothing of the store and the settings of whoever runs the tests.
fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("FAIRQ_") || name.starts_with("XDG_") {
            command.env_remove(&*name);
        }
    }
    let path = std::env::join_paths(
        [Path::new(FAIRQ).parent().unwrap().to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    command
        .env("FAIRQ", FAIRQ)
        .env("PATH", path)
        .env("HOME", home)
        .env("TMPDIR", home)
        .current_dir(home);
    command
}

fn fairq(args: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    told(&command(FAIRQ, home.path()).args(args).output().unwrap())
}

/// Returns what was written to standard output by something that must have gone well.
fn told(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out
}

fn example(name: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let script = root().join("examples").join(name);
    let out = told(&command("sh", home.path()).arg(script).output().unwrap());
    let left: Vec<PathBuf> = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{name} left {left:?}");
    out
}

/// Returns the cells of the table that stands below a heading, without its head.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with('|'));
    rows.take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().replace('`', "")).collect()
        })
        .collect()
}

/// Returns the first words of the lines of a section of a help text.
fn words(help: &str, section: &str) -> BTreeSet<String> {
    let (_, below) = help.split_once(&format!("\n{section}:\n")).unwrap();
    below
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn quickstart_finds_the_shares_as_promised() {
    let out = example("quickstart.sh");
    assert!(out.ends_with("as promised\n"), "{out}");
}

/// A judge that always nods is none: by the draw of lots shares hold on average only.
#[test]
fn quickstart_sees_shares_that_are_off() {
    let home = tempfile::tempdir().unwrap();
    let output = command("sh", home.path())
        .arg(root().join("examples/quickstart.sh"))
        .env("FAIRQ_PICK", "lottery")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{out}");
    assert!(out.contains("FAILED: the shares are off"), "{out}");
}

/// Returns how many files there are below a directory, however deep.
fn files_below(dir: impl AsRef<Path>) -> usize {
    let entries = fs::read_dir(root().join(dir)).unwrap();
    let count = |path: PathBuf| {
        if path.is_dir() { files_below(path) } else { 1 }
    };
    entries.map(|entry| count(entry.unwrap().path())).sum()
}

#[test]
fn checksums_are_those_of_cksum() {
    let out = example("checksums.sh");
    assert_eq!(out.lines().count(), files_below("examples"), "{out}");
    let alone = Command::new("cksum")
        .arg("./config.toml")
        .current_dir(root().join("examples"))
        .output()
        .unwrap();
    assert!(out.contains(&told(&alone)), "{out}");
}

#[test]
fn a_script_gets_output_and_exit_code_of_its_steps() {
    let out = example("serve.sh");
    assert!(out.contains(" counted 2\n"), "{out}");
    assert!(out.contains(" exited with 2\n"), "{out}");
    assert!(out.ends_with("the runner has gone\n"), "{out}");
}

#[test]
fn a_killed_runners_step_is_run_again() {
    let out = example("crash.sh");
    assert!(out.contains("runs: the first try\n"), "{out}");
    assert!(out.contains("\nonce more; "), "{out}");
}

#[test]
fn a_plan_follows_weights_and_bands() {
    let out = example("tenants.sh");
    let slots = |key: &str| {
        let of_key = |line: &&str| line.split_whitespace().nth(1) == Some(key);
        let numbered = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        out.lines().filter(numbered).filter(of_key).count()
    };
    assert_eq!(
        (slots("alice"), slots("bob"), slots("carol")),
        (2, 6, 1),
        "{out}"
    );
}

#[test]
fn the_example_flow_makes_its_report() {
    let home = tempfile::tempdir().unwrap();
    let flow = root().join("examples/flow.toml");
    let flow = flow.to_str().unwrap();
    let run = |args: &[&str]| told(&command(FAIRQ, home.path()).args(args).output().unwrap());
    let ids = run(&["enqueue", "--file", flow]);
    let names = page("examples/flow.toml").matches("\nname = ").count();
    assert_eq!(ids.lines().count(), names);
    run(&["run", "--drain", "--quiet"]);
    let report = fs::read_to_string(home.path().join("report.txt")).unwrap();
    let words: Vec<&str> = report.split_whitespace().collect();
    assert_eq!(words[..4], ["apple", "apple", "fig", "pear"]);
    assert_eq!(words[4..6], ["2", "apple"]);
    assert!(
        !home.path().join("words.txt").exists(),
        "nobody has tidied up"
    );
}

#[test]
fn every_example_is_run_by_a_test_and_small() {
    let tests = page("tests/docs.rs");
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let run = tests.contains(&format!("example({name:?})"));
        let read = ["config.toml", "flow.toml"].contains(&name.as_str());
        // The benches are a program and no example to learn from; `tests/benches.rs` runs them.
        if name == "bench" {
            continue;
        }
        assert!(run || read, "{name} is run by no test");
        let lines = page(&format!("examples/{name}")).lines().count();
        assert!(lines < 100, "{name} has {lines} lines");
    }
}

#[test]
fn the_session_of_the_readme_prints_what_it_says() {
    let readme = page("README.md");
    let (_, below) = readme.split_once("<!-- session -->\n```sh\n").unwrap();
    let (session, _) = below.split_once("```").unwrap();
    let home = tempfile::tempdir().unwrap();
    let output = command("sh", home.path())
        .args(["-e", "-c", session])
        .output();
    let out = told(&output.unwrap());
    let mut lines = out.lines();
    for promised in session.lines().filter_map(|line| line.strip_prefix("#> ")) {
        assert!(
            lines.any(|line| line == promised),
            "{promised:?} is not in, or not in this order:\n{out}"
        );
    }
}

/// Returns the keys that `config show` lists.
fn knobs() -> BTreeSet<String> {
    let out = fairq(&["config", "show"]);
    let keys = out
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    keys.map(str::to_owned).collect()
}

#[test]
fn the_example_configuration_names_every_knob_with_its_default() {
    let text = page("examples/config.toml");
    let path = root().join("examples/config.toml");
    let path = path.to_str().unwrap();
    let default = fairq(&["config", "show"]);
    let shown = fairq(&["--config", path, "config", "show"]);
    for line in default.lines().filter(|line| !line.starts_with("store\t")) {
        assert!(
            shown.lines().any(|other| other == line),
            "{line} in {shown}"
        );
    }
    // The settings behind a bare # must be right as well.
    let all: String = text
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '))
                .unwrap_or(line)
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let home = tempfile::tempdir().unwrap();
    let whole = home.path().join("config.toml");
    fs::write(&whole, &all).unwrap();
    let origins = fairq(&[
        "--config",
        whole.to_str().unwrap(),
        "config",
        "show",
        "--origin",
    ]);
    for line in origins.lines().skip(1) {
        assert!(line.contains("config.toml:"), "not in the file: {line}");
    }
}

#[test]
fn the_readme_lists_every_knob() {
    let mut listed: BTreeSet<String> = table(&page("README.md"), "Configuration")
        .into_iter()
        .map(|cells| cells[0].clone())
        .collect();
    assert!(listed.remove("[bands]"));
    assert_eq!(listed, knobs());
}

#[test]
fn the_readme_lists_every_exit_code() {
    let help = fairq(&["--help"]);
    let (_, below) = help.split_once("\nExit codes:\n").unwrap();
    let codes: Vec<Vec<String>> = below
        .lines()
        .map(|line| {
            let (code, meaning) = line.trim().split_once(' ').unwrap();
            vec![code.to_owned(), meaning.trim().to_owned()]
        })
        .collect();
    assert_eq!(table(&page("README.md"), "Exit codes"), codes);
}

/// Returns every command that does something by itself, such as `run` and `inspect plan`.
fn commands() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for command in words(&fairq(&["--help"]), "Commands") {
        let help = fairq(&[&command, "--help"]);
        if help.contains("\nCommands:\n") {
            let below = words(&help, "Commands");
            commands.extend(below.into_iter().map(|word| format!("{command} {word}")));
        } else {
            commands.insert(command);
        }
    }
    commands
}

#[test]
fn the_readme_lists_every_command_with_an_example_of_it() {
    let rows = table(&page("README.md"), "Commands");
    let listed: BTreeSet<String> = rows.iter().map(|cells| cells[0].clone()).collect();
    assert_eq!(listed, commands());
    for cells in &rows {
        let (command, example) = (&cells[0], &cells[1]);
        let rest = example.strip_prefix(&format!("fairq {command} "));
        let rest = rest.unwrap_or_else(|| panic!("{example:?} is no example of {command}"));
        let mut args: Vec<&str> = command.split(' ').collect();
        args.push("--help");
        let help = fairq(&args);
        for option in rest.split(' ').take_while(|word| *word != "--") {
            assert!(
                !option.starts_with('-') || help.contains(option),
                "{command} has no {option}"
            );
        }
    }
}

#[test]
fn the_links_of_the_readme_lead_somewhere() {
    let readme = page("README.md");
    let links = readme.split("](").skip(1);
    let links: Vec<&str> = links.filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 4, "{links:?}");
    for link in links {
        assert!(root().join(link).exists(), "{link}");
    }
}
