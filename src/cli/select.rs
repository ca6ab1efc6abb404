//! Which steps are meant: the same words in every command.

use clap::Args;

use super::Context;
use super::words::{self, IdRange};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{FairnessKey, StepId, StepState};
use crate::store::sqlite::SqliteStore;
use crate::store::{Filter, Order, Read as _, StepView};

/// Selects steps; all kinds of conditions that are given must hold.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Selector {
    /// Steps, as a3 or as ranges a5-a9
    #[arg(value_name = "ID", value_parser = words::ids)]
    pub(super) ids: Vec<IdRange>,
    /// Only in these states (running, ready, delayed, blocked, limited, held, succeeded, failed, cancelled)
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(super) state: Vec<StepState>,
    /// Only of these keys
    #[arg(short, long, value_name = "KEY")]
    pub(super) key: Vec<FairnessKey>,
    /// Only of these bands, by number or name
    #[arg(short, long, value_name = "BAND")]
    pub(super) band: Vec<String>,
    /// Only with one of these tags
    #[arg(short, long, value_name = "TAG")]
    pub(super) tag: Vec<String>,
    /// Only of one of these flows
    #[arg(long, value_name = "NAME")]
    pub(super) flow: Vec<String>,
    /// All steps
    #[arg(long, conflicts_with_all = ["ids", "state", "key", "band", "tag", "flow"])]
    pub(super) all: bool,
}

impl Selector {
    /// Returns whether nothing was selected, not even everything.
    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.is_unconditional()
    }

    /// Returns whether there is no condition.
    pub(super) fn is_unconditional(&self) -> bool {
        self.ids.is_empty()
            && self.state.is_empty()
            && self.key.is_empty()
            && self.band.is_empty()
            && self.tag.is_empty()
            && self.flow.is_empty()
    }

    /// Returns the filter that is meant.
    pub(super) fn filter(&self, context: &Context) -> Result<Filter> {
        let bands = self
            .band
            .iter()
            .map(|band| words::band(band, &context.settings))
            .collect::<Result<_>>()?;
        Ok(Filter {
            ids: self
                .ids
                .iter()
                .map(|range| (range.shard, range.first.get(), range.last.get()))
                .collect(),
            states: self.state.clone(),
            keys: self.key.clone(),
            bands,
            tags: self.tag.clone(),
            flows: self.flow.clone(),
            order: Order::Id,
            limit: None,
        })
    }

    /// Returns the ids of the steps that are meant, in order; holds nothing else of them.
    ///
    /// # Errors
    ///
    /// As [`Self::resolve`].
    pub(super) fn ids(&self, context: &Context, store: &SqliteStore) -> Result<Vec<StepId>> {
        self.must_select()?;
        let found = store.find(&self.filter(context)?)?;
        self.check_found(store, |id| found.binary_search(&id).is_ok())?;
        if found.is_empty() {
            return Err(no_match());
        }
        Ok(found)
    }

    /// Refuses a step that was named and is not there.
    fn check_found(&self, store: &SqliteStore, found: impl Fn(StepId) -> bool) -> Result<()> {
        for id in self.ids.iter().filter_map(|range| range.single()) {
            if !found(id) && store.get(id)?.is_none() {
                return Err(no_such_step(&id.to_string()));
            }
        }
        Ok(())
    }

    /// Returns the steps that are meant, in the order of their ids.
    ///
    /// # Errors
    ///
    /// `Usage` if nothing was selected, `NotFound` if a named step is not there or nothing matched.
    pub(super) fn resolve(&self, context: &Context, store: &SqliteStore) -> Result<Vec<StepView>> {
        self.must_select()?;
        let found = store.list(&self.filter(context)?)?;
        self.check_found(store, |id| found.iter().any(|step| step.id == id))?;
        if found.is_empty() {
            return Err(no_match());
        }
        Ok(found)
    }

    /// Returns the ids of the steps that something is to be done to, in their order, in bounded
    /// memory. Where neither ids nor states are named, only steps of `open_to_it` are meant: who
    /// cancels all steps of a key does not ask about those that are over. Steps that are named one
    /// by one are all among them, stored or not, so that each gets its answer.
    ///
    /// # Errors
    ///
    /// `Usage` if nothing was selected, `NotFound` if nothing matched.
    pub(super) fn targets(
        &self,
        context: &Context,
        store: &SqliteStore,
        open_to_it: &[StepState],
    ) -> Result<Vec<StepId>> {
        self.must_select()?;
        let mut filter = self.filter(context)?;
        if self.ids.is_empty() && self.state.is_empty() {
            filter.states = open_to_it.to_vec();
        }
        let named = || self.ids.iter().filter_map(|range| range.single());
        let mut found = if self.names_only() {
            named().collect()
        } else {
            store.find(&filter)?
        };
        if self.has_ids_only() {
            found.extend(named());
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Err(no_match());
        }
        Ok(found)
    }

    fn must_select(&self) -> Result<()> {
        if self.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "no steps were selected").hint(
                "name some (a3 a5-a9), or use --state, --key, --band, --tag, --flow or --all",
            ));
        }
        Ok(())
    }

    /// Returns whether ids are the only condition.
    pub(super) fn has_ids_only(&self) -> bool {
        let others = Self {
            ids: Vec::new(),
            ..self.clone()
        };
        !self.ids.is_empty() && others.is_unconditional()
    }

    /// Returns whether steps that are named one by one are all that is meant.
    fn names_only(&self) -> bool {
        self.has_ids_only() && self.ids.iter().all(|range| range.single().is_some())
    }
}

/// Says that nothing matched.
pub(super) fn no_match() -> Error {
    Error::new(ErrorKind::NotFound, "no step matches").hint("fairq status shows what there is")
}

/// Says that there is no step of this id.
pub(super) fn no_such_step(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no step {id}"))
        .hint("fairq status shows what there is")
}
