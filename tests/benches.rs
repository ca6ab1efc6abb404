//! The short form of the benches, so that they cannot rot. It says nothing of speed: the machine that
//! runs tests is loaded and the program is not optimized. What is judged is that every subject comes to
//! its end and finds something, and that nothing has collapsed by orders of magnitude. Ratios are held
//! by `bench … --guard`, on an optimized program.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What `cargo test` builds beside the binary.
fn bench() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_fairq")).parent().unwrap();
    let bench = beside.join("examples/bench");
    assert!(
        bench.exists(),
        "{} is not there: a whole `cargo test` builds it, and so does `cargo build --example bench`",
        bench.display()
    );
    bench
}

const SUBJECTS: [&str; 10] = [
    "spawn", "noop", "enqueue", "store", "plan", "depth", "wake", "idle", "look", "waste",
];

/// Returns the one figure whose description has all of these in it.
fn figure(found: &Value, parts: &[&str]) -> f64 {
    let figures = found["figures"].as_array().unwrap().iter();
    let fits = |figure: &&Value| {
        let what = figure["what"].as_str().unwrap();
        parts.iter().all(|part| what.contains(part))
    };
    let values: Vec<f64> = figures
        .filter(fits)
        .map(|figure| figure["value"].as_f64().unwrap())
        .collect();
    assert_eq!(values.len(), 1, "{parts:?}");
    values[0]
}

#[test]
fn the_short_form_measures_every_subject_and_nothing_has_collapsed() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let page = fs::read_to_string(page).unwrap();
    fs::write(at("page.md"), &page).unwrap();
    fs::create_dir(at("stores")).unwrap();
    let output = Command::new(bench())
        .args(["all", "--short", "--dir"])
        .arg(at("stores"))
        .arg("--save")
        .arg(at("found.json"))
        .arg("--write-page")
        .arg(at("page.md"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let found: Value = serde_json::from_slice(&fs::read(at("found.json")).unwrap()).unwrap();
    for subject in SUBJECTS {
        let of = |figure: &&Value| figure["subject"] == subject;
        let mut figures = found["figures"].as_array().unwrap().iter().filter(of);
        assert!(figures.next().is_some(), "{subject} has found nothing");
    }
    for figure in found["figures"].as_array().unwrap() {
        assert!(figure["value"].as_f64().unwrap().is_finite(), "{figure}");
    }
    // Orders of magnitude beside what is asked for: no load of the machine does that.
    let about = |parts: &[&str]| figure(&found, parts);
    assert!(about(&["8 workers: fairq to bare loop"]) > 0.01);
    assert!(about(&["one enqueue to open"]) < 50.0);
    assert!(about(&["queued to one with none"]) < 20.0);
    assert!(about(&["throughput with"]) > 0.05);
    assert!(about(&["above that"]) < 256.0);
    assert!(about(&["claims lost", "no-op", "1 runners"]) < 10.0);

    the_page_has_the_figures_and_is_the_same_otherwise(
        &page,
        &fs::read_to_string(at("page.md")).unwrap(),
    );
    let left = fs::read_dir(at("stores")).unwrap().count();
    assert_eq!(left, 0, "stores were left behind");
}

/// Returns a page without what is written into it, and that.
fn cut(page: &str) -> (String, Vec<String>) {
    let mut rest = page.to_owned();
    let mut inside = Vec::new();
    for mark in ["figures", "shares"] {
        let (before, below) = rest.split_once(&format!("<!-- {mark} -->\n")).unwrap();
        let (within, after) = below.split_once(&format!("<!-- /{mark} -->")).unwrap();
        inside.push(within.to_owned());
        rest = format!("{before}{after}");
    }
    (rest, inside)
}

fn the_page_has_the_figures_and_is_the_same_otherwise(before: &str, after: &str) {
    let (text, tables) = cut(after);
    assert_eq!(cut(before).0, text);
    for table in tables {
        assert!(table.matches("\n| ").count() > 9, "{table}");
    }
}
