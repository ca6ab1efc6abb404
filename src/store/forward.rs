//! Stores that stand before another store, and change a part of what it does: whatever they leave as
//! it is, they forward by these words.

/// Forwards whole roles of a store to the field `store` of a type: `forward!(Read, Steer for Frail);`.
///
/// [`Read`](super::Read) may have its own `counts`, and forwards the rest:
/// `forward!(Read for Only, but counts { fn counts(…) … });`.
#[macro_export]
macro_rules! forward {
    ($one:ident, $($more:ident),+ for $type:ty) => {
        $crate::forward!($one for $type);
        $crate::forward!($($more),+ for $type);
    };
    (Read for $type:ty) => {
        $crate::forward!(Read for $type, but counts {
            fn counts(
                &self,
                shard: $crate::model::ShardId,
            ) -> $crate::error::Result<$crate::store::ShardCounts> {
                self.store.counts(shard)
            }
        });
    };
    (Read for $type:ty, but counts { $($counts:tt)+ }) => {
        impl $crate::store::Read for $type {
            $($counts)+

            fn get(
                &self,
                id: $crate::model::StepId,
            ) -> $crate::error::Result<Option<$crate::store::StepView>> {
                self.store.get(id)
            }

            fn list(
                &self,
                filter: &$crate::store::Filter,
            ) -> $crate::error::Result<Vec<$crate::store::StepView>> {
                self.store.list(filter)
            }

            fn find(
                &self,
                filter: &$crate::store::Filter,
            ) -> $crate::error::Result<Vec<$crate::model::StepId>> {
                self.store.find(filter)
            }

            fn parents(
                &self,
                id: $crate::model::StepId,
            ) -> $crate::error::Result<Vec<$crate::store::Link>> {
                self.store.parents(id)
            }

            fn dependents(
                &self,
                id: $crate::model::StepId,
            ) -> $crate::error::Result<Vec<$crate::model::StepId>> {
                self.store.dependents(id)
            }

            fn pauses(&self) -> $crate::error::Result<Vec<$crate::store::Paused>> {
                self.store.pauses()
            }

            fn limits(&self) -> $crate::error::Result<Vec<$crate::store::LimitView>> {
                self.store.limits()
            }

            fn attempts(
                &self,
                id: $crate::model::StepId,
            ) -> $crate::error::Result<Vec<$crate::store::Attempt>> {
                self.store.attempts(id)
            }

            fn output(
                &self,
                id: $crate::model::StepId,
                fence: u32,
                stream: $crate::model::Stream,
            ) -> $crate::error::Result<Option<$crate::store::Output>> {
                self.store.output(id, fence, stream)
            }

            fn tally_at(
                &self,
                shard: $crate::model::ShardId,
                band: $crate::model::Band,
            ) -> $crate::error::Result<Vec<$crate::tally::Tally>> {
                self.store.tally_at(shard, band)
            }

            fn ahead(
                &self,
                id: $crate::model::StepId,
                band: $crate::model::Band,
                key: &$crate::model::FairnessKey,
                most: u32,
            ) -> $crate::error::Result<u32> {
                self.store.ahead(id, band, key, most)
            }

            fn dispatches(
                &self,
                shard: $crate::model::ShardId,
                window: $crate::stats::Window,
                each: &mut dyn FnMut($crate::stats::Dispatch),
            ) -> $crate::error::Result<()> {
                self.store.dispatches(shard, window, each)
            }

            fn arrivals(
                &self,
                shard: $crate::model::ShardId,
                after: $crate::model::LocalId,
                since: $crate::model::Timestamp,
                limit: usize,
            ) -> $crate::error::Result<Vec<$crate::store::Arrival>> {
                self.store.arrivals(shard, after, since, limit)
            }
        }
    };
    (Steer for $type:ty) => {
        impl $crate::store::Steer for $type {
            fn steer(
                &self,
                ids: &[$crate::model::StepId],
                action: &$crate::store::Action,
                now: $crate::model::Timestamp,
            ) -> $crate::error::Result<Vec<$crate::store::Steered>> {
                self.store.steer(ids, action, now)
            }

            fn pause(
                &self,
                what: &$crate::store::Pause,
                now: $crate::model::Timestamp,
            ) -> $crate::error::Result<()> {
                self.store.pause(what, now)
            }

            fn resume(&self, what: &$crate::store::Pause) -> $crate::error::Result<bool> {
                self.store.resume(what)
            }

            fn set_limit(
                &self,
                name: &$crate::model::LimitName,
                places: Option<u32>,
            ) -> $crate::error::Result<Option<u32>> {
                self.store.set_limit(name, places)
            }

            fn clean(
                &self,
                shard: $crate::model::ShardId,
                retention: &$crate::store::Retention,
            ) -> $crate::error::Result<$crate::store::Cleaned> {
                self.store.clean(shard, retention)
            }
        }
    };
    (Intake for $type:ty) => {
        impl $crate::store::Intake for $type {
            fn put(
                &self,
                steps: &[$crate::model::NewStep],
                now: $crate::model::Timestamp,
            ) -> $crate::error::Result<Vec<$crate::store::Put>> {
                self.store.put(steps, now)
            }

            fn pour(
                &self,
                keys: &std::collections::BTreeSet<$crate::model::FairnessKey>,
                steps: &mut dyn Iterator<Item = $crate::error::Result<$crate::model::NewStep>>,
                now: $crate::model::Timestamp,
            ) -> $crate::error::Result<Vec<$crate::model::StepId>> {
                self.store.pour(keys, steps, now)
            }

            fn place(&self, key: &$crate::model::FairnessKey) -> $crate::model::ShardId {
                self.store.place(key)
            }
        }
    };
    (Store for $type:ty) => {
        impl $crate::store::Store for $type {
            fn shard_count(&self) -> u8 {
                self.store.shard_count()
            }
        }
    };
}
