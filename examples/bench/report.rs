//! The figures, as a table, as JSON, and as a part of the page about speed.

use std::fs;
use std::path::{Path, PathBuf};

use fairq::ambient::{Clock as _, SystemClock};
use serde::Serialize;

use super::kit::Any;

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn words(self, unit: &str) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {}", number(least, unit)),
            Self::AtMost(most) => format!("≤ {}", number(most, unit)),
        }
    }
}

/// A ratio that is so many times off its goal is no matter of the machine.
const COLLAPSED: f64 = 2.5;

/// One thing that was measured. The unit `×` marks a ratio of two that were measured in this run.
#[derive(Debug, Serialize)]
struct Figure {
    subject: String,
    what: String,
    value: f64,
    unit: &'static str,
    goal: Option<Goal>,
    met: Option<bool>,
}

/// One line of where time goes.
#[derive(Debug, Serialize)]
struct Share {
    of: String,
    part: String,
    what: String,
    times_a_step: f64,
    micros_each: f64,
    micros_a_step: f64,
}

#[derive(Debug, Serialize)]
struct Machine {
    cpu: String,
    cpus: usize,
    memory_mib: u64,
    kernel: String,
    load_before: f64,
    load_after: f64,
    dir: PathBuf,
    file_system: String,
}

/// All that a run has found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: u32,
    date: String,
    version: &'static str,
    commit: Option<String>,
    short: bool,
    optimized: bool,
    command: String,
    machine: Machine,
    figures: Vec<Figure>,
    shares: Vec<Share>,
    #[serde(skip)]
    subject: String,
}

impl Report {
    pub(crate) fn new(dir: &Path, short: bool) -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        Self {
            schema: 1,
            date: today(),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            short,
            optimized: !cfg!(debug_assertions),
            command: format!("cargo run --release --example bench -- {}", args.join(" ")),
            machine: machine(dir),
            figures: Vec::new(),
            shares: Vec::new(),
            subject: String::new(),
        }
    }

    /// Says of what the next figures are.
    pub(crate) fn begin(&mut self, subject: &str) {
        subject.clone_into(&mut self.subject);
    }

    /// Takes note that all is measured.
    pub(crate) fn end(&mut self) {
        self.machine.load_after = load();
    }

    /// Adds what was measured and is only to be known.
    pub(crate) fn tell(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.add(what.into(), value, unit, None);
    }

    /// Adds what was measured and has to reach something.
    pub(crate) fn judge(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        goal: Goal,
    ) {
        self.add(what.into(), value, unit, Some(goal));
    }

    fn add(&mut self, what: String, value: f64, unit: &'static str, goal: Option<Goal>) {
        self.figures.push(Figure {
            subject: self.subject.clone(),
            what,
            value,
            unit,
            goal,
            met: goal.map(|goal| goal.is_met(value)),
        });
    }

    /// Returns those ratios that are far off their goals: however loaded the machine is, both their sides
    /// were.
    pub(crate) fn collapsed(&self) -> Vec<String> {
        let is_far = |figure: &&Figure| {
            figure.unit == "×"
                && match figure.goal {
                    Some(Goal::AtLeast(least)) => figure.value < least / COLLAPSED,
                    Some(Goal::AtMost(most)) => figure.value > most * COLLAPSED,
                    None => false,
                }
        };
        let told = |figure: &Figure| {
            let goal = figure.goal.map_or_else(String::new, |goal| goal.words("×"));
            format!("{}: {:.3}, goal {goal}", figure.what, figure.value)
        };
        self.figures.iter().filter(is_far).map(told).collect()
    }

    /// Adds where time goes: how often a part comes in a step, and how long it takes each time.
    pub(crate) fn share(
        &mut self,
        of: &str,
        (part, what): (&str, &str),
        times_a_step: f64,
        micros_each: f64,
    ) {
        self.shares.push(Share {
            of: of.to_owned(),
            part: part.to_owned(),
            what: what.to_owned(),
            times_a_step,
            micros_each,
            micros_a_step: times_a_step * micros_each,
        });
    }

    /// Returns everything as text.
    pub(crate) fn text(&self) -> String {
        let mut text = self.heading();
        text += "\n\n";
        text += &self.figures_table();
        if !self.shares.is_empty() {
            text += "\n";
            text += &self.shares_tables();
        }
        text
    }

    fn heading(&self) -> String {
        let machine = &self.machine;
        let commit = self.commit.as_deref().unwrap_or("no commit");
        let mut text = format!(
            "{}, fairq {} ({commit}), {} x {}, {} GiB, Linux {}, {}; load {} before, {} after.",
            self.date,
            self.version,
            machine.cpus,
            machine.cpu,
            machine.memory_mib / 1024,
            machine.kernel,
            machine.file_system,
            machine.load_before,
            machine.load_after,
        );
        if self.short || !self.optimized {
            text += " **A short or unoptimized run: these figures mean nothing.**";
        }
        text
    }

    fn figures_table(&self) -> String {
        let rows = self.figures.iter().map(|figure| {
            let goal = figure.goal.map(|goal| goal.words(figure.unit));
            let met = match figure.met {
                Some(true) => "met",
                Some(false) => "**short**",
                None => "",
            };
            [
                figure.subject.clone(),
                figure.what.clone(),
                goal.unwrap_or_default(),
                number(figure.value, figure.unit),
                met.to_owned(),
            ]
        });
        table(["subject", "what", "goal", "figure", ""], rows)
    }

    fn shares_tables(&self) -> String {
        let mut text = String::new();
        let mut of: Vec<&str> = self.shares.iter().map(|share| &*share.of).collect();
        of.dedup();
        for of in of {
            let rows = self
                .shares
                .iter()
                .filter(|share| share.of == of)
                .map(|share| {
                    [
                        share.part.clone(),
                        share.what.clone(),
                        format!("{:.2}", share.times_a_step),
                        format!("{:.1}", share.micros_each),
                        format!("{:.1}", share.micros_a_step),
                    ]
                });
            let head = ["part", "what", "times a step", "µs each", "µs a step"];
            text += &format!("{of}:\n\n{}\n", table(head, rows));
        }
        text
    }

    /// Writes everything as JSON; returns where.
    pub(crate) fn save(&self, to: Option<&Path>) -> Any<PathBuf> {
        let named = root()
            .join("benches/results")
            .join(format!("{}.json", self.date));
        let to = to.map_or(named, Path::to_owned);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&to, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(to)
    }

    /// Puts everything between the marks of the page.
    pub(crate) fn write_page(&self, page: Option<&Path>) -> Any<()> {
        let page = page.map_or_else(|| root().join("docs/performance.md"), Path::to_owned);
        let mut text = fs::read_to_string(&page)?;
        for (mark, table) in [
            (
                "figures",
                format!("{}\n\n{}", self.heading(), self.figures_table()),
            ),
            ("shares", self.shares_tables()),
        ] {
            text = replace(&text, mark, &table)
                .ok_or_else(|| format!("{} has no place for the {mark}", page.display()))?;
        }
        fs::write(page, text)?;
        Ok(())
    }
}

/// Puts something between two marks, in the place of what is there.
fn replace(text: &str, mark: &str, with: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", with.trim_end()))
}

/// Returns a table that is read as text and as Markdown.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.collect();
    let mut wide = head.map(|cell| cell.chars().count());
    for row in &rows {
        for (wide, cell) in wide.iter_mut().zip(row) {
            *wide = (*wide).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(&wide);
        let padded = padded.map(|(cell, wide)| format!("{cell:<wide$}"));
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rule = wide.map(|wide| "-".repeat(wide));
    let mut text = line(&head.map(str::to_owned));
    text += &line(&rule);
    rows.iter().for_each(|row| text += &line(row));
    text
}

/// Returns a number as people read it.
fn number(value: f64, unit: &str) -> String {
    let size = value.abs();
    let text = if size >= 1_000.0 {
        let digits = format!("{value:.0}");
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped
    } else {
        let digits = match size {
            100.0.. => 0,
            10.0.. => 1,
            _ => 3,
        };
        let text = format!("{value:.digits$}");
        if digits == 0 {
            text
        } else {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    };
    format!("{text} {unit}")
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Returns the date in UTC, as in `2026-01-31`.
fn today() -> String {
    let mut now = SystemClock::new().now().to_string();
    now.truncate(10);
    now
}

fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    git.current_dir(root())
        .args(["describe", "--always", "--dirty"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// Returns the value of the first line of a file of `/proc` that begins with this.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn machine(dir: &Path) -> Machine {
    let memory = field("/proc/meminfo", "MemTotal");
    let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "CPU".to_owned()),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        memory_mib: kib.unwrap_or(0) / 1024,
        kernel: kernel.trim().to_owned(),
        load_before: load(),
        load_after: f64::NAN,
        dir: dir.to_owned(),
        file_system: file_system(dir).unwrap_or_else(|| "?".to_owned()),
    }
}

/// Returns the kind of the file system that a directory is on.
fn file_system(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let of = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        dir.starts_with(at).then_some((at.len(), kind))
    });
    of.max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind.to_owned())
}
