//! Where a world's steps rest: one store in memory for all, or one in a directory that each process
//! opens for itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fairq::ambient::Clock;
use fairq::model::ShardId;
use fairq::store::Store;
use fairq::store::memory::MemoryStore;
use fairq::store::placement::Placement;
use fairq::store::sqlite::{Durability, Finding, Look, Mode, NewStore, SqliteStore};

use super::spec::Spec;

/// The tables that every move of a step writes to.
const TABLES: [&str; 11] = [
    "steps", "ready", "delayed", "blocked", "limited", "held", "running", "done", "outbox",
    "places", "children",
];

pub(crate) struct Home {
    /// The store as nobody's process sees it: it never fails.
    pub(crate) raw: Arc<dyn Store>,
    disk: Option<Disk>,
}

struct Disk {
    store: Arc<SqliteStore>,
    _root: tempfile::TempDir,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Home {
    pub(crate) fn new(spec: &Spec, clock: &Arc<dyn Clock>) -> Self {
        if !spec.sqlite {
            let raw = Arc::new(MemoryStore::new(spec.shards, spec.placement));
            return Self { raw, disk: None };
        }
        let shm = Path::new("/dev/shm");
        let root = if shm.is_dir() {
            tempfile::tempdir_in(shm)
        } else {
            tempfile::tempdir()
        };
        let root = root.unwrap();
        let place = root.path().join("store");
        let new = NewStore {
            shards: spec.shards,
            placement: Placement::Key,
        };
        let visit = (Mode::Visit, Durability::Normal);
        let store = SqliteStore::open_or_create(&place, new, visit.0, visit.1, clock);
        let store = Arc::new(store.unwrap());
        Self {
            raw: Arc::clone(&store) as Arc<_>,
            disk: Some(Disk { store, _root: root }),
        }
    }

    /// Returns the store as a new runner's process opens it.
    pub(crate) fn of_a_runner(&self, clock: &Arc<dyn Clock>) -> Arc<dyn Store> {
        match &self.disk {
            None => Arc::clone(&self.raw),
            Some(disk) => {
                let store =
                    SqliteStore::open(disk.store.root(), Mode::Visit, Durability::Normal, clock);
                Arc::new(store.unwrap().unwrap())
            }
        }
    }

    /// Lets every write to a shard's steps fail, whatever larger errand it is a part of.
    pub(crate) fn block(&self, shard: ShardId) {
        self.on_file(shard, |table, what| {
            format!(
                "CREATE TRIGGER IF NOT EXISTS sim_{table}_{what} BEFORE {what} ON {table}
                 BEGIN SELECT RAISE(ABORT, 'the shard is down'); END;"
            )
        });
    }

    pub(crate) fn unblock(&self, shard: ShardId) {
        self.on_file(shard, |table, what| {
            format!("DROP TRIGGER IF EXISTS sim_{table}_{what};")
        });
    }

    fn on_file(&self, shard: ShardId, statement: impl Fn(&str, &str) -> String) {
        let Some(disk) = &self.disk else { return };
        let file = rusqlite::Connection::open(disk.store.file(shard).unwrap()).unwrap();
        let kinds = ["INSERT", "UPDATE", "DELETE"];
        let all = TABLES
            .iter()
            .flat_map(|table| kinds.iter().map(move |kind| (table, kind)));
        let all: String = all.map(|(table, kind)| statement(table, kind)).collect();
        file.execute_batch(&format!("BEGIN; {all} COMMIT;"))
            .unwrap();
    }

    /// Returns what `fairq doctor` would find.
    pub(crate) fn findings(&self, clock: &dyn Clock) -> Vec<Finding> {
        let look = Look {
            full: true,
            alive: false,
        };
        let disk = self.disk.as_ref();
        disk.map_or_else(Vec::new, |disk| disk.store.check(look, clock))
    }
}
