//! Stand-ins until the real ones are written.

use std::collections::BTreeSet;

use super::SqliteStore;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{FairnessKey, LimitName, NewStep, Released, ShardId, StepId, Timestamp};
use crate::store::{Action, Cleaned, Pause, Release, Retention, Steer, Steered};

pub(super) fn pending<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Internal, "not yet"))
}

pub(super) fn pour(
    _: &BTreeSet<FairnessKey>,
    _: &mut dyn Iterator<Item = Result<NewStep>>,
) -> Result<Vec<StepId>> {
    pending()
}

impl Release for SqliteStore {
    fn deliver(&self, _: ShardId, _: Timestamp) -> Result<Vec<Released>> {
        Ok(Vec::new())
    }
    fn grant(&self, _: Timestamp) -> Result<Vec<Released>> {
        Ok(Vec::new())
    }
    fn mend(&self, _: Timestamp) -> Result<Vec<Released>> {
        Ok(Vec::new())
    }
}

impl Steer for SqliteStore {
    fn steer(&self, _: &[StepId], _: &Action, _: Timestamp) -> Result<Vec<Steered>> {
        pending()
    }
    fn pause(&self, _: &Pause, _: Timestamp) -> Result<()> {
        pending()
    }
    fn resume(&self, _: &Pause) -> Result<bool> {
        pending()
    }
    fn set_limit(&self, _: &LimitName, _: Option<u32>) -> Result<Option<u32>> {
        pending()
    }
    fn clean(&self, _: ShardId, _: &Retention) -> Result<Cleaned> {
        pending()
    }
}
