//! Which writes become one group.

use super::*;
use crate::ambient::SystemClock;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

/// Returns a writer whose groups are taken by the test.
fn writer(linger: Duration) -> Writer {
    let shared = Shared {
        shard: ShardId::first(1).next().unwrap(),
        path: PathBuf::new(),
        queue: Mutex::default(),
        arrived: Condvar::new(),
        done: Mutex::default(),
        clock: Arc::new(SystemClock::new()),
        linger,
    };
    Writer {
        shared: Arc::new(shared),
        thread: None,
    }
}

fn queue(writer: &Writer, awaited: bool) {
    writer.queue(Durability::Normal, awaited, |_| Ok(()), drop);
}

fn awaited(group: &[Queued]) -> Vec<bool> {
    group.iter().map(|queued| queued.awaited).collect()
}

#[test]
fn what_nobody_waits_for_is_written_with_the_first_that_somebody_does() {
    let writer = writer(NEVER);
    queue(&writer, false);
    queue(&writer, false);
    let group = std::thread::scope(|scope| {
        let taking = scope.spawn(|| writer.shared.next_group());
        queue(&writer, true);
        taking.join().unwrap()
    });
    assert_eq!(awaited(&group), [false, false, true]);
    // Nothing of the last group is counted any more: the next one waits too.
    assert_eq!(writer.shared.lock().awaited, 0);
    queue(&writer, false);
    let group = std::thread::scope(|scope| {
        let taking = scope.spawn(|| writer.shared.next_group());
        queue(&writer, true);
        taking.join().unwrap()
    });
    assert_eq!(awaited(&group), [false, true]);
}

#[test]
fn what_somebody_waits_for_waits_for_nobody() {
    let writer = writer(NEVER);
    queue(&writer, true);
    assert_eq!(awaited(&writer.shared.next_group()), [true]);
}

#[test]
fn what_nobody_waits_for_does_not_wait_for_ever() {
    let alone = writer(Duration::from_micros(1));
    queue(&alone, false);
    assert_eq!(awaited(&alone.shared.next_group()), [false]);
    let closed = writer(NEVER);
    queue(&closed, false);
    closed.shared.lock().closed = true;
    assert_eq!(awaited(&closed.shared.next_group()), [false]);
}
