//! Locks and parked threads: the standard library's, or loom's where a model is checked.
//!
//! The only place that knows of the two. A condition variable wakes whom it likes; a [`Line`] wakes
//! in the order of arrival, as many as it is told and none besides.

use std::collections::VecDeque;
use std::sync::PoisonError;

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
};

/// Locks, also after a panic elsewhere: what these locks protect is whole between any two
/// statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads parked one behind the other, each with a tag.
///
/// It lives inside the state that a mutex protects. A thread joins it, gives the mutex back and
/// sleeps until it is called out of the line; whoever calls wakes it after the mutex is free again.
#[derive(Debug)]
pub(crate) struct Line<Tag> {
    next_ticket: u64,
    /// In the order of the tickets.
    parked: VecDeque<Parked<Tag>>,
}

#[derive(Debug)]
struct Parked<Tag> {
    ticket: u64,
    thread: Thread,
    tag: Tag,
}

impl<Tag> Line<Tag> {
    /// Returns a line in which nobody stands.
    pub(crate) const fn new() -> Self {
        Self {
            next_ticket: 0,
            parked: VecDeque::new(),
        }
    }

    /// Returns how many stand in it.
    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Takes the first `count` out.
    pub(crate) fn call(&mut self, count: usize) -> Called {
        let count = count.min(self.parked.len());
        Called(self.parked.drain(..count).map(|one| one.thread).collect())
    }

    /// Takes the first `count` out whose tag is a wanted one. Looks at the whole line.
    pub(crate) fn call_those(&mut self, count: usize, wanted: impl Fn(&Tag) -> bool) -> Called {
        let mut called = Vec::new();
        self.parked.retain(|one| {
            let chosen = called.len() < count && wanted(&one.tag);
            if chosen {
                called.push(one.thread.clone());
            }
            !chosen
        });
        Called(called)
    }

    /// Joins at the end and sleeps, without the mutex, until called.
    ///
    /// `line` finds this line in the state.
    pub(crate) fn park<'a, State>(
        mutex: &'a Mutex<State>,
        mut guard: MutexGuard<'a, State>,
        line: impl Fn(&mut State) -> &mut Self,
        tag: Tag,
    ) -> MutexGuard<'a, State> {
        let ticket = line(&mut guard).join(tag);
        loop {
            drop(guard);
            thread::park();
            guard = lock(mutex);
            // A thread may wake for no reason, or by a token that was meant for something else.
            if !line(&mut guard).holds(ticket) {
                return guard;
            }
        }
    }

    fn join(&mut self, tag: Tag) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.parked.push_back(Parked {
            ticket,
            thread: thread::current(),
            tag,
        });
        ticket
    }

    fn holds(&self, ticket: u64) -> bool {
        self.parked
            .binary_search_by_key(&ticket, |one| one.ticket)
            .is_ok()
    }
}

/// Threads that were called out of a line and still sleep.
#[derive(Debug)]
#[must_use = "they sleep on until woken"]
pub(crate) struct Called(Vec<Thread>);

impl Called {
    /// Returns how many they are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Wakes them, in the order of the line. To be called without the mutex, which is the first
    /// thing that each of them reaches for.
    pub(crate) fn wake(self) {
        for thread in self.0 {
            thread.unpark();
        }
    }
}
