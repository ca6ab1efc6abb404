//! Which writes become one group, and who writes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::{self, ThreadId};

use super::*;
use crate::ambient::SystemClock;
use crate::store::placement::Placement;
use crate::store::sqlite::layout::Manifest;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

/// Returns a writer without a thread: its groups are taken by the test.
fn writer(linger: Duration) -> Writer {
    let shard = ShardId::first(1).next().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let connection = Connection::open_in_memory().unwrap();
    let nothing = Manifest {
        format: 1,
        store: String::new(),
        shards: 0,
        placement: Placement::Key,
    };
    let shared = Shared {
        shard,
        queue: Mutex::default(),
        arrived: Condvar::new(),
        desk: Mutex::new(Desk::new(connection, shard, PathBuf::new(), clock)),
        checkpointer: Checkpointer::start(Path::new(""), &nothing).unwrap(),
        done: Mutex::default(),
        linger,
    };
    Writer {
        shared: Arc::new(shared),
        thread: None,
    }
}

fn queue(writer: &Writer, haste: Haste) -> Next {
    writer.queue(Durability::Normal, haste, |_| Ok(()), drop)
}

fn hastes(group: &[Queued]) -> Vec<Haste> {
    group.iter().map(|queued| queued.haste).collect()
}

fn wait_and_take(writer: &Writer) -> Vec<Haste> {
    assert!(writer.shared.wait());
    hastes(&writer.shared.next_group())
}

fn write(writer: &Writer) -> ThreadId {
    let here = writer.write(Durability::Normal, |_| Ok(thread::current().id()));
    here.unwrap()
}

#[test]
fn what_nobody_waits_for_is_written_with_the_first_that_somebody_does() {
    let writer = writer(NEVER);
    // Nothing of the last group is counted any more: the second one waits too.
    for _ in 0..2 {
        queue(&writer, Haste::Soon);
        queue(&writer, Haste::Later);
        let group = thread::scope(|scope| {
            let taking = scope.spawn(|| wait_and_take(&writer));
            queue(&writer, Haste::Awaited);
            writer.shared.arrived.notify_one();
            taking.join().unwrap()
        });
        assert_eq!(group, [Haste::Soon, Haste::Later, Haste::Awaited]);
        let queue = writer.shared.lock();
        assert_eq!((queue.awaited, queue.later), (0, 0));
    }
}

#[test]
fn what_somebody_waits_for_waits_for_nobody() {
    let writer = writer(NEVER);
    queue(&writer, Haste::Awaited);
    assert_eq!(wait_and_take(&writer), [Haste::Awaited]);
}

#[test]
fn what_nobody_waits_for_does_not_wait_for_ever() {
    let alone = writer(Duration::from_micros(1));
    queue(&alone, Haste::Soon);
    assert_eq!(wait_and_take(&alone), [Haste::Soon]);
    let closed = writer(NEVER);
    queue(&closed, Haste::Later);
    closed.shared.lock().closed = true;
    assert_eq!(wait_and_take(&closed), [Haste::Later]);
    assert!(!closed.shared.wait());
}

#[test]
fn whoever_waits_writes_himself_and_takes_along_what_was_left_for_later() {
    let writer = writer(NEVER);
    let (told, hear) = mpsc::channel();
    writer.leave(
        Durability::Normal,
        |_| Ok(()),
        move |outcome| {
            told.send((thread::current().id(), outcome.is_ok()))
                .unwrap();
        },
    );
    assert_eq!(hear.try_recv(), Err(mpsc::TryRecvError::Empty));
    let us = thread::current().id();
    assert_eq!(write(&writer), us);
    assert_eq!(hear.try_recv(), Ok((us, true)));
    let stats = writer.stats();
    assert_eq!((stats.groups, stats.writes, stats.queued), (1, 2, 0));
}

#[test]
fn what_was_left_for_later_is_written_when_nothing_follows() {
    let writer = writer(Duration::from_micros(1));
    let (told, hear) = mpsc::channel();
    writer.hurry();
    writer.leave(
        Durability::Normal,
        |_| Ok(()),
        move |outcome| told.send(outcome.is_ok()).unwrap(),
    );
    assert_eq!(hear.try_recv(), Err(mpsc::TryRecvError::Empty));
    // Another process may have the file for long: whoever hurries is not kept by it.
    let desk = writer.shared.desk();
    writer.hurry();
    assert_eq!(hear.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert!(writer.shared.wait());
    writer.shared.work(desk);
    assert_eq!(hear.try_recv(), Ok(true));
    assert_eq!(writer.stats().groups, 1);
}

#[test]
fn the_thread_is_woken_for_what_somebody_found_no_place_to_write() {
    let writer = writer(NEVER);
    let desk = writer.shared.desk();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| write(&writer))).collect();
        while writer.stats().queued < 2 {
            thread::yield_now();
        }
        // As the thread does, when whoever wrote has left.
        assert!(writer.shared.wait());
        writer.shared.work(desk);
        let us = thread::current().id();
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), us);
        }
    });
    // Two waited at once: for a while it is the thread that is woken, once for all of them.
    assert_eq!(queue(&writer, Haste::Awaited), Next::Wake);
    assert_eq!(queue(&writer, Haste::Awaited), Next::Leave);
    assert_eq!(writer.shared.next_group().len(), 2);
    for _ in 0..CROWDED {
        assert_eq!(queue(&writer, Haste::Awaited), Next::Wake);
        assert_eq!(writer.shared.next_group().len(), 1);
    }
    assert_eq!(queue(&writer, Haste::Awaited), Next::Lead);
}

#[test]
fn a_write_that_panics_leaves_the_shard_writable() {
    let writer = writer(NEVER);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        writer.write(Durability::Normal, |tx| -> rusqlite::Result<()> {
            tx.connection().execute_batch("CREATE TABLE half(x)")?;
            panic!("as a fault of ours would")
        })
    }));
    assert!(panicked.is_err());
    let tables = writer.write(Durability::Normal, |tx| {
        let sql = "SELECT count(*) FROM sqlite_schema";
        tx.connection()
            .query_row(sql, [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(tables.unwrap(), 0);
}
