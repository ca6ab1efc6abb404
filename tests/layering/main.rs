//! Holds the table of `src/lib.rs` to be true: who may import whom, and which crates live where.
//!
//! A module that reaches sideways or upwards is how a house of rooms becomes one room; the compiler
//! does not mind, so this does.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use source::{Named, module_of, paths};

/// Neighbours on one level that may be imported all the same.
const ALSO: &[(&str, &str)] = &[("ambient", "model")];

/// Crates, and the only files or folders of `src/` that may name them.
const CRATES: &[(&str, &[&str])] = &[
    ("rusqlite", &["store/sqlite/"]),
    ("r2d2", &["store/sqlite/"]),
    ("r2d2_sqlite", &["store/sqlite/"]),
    ("scheduled_thread_pool", &["store/sqlite/"]),
    ("clap", &["cli/"]),
    ("clap_complete", &["cli/pages.rs"]),
    ("clap_mangen", &["cli/pages.rs"]),
    ("comfy_table", &["cli/"]),
    ("ctrlc", &["cli/run.rs"]),
    ("loom", &["sync.rs"]),
];

/// Modules that decide and do nothing else: time and chance are given to them.
const PURE: &[&str] = &[
    "tally.rs",
    "planner/",
    "cache/",
    "stats/",
    "completion/verdict.rs",
    "engine/drain.rs",
];

/// What the pure ones may not name.
const EFFECTS: &[&str] = &[
    "crate::ambient::Clock",
    "crate::ambient::SystemClock",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// A file of `src/`, by its path below it, and the paths that it names.
struct Source {
    file: String,
    module: Vec<String>,
    named: Vec<Named>,
}

impl Source {
    fn new(file: &str, text: &str) -> Self {
        let module = module_of(Path::new(file));
        let named = paths(&module, text);
        Self {
            file: file.to_owned(),
            module,
            named,
        }
    }

    fn is_below(&self, place: &str) -> bool {
        self.file == place || place.ends_with('/') && self.file.starts_with(place)
    }

    fn wrong(&self, named: &Named, why: &str) -> String {
        format!(
            "src/{}:{}: {} {why}",
            self.file,
            named.line,
            named.path.join("::")
        )
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources() -> Vec<Source> {
    fn gather(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    gather(&src(), &mut files);
    files.sort();
    files
        .iter()
        .map(|path| {
            let file = path.strip_prefix(src()).unwrap().to_str().unwrap();
            Source::new(file, &fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Reads the table of `lib.rs`: the level of each module.
fn levels() -> BTreeMap<String, u32> {
    let text = fs::read_to_string(src().join("lib.rs")).unwrap();
    let mut levels = BTreeMap::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let mut cells = row.split(" | ");
        let Some(Ok(level)) = cells.next().map(str::parse) else {
            continue;
        };
        for name in cells.next().unwrap().split('`').skip(1).step_by(2) {
            let before = levels.insert(name.to_owned(), level);
            assert_eq!(before, None, "{name} stands twice in the table of lib.rs");
        }
    }
    levels
}

/// Names each edge of a file that should not exist.
fn wrong_edges(levels: &BTreeMap<String, u32>, source: &Source) -> Vec<String> {
    let Some(from) = source.module.first() else {
        // The root only declares; `main.rs` names the library's command line.
        return Vec::new();
    };
    let inside = source.named.iter().filter(|named| named.path[0] == "crate");
    inside
        .filter_map(|named| {
            let to = named.path.get(1)?;
            if from == to {
                return None;
            }
            let backend = to == "store"
                && matches!(
                    named.path.get(2).map(String::as_str),
                    Some("sqlite" | "memory")
                );
            if backend && from != "cli" {
                return Some(source.wrong(named, "is a backend: only cli chooses one"));
            }
            let (Some(own), Some(other)) = (levels.get(from), levels.get(to)) else {
                return Some(source.wrong(named, "is not in the table of lib.rs"));
            };
            let fine = other < own || ALSO.contains(&(from, to));
            (!fine).then(|| {
                let why = format!("is on level {other}, and {from} on level {own}");
                source.wrong(named, &why)
            })
        })
        .collect()
}

/// Names each crate that a file should not know.
fn wrong_crates(source: &Source) -> Vec<String> {
    let wrong = source.named.iter().filter_map(|named| {
        let (_, places) = CRATES.iter().find(|(name, _)| *name == named.path[0])?;
        let fine = places.iter().any(|place| source.is_below(place));
        (!fine).then(|| source.wrong(named, &format!("belongs to {}", places.join(", "))))
    });
    wrong.collect()
}

/// Names each effect of a file that should have none.
fn effects(source: &Source) -> Vec<String> {
    if !PURE.iter().any(|place| source.is_below(place)) {
        return Vec::new();
    }
    let wrong = source.named.iter().filter(|named| {
        let path = named.path.join("::") + "::";
        EFFECTS
            .iter()
            .any(|effect| path.starts_with(&format!("{effect}::")))
    });
    wrong
        .map(|named| source.wrong(named, "is an effect in a pure module"))
        .collect()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_module_stands_in_the_table_and_the_table_has_no_other() {
    let mut modules: Vec<String> = sources()
        .into_iter()
        .filter_map(|source| source.module.into_iter().next())
        .collect();
    modules.dedup();
    modules.sort();
    modules.dedup();
    assert_eq!(levels().into_keys().collect::<Vec<_>>(), modules);
}

#[test]
fn no_module_imports_its_like_or_its_betters() {
    let levels = levels();
    let wrong: Vec<String> = sources()
        .iter()
        .flat_map(|source| wrong_edges(&levels, source))
        .collect();
    assert_none(&wrong);
}

#[test]
fn each_crate_stays_where_it_belongs() {
    assert_none(&sources().iter().flat_map(wrong_crates).collect::<Vec<_>>());
}

#[test]
fn what_decides_has_no_effects() {
    assert_none(&sources().iter().flat_map(effects).collect::<Vec<_>>());
}

/// The checks above pass on an empty list as well; here each is seen to find what it is for.
#[test]
fn an_edge_that_should_not_exist_is_named() {
    let levels = levels();
    let edges = |file, text| wrong_edges(&levels, &Source::new(file, text));
    assert_eq!(
        edges(
            "crew/worker.rs",
            "use crate::{\n    model::Band,\n    refiller::{Pace, Wake},\n};"
        ),
        [
            "src/crew/worker.rs:3: crate::refiller::Pace is on level 3, and crew on level 3",
            "src/crew/worker.rs:3: crate::refiller::Wake is on level 3, and crew on level 3",
        ]
    );
    assert_eq!(
        edges("model/id.rs", "fn f() { super::super::cli::main(); }"),
        ["src/model/id.rs:1: crate::cli::main is on level 5, and model on level 0"]
    );
    assert_eq!(
        edges("engine/mod.rs", "use crate::store::{Store, sqlite::Mode};"),
        ["src/engine/mod.rs:1: crate::store::sqlite::Mode is a backend: only cli chooses one"]
    );
    assert!(edges("cli/mod.rs", "use crate::store::sqlite::Mode;").is_empty());

    let crates = |file, text| wrong_crates(&Source::new(file, text)).len();
    assert_eq!(
        crates("cli/status.rs", "use rusqlite::Row; use clap::Args;"),
        1
    );
    assert_eq!(
        crates("cli/mod.rs", "fn f() { ctrlc::set_handler(|| ()); }"),
        1
    );
    assert_eq!(
        crates("cli/run.rs", "fn f() { ctrlc::set_handler(|| ()); }"),
        0
    );

    let effects = |file, text| effects(&Source::new(file, text)).len();
    let text = "use std::{fs::File, time::{Duration, Instant}}; use crate::ambient::*;";
    assert_eq!(effects("planner/lane.rs", text), 2);
    assert_eq!(effects("crew/child.rs", text), 0);
}
