//! What the kernel says of processes and threads.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::kit::Any;

/// How long the threads of a process have been on a processor, by their numbers, with their names.
pub(crate) type Spent = BTreeMap<u32, (String, Duration)>;

/// Returns what each thread of a process has spent so far; one that ends meanwhile is left out.
pub(crate) fn spent(pid: u32) -> Any<Spent> {
    let mut spent = Spent::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let dir = entry?.path();
        let number = dir.file_name().and_then(|name| name.to_str()?.parse().ok());
        let name = fs::read_to_string(dir.join("comm"));
        let times = fs::read_to_string(dir.join("schedstat"));
        if let (Some(number), Ok(name), Ok(times)) = (number, name, times) {
            let nanos = times.split(' ').next().and_then(|first| first.parse().ok());
            let nanos = Duration::from_nanos(nanos.unwrap_or_default());
            spent.insert(number, (name.trim().to_owned(), nanos));
        }
    }
    Ok(spent)
}

/// Returns what was spent between two looks, by kind of thread: `writer-3` is a `writer`.
pub(crate) fn between(before: &Spent, after: &Spent) -> BTreeMap<String, Duration> {
    let mut kinds = BTreeMap::new();
    for (number, (name, spent)) in after {
        let earlier = before
            .get(number)
            .map_or(Duration::ZERO, |(_, spent)| *spent);
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let kind = kind.trim_end_matches('-').to_owned();
        *kinds.entry(kind).or_default() += spent.saturating_sub(earlier);
    }
    kinds
}

/// Returns the most memory that a process has had at once, in MiB.
pub(crate) fn peak_mib(pid: u32) -> Any<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.trim().strip_suffix("kB"));
    let kib: f64 = kib.ok_or("no VmHWM")?.trim().parse()?;
    Ok(kib / 1024.0)
}
