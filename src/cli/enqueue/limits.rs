//! Whether steps ask for no more places of a limit than it has.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::cli::render::number;
use crate::error::{Error, ErrorKind, Result};
use crate::model::LimitName;
use crate::store::sqlite::SqliteStore;
use crate::store::{LimitView, Read as _};

/// The limits of a store as they stood when they were first asked for.
#[derive(Default)]
pub(super) struct Limits(OnceCell<BTreeMap<LimitName, u32>>);

impl Limits {
    /// Refuses places that a step would wait for for ever, unless somebody raised the limit.
    ///
    /// # Errors
    ///
    /// `Usage` for too many places; the store could not be read.
    pub(super) fn check(
        &self,
        store: Option<&SqliteStore>,
        wanted: &BTreeMap<LimitName, u32>,
    ) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let known = match self.0.get() {
            Some(known) => known,
            None => {
                let read = store.map_or(Ok(Vec::new()), SqliteStore::limits)?;
                let places = |limit: LimitView| (limit.name, limit.places);
                self.0
                    .get_or_init(|| read.into_iter().map(places).collect())
            }
        };
        for (name, places) in wanted {
            // One that was set to 0 is shut for a while; what is put in waits until it is opened.
            let has = known.get(name).copied().unwrap_or(LimitView::UNSET).max(1);
            if *places > has {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!(
                        "--limit {name}:{places}: the limit has {}",
                        number::many(has.into(), "place")
                    ),
                )
                .hint(format!("fairq limit set {name} {places} gives it more")));
            }
        }
        Ok(())
    }
}
