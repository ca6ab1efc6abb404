//! Pooled reading connections of one shard.
//!
//! r2d2 keeps the connections; this type adds what a pooled resource must also have: a bound that can
//! be changed while it is used, a `try_get` that makes a connection where there is room, an error at
//! once where a connection cannot be made, and the knowledge of how often and how long somebody had
//! to wait. A permit is taken first and a connection second, so that whoever holds a permit never
//! waits for r2d2: it is built at the ceiling and makes its connections outside every lock.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use r2d2::ManageConnection;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;
use serde::Serialize;

use super::conn::{self, Use};
use super::layout::Manifest;
use crate::ambient::Clock;
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::ShardId;

/// The most connections that a pool can ever be resized to.
const CEILING: u32 = 16;
/// After so long unused a connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How long r2d2 may take to make a connection for somebody who holds a permit.
const MAKE: Duration = Duration::from_secs(25);

/// What a pool has done and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolStats {
    /// How many may be lent at once.
    pub capacity: u32,
    /// How many are open.
    pub open: u32,
    /// How many are lent.
    pub lent: u32,
    /// How many callers wait now.
    pub waiting: u32,
    /// How many callers have had to wait.
    pub waits: u64,
    /// How long they waited, in microseconds, all together.
    pub wait_micros: u64,
    /// How many connections were made.
    pub made: u64,
    /// How often making one failed.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Permits {
    capacity: u32,
    lent: u32,
    waiting: u32,
    waits: u64,
    wait: Duration,
}

/// The manager of `r2d2_sqlite`, which also counts, and lets no broken connection back into the pool.
#[derive(Debug)]
struct Maker {
    manager: SqliteConnectionManager,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    made: AtomicU64,
    failed: AtomicU64,
}

impl ManageConnection for Maker {
    type Connection = Connection;
    type Error = rusqlite::Error;

    fn connect(&self) -> rusqlite::Result<Connection> {
        let made = self.manager.connect();
        let count = if made.is_ok() {
            &self.counts.made
        } else {
            &self.counts.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        made
    }

    fn is_valid(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        self.manager.is_valid(connection)
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        // A transaction left open by a panic would pin the log for ever.
        !connection.is_autocommit()
    }
}

/// The reading connections of one shard.
#[derive(Debug)]
pub(super) struct ReadPool {
    shard: ShardId,
    path: PathBuf,
    manifest: Manifest,
    pool: OnceLock<r2d2::Pool<Maker>>,
    counts: Arc<Counts>,
    permits: Mutex<Permits>,
    freed: Condvar,
    clock: Arc<dyn Clock>,
}

/// A lent connection; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Lent<'p> {
    // Dropped first: the connection is back in r2d2 before its permit is free.
    connection: Option<r2d2::PooledConnection<Maker>>,
    pool: &'p ReadPool,
}

impl Deref for Lent<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("a lent connection is there until it is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.pool.lock().lent -= 1;
        self.pool.freed.notify_one();
    }
}

impl ReadPool {
    /// Returns an empty pool; nothing is opened before the first use.
    pub(super) fn new(
        path: &Path,
        shard: ShardId,
        manifest: &Manifest,
        capacity: u32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            shard,
            path: path.to_owned(),
            manifest: manifest.clone(),
            pool: OnceLock::new(),
            counts: Arc::default(),
            permits: Mutex::new(Permits {
                capacity: capacity.clamp(1, CEILING),
                ..Permits::default()
            }),
            freed: Condvar::new(),
            clock,
        }
    }

    /// Lends a connection; waits while all are lent.
    pub(super) fn get(&self) -> Result<Lent<'_>> {
        if let Some(lent) = self.try_get()? {
            return Ok(lent);
        }
        let began = self.clock.monotonic();
        let mut permits = self.lock();
        permits.waiting += 1;
        permits.waits += 1;
        while permits.lent >= permits.capacity {
            permits = self
                .freed
                .wait(permits)
                .unwrap_or_else(PoisonError::into_inner);
        }
        permits.waiting -= 1;
        permits.wait += self.clock.monotonic().saturating_sub(began);
        permits.lent += 1;
        drop(permits);
        self.lend()
    }

    /// Lends a connection if one may be lent now, making it if need be.
    pub(super) fn try_get(&self) -> Result<Option<Lent<'_>>> {
        let mut permits = self.lock();
        if permits.lent >= permits.capacity {
            return Ok(None);
        }
        permits.lent += 1;
        drop(permits);
        self.lend().map(Some)
    }

    /// Changes how many may be lent at once; those that are lent stay so.
    pub(super) fn resize(&self, capacity: u32) {
        self.lock().capacity = capacity.clamp(1, CEILING);
        self.freed.notify_all();
    }

    /// Returns what it has done and is doing.
    pub(super) fn stats(&self) -> PoolStats {
        let open = self.pool.get().map_or(0, |pool| pool.state().connections);
        let permits = self.lock();
        PoolStats {
            capacity: permits.capacity,
            open,
            lent: permits.lent,
            waiting: permits.waiting,
            waits: permits.waits,
            wait_micros: u64::try_from(permits.wait.as_micros()).unwrap_or(u64::MAX),
            made: self.counts.made.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
        }
    }

    /// Fetches a connection for a permit that is already taken.
    fn lend(&self) -> Result<Lent<'_>> {
        // Built first: dropping it gives the permit back whatever happens below.
        let mut lent = Lent {
            connection: None,
            pool: self,
        };
        let pool = match self.pool.get() {
            Some(pool) => pool,
            None => {
                // r2d2 tries again in the background and tells of a bad path only after its
                // time-out; one connection made here tells at once.
                drop(conn::open(
                    &self.path,
                    self.shard,
                    &self.manifest,
                    Use::Read,
                )?);
                self.pool.get_or_init(|| self.build())
            }
        };
        let connection = pool.get().or_fail(ErrorKind::Unavailable, || {
            format!("shard {} could not be opened for reading", self.shard)
        })?;
        lent.connection = Some(connection);
        Ok(lent)
    }

    fn build(&self) -> r2d2::Pool<Maker> {
        let manager = SqliteConnectionManager::file(&self.path)
            .with_flags(conn::FLAGS)
            .with_init(|connection| conn::set_up(connection, Use::Read));
        r2d2::Pool::builder()
            .max_size(CEILING)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .idle_timeout(Some(IDLE))
            .max_lifetime(None)
            .connection_timeout(MAKE)
            .thread_pool(makers())
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .build_unchecked(Maker {
                manager,
                counts: Arc::clone(&self.counts),
            })
    }

    fn lock(&self) -> MutexGuard<'_, Permits> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one thread that makes connections for all pools of the process.
fn makers() -> Arc<scheduled_thread_pool::ScheduledThreadPool> {
    static MAKERS: OnceLock<Arc<scheduled_thread_pool::ScheduledThreadPool>> = OnceLock::new();
    Arc::clone(MAKERS.get_or_init(|| {
        Arc::new(
            scheduled_thread_pool::ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("pool-maker")
                .build(),
        )
    }))
}
