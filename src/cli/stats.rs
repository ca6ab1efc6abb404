//! `fairq stats`: how much, how long, and whether it was fair.

use clap::Args;
use serde::Serialize;

use super::render::table::Column;
use super::render::{Cell, Screen, Table, number};
use super::{Context, Done, words};
use crate::error::Result;
use crate::model::{Band, FairnessKey, ShardId, Span, Timestamp};
use crate::stats::{self, Dispatch, KeyShare, Quantiles, Summary, Waiting, Window};
use crate::store::sqlite::SqliteStore;
use crate::store::{Read as _, Store as _};

/// Where nobody says from when on.
const DAY: Span = Span::from_millis(86_400_000);
/// How wide bars are.
const BAR: usize = 12;

/// Show throughput, waits, run times and fairness
///
/// From the recorded tries whose claims lie in the window. For each key: the part of its band's
/// starts that it got while it had something due, beside the part that its weight promised, and how
/// far chance alone would take it from there in 19 of 20 cases if each start were drawn by lot
/// (`pick = "lottery"`). By stride, the default, a key stays within a few starts of its promise.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq stats
  fairq stats --since 1h
  fairq stats --last 1000 --json | jq '.fairness'")]
pub(super) struct StatsArgs {
    /// From when on: a duration until now, or a time [default: 24h]
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// The last N tries instead
    #[arg(long, value_name = "N", conflicts_with = "since")]
    last: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Stats<'s> {
    from: String,
    until: String,
    counts: stats::Counts,
    /// Steps that ended a second, over the whole window.
    per_second: f64,
    /// The same from the first claim to the last end.
    busy_per_second: Option<f64>,
    busy_seconds: Option<f64>,
    busiest_minute: Option<Minute>,
    groups: Vec<GroupJson<'s>>,
    fairness: Vec<ShareJson<'s>>,
}

#[derive(Serialize)]
struct Minute {
    from: String,
    steps: u64,
    per_second: f64,
}

#[derive(Serialize)]
struct GroupJson<'s> {
    band: Band,
    /// Null for all of the band.
    key: Option<&'s FairnessKey>,
    counts: stats::Counts,
    wait_ms: Option<Quantiles>,
    run_ms: Option<Quantiles>,
}

#[derive(Serialize)]
struct ShareJson<'s> {
    band: Band,
    key: &'s FairnessKey,
    /// The band's starts while the key had something due.
    slots: u64,
    taken: u64,
    promised: f64,
    observed_share: f64,
    promised_share: f64,
    difference: f64,
    /// How far from the promised share chance takes a lottery in 19 of 20 cases.
    chance: f64,
    longest_wait_slots: u64,
    longest_wait_ms: Span,
}

/// What was read, and for which time.
struct Record {
    from: Timestamp,
    until: Timestamp,
    summary: Summary,
    shares: Vec<KeyShare>,
}

pub(super) fn run(args: &StatsArgs, context: &mut Context) -> Result<Done> {
    let now = context.clock.now();
    let window = match (&args.since, args.last) {
        (_, Some(count)) => Window::Last(count),
        (Some(since), None) => Window::Since(words::since(since, &context.zone, now)?),
        (None, None) => Window::Since(now - DAY),
    };
    let store = context.store_with_steps()?;
    let record = read(&store, window, now)?;
    if args.json {
        context.screen.json(&json(&record))?;
    } else {
        print(context, &record)?;
    }
    Ok(Done::Well)
}

fn read(store: &SqliteStore, window: Window, until: Timestamp) -> Result<Record> {
    let mut dispatches: Vec<Dispatch> = Vec::new();
    let mut waiting = Vec::new();
    for shard in ShardId::first(store.shard_count()) {
        // What is due is read first: a step that is claimed in between then stands in both, and
        // its key is taken to have waited a moment longer. The other way round it would be missed.
        for (band, _) in store.counts(shard)?.ready {
            let due = store.tally_at(shard, band)?.into_iter();
            waiting.extend(due.map(|tally| Waiting {
                band,
                key: tally.key,
                weight: tally.weight,
                since: tally.since,
            }));
        }
        store.dispatches(shard, window, &mut |one| dispatches.push(one))?;
    }
    stats::in_order(&mut dispatches);
    let from = match window {
        Window::Since(from) => from,
        Window::Last(count) => {
            dispatches.drain(..dispatches.len().saturating_sub(count));
            dispatches.first().map_or(until, |one| one.claimed)
        }
    };
    Ok(Record {
        summary: Summary::of(&dispatches),
        shares: stats::fairness(&dispatches, &waiting, from, until),
        from,
        until,
    })
}

/// Returns how many a second; `None` for no time at all.
fn rate(count: u64, from: Timestamp, until: Timestamp) -> Option<f64> {
    let seconds = seconds(until.since(from));
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = count as f64 / seconds;
    (seconds > 0.0).then_some(rate)
}

fn seconds(span: Span) -> f64 {
    std::time::Duration::from(span).as_secs_f64()
}

fn minute(busiest: stats::Busiest) -> Minute {
    let until = busiest.from + Span::from_millis(60_000);
    Minute {
        from: busiest.from.to_string(),
        steps: busiest.steps,
        per_second: rate(busiest.steps, busiest.from, until).unwrap_or(0.0),
    }
}

fn json(record: &Record) -> Stats<'_> {
    let summary = &record.summary;
    let done = summary.counts.done();
    let busy = |(first, last): (Timestamp, Timestamp)| last.since(first);
    let groups = summary.groups.iter().map(|group| GroupJson {
        band: group.band,
        key: group.key.as_ref(),
        counts: group.counts,
        wait_ms: group.waited,
        run_ms: group.ran,
    });
    let fairness = record.shares.iter().map(|share| ShareJson {
        band: share.band,
        key: &share.key,
        slots: share.slots,
        taken: share.taken,
        promised: share.promised,
        observed_share: share.observed_share(),
        promised_share: share.promised_share(),
        difference: share.observed_share() - share.promised_share(),
        chance: share.of_slots(share.chance()),
        longest_wait_slots: share.longest_slots,
        longest_wait_ms: share.longest,
    });
    Stats {
        from: record.from.to_string(),
        until: record.until.to_string(),
        counts: summary.counts,
        per_second: rate(done, record.from, record.until).unwrap_or(0.0),
        busy_per_second: summary
            .busy
            .and_then(|(first, last)| rate(done, first, last)),
        busy_seconds: summary.busy.map(|both| seconds(busy(both))),
        busiest_minute: summary.busiest.map(minute),
        groups: groups.collect(),
        fairness: fairness.collect(),
    }
}

fn print(context: &mut Context, record: &Record) -> Result<()> {
    let summary = &record.summary;
    let counts = summary.counts;
    let zone = &context.zone;
    let mut lines = vec![format!(
        "window   {} to {} ({})",
        zone.show(record.from),
        zone.show(record.until),
        record.until.since(record.from)
    )];
    let mut parts = vec![
        format!("{} succeeded", number::count(counts.succeeded)),
        format!("{} failed", number::count(counts.failed)),
    ];
    for (count, what) in [
        (counts.running, "running"),
        (counts.interrupted, "put back"),
        (counts.lost, "lost with their runners"),
    ] {
        if count > 0 {
            parts.push(format!("{} {what}", number::count(count)));
        }
    }
    lines.push(format!("tries    {}", parts.join(", ")));
    let shown = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), number::rate);
    if let Some((first, last)) = summary.busy {
        lines.push(format!(
            "rate     {} over the window, {} in the {} from the first claim to the last end",
            shown(rate(counts.done(), record.from, record.until)),
            shown(rate(counts.done(), first, last)),
            last.since(first)
        ));
    }
    if let Some(busiest) = summary.busiest {
        lines.push(format!(
            "busiest  {} in the minute from {}, {}",
            number::many(busiest.steps, "step"),
            zone.show(busiest.from),
            number::rate(minute(busiest).per_second)
        ));
    }
    let screen = &mut context.screen;
    for line in lines {
        screen.line(&line)?;
    }
    if !summary.groups.is_empty() {
        times(screen, summary)?;
    }
    if !record.shares.is_empty() {
        screen.line("")?;
        screen.line(
            "fairness: a key's part of its band's starts while it had something due. A lottery keeps",
        )?;
        screen.line(
            "within CHANCE of the promise in 19 of 20 cases, stride within a few starts (SURPLUS).",
        )?;
        screen.table(&share_table(&record.shares))?;
    }
    Ok(())
}

/// Writes how long steps waited and ran, the key `*` standing for a whole band.
fn times(screen: &mut Screen, summary: &Summary) -> Result<()> {
    let head = |first: &str| {
        let mut columns = vec![Column::numbers("BAND"), Column::words("KEY")];
        columns.extend(
            first
                .split(' ')
                .chain(["P50", "P90", "P99", "MAX"])
                .map(Column::numbers),
        );
        Table::new(columns)
    };
    let points = |of: Option<Quantiles>| {
        of.map_or_else(
            || vec![String::new(); 4],
            |of| {
                [of.p50, of.p90, of.p99, of.max]
                    .map(|span| span.to_string())
                    .to_vec()
            },
        )
    };
    let (mut waited, mut ran) = (head("TRIES"), head("SUCCEEDED FAILED"));
    for group in &summary.groups {
        let key = group.key.as_ref().map_or("*", FairnessKey::as_str);
        let name = [group.band.to_string(), key.to_owned()];
        let counts = group.counts;
        let tries = counts.done() + counts.running + counts.interrupted + counts.lost;
        let how_many = [number::count(tries)];
        waited.row(
            name.iter()
                .cloned()
                .chain(how_many)
                .chain(points(group.waited)),
        );
        let ends = [
            number::count(counts.succeeded),
            number::count(counts.failed),
        ];
        ran.row(name.iter().cloned().chain(ends).chain(points(group.ran)));
    }
    screen.line("\nwaited, from due to claimed")?;
    screen.table(&waited)?;
    screen.line("\nran")?;
    screen.table(&ran)
}

fn share_table(shares: &[KeyShare]) -> Table {
    let mut table = Table::new([
        Column::numbers("BAND"),
        Column::words("KEY"),
        Column::numbers("OF"),
        Column::numbers("TOOK"),
        Column::numbers("SHARE"),
        Column::words(""),
        Column::numbers("PROMISED"),
        Column::words(""),
        Column::numbers("SURPLUS"),
        Column::numbers("CHANCE"),
        Column::numbers("LONGEST WAIT"),
        Column::numbers("STARTS"),
    ]);
    for share in shares {
        table.row([
            Cell::new(share.band.to_string()),
            Cell::new(share.key.as_str()),
            Cell::new(number::count(share.slots)),
            Cell::new(number::count(share.taken)),
            Cell::new(number::percent(share.observed_share())),
            Cell::new(number::bar(share.observed_share(), BAR)),
            Cell::new(number::percent(share.promised_share())),
            Cell::new(number::bar(share.promised_share(), BAR)),
            Cell::new(format!("{:+.1}", share.surplus())),
            Cell::new(format!("±{:.1}", share.chance())),
            Cell::new(share.longest.to_string()),
            Cell::new(number::count(share.longest_slots)),
        ]);
    }
    table
}
