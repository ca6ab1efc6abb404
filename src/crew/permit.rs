//! The gate that bounds how many steps run at once.
//!
//! A permit that comes back is handed to the first in line, not thrown among all: nobody who comes
//! later takes it away. So while anybody waits there is no free permit, and a newcomer who finds one
//! free overtakes nobody.

use crate::sync::{Called, Line, Mutex, lock};

/// Bounds how many hold a [`Permit`] at once; the bound may be changed live.
///
/// Every call is safe from any thread; only [`Gate::acquire`] blocks.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
}

/// The right to run one step. It goes back when it is dropped.
#[derive(Debug)]
#[must_use = "a permit goes back when it is dropped"]
pub struct Permit<'gate> {
    gate: &'gate Gate,
}

/// A gate's counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateView {
    /// How many permits there are.
    pub size: usize,
    /// How many are out.
    pub held: usize,
    /// How many wait for one.
    pub waiting: usize,
    /// Whether the gate is closed.
    pub closed: bool,
}

impl GateView {
    /// Returns how many may be taken at once: none while more are out than there are, which is so
    /// after the bound was lowered.
    pub const fn free(&self) -> usize {
        self.size.saturating_sub(self.held)
    }
}

#[derive(Debug)]
struct State {
    size: usize,
    /// Permits that are out, those included that were handed to a thread which still sleeps.
    held: usize,
    /// Permits handed to threads which still sleep.
    handed: usize,
    closed: bool,
    line: Line<()>,
}

impl State {
    const fn take(&mut self) -> bool {
        let may = !self.closed && self.held < self.size;
        if may {
            self.held += 1;
        }
        may
    }

    /// Hands what is free to those who wait.
    fn hand_out(&mut self) -> Called {
        let called = self.line.call(self.size.saturating_sub(self.held));
        self.held += called.len();
        self.handed += called.len();
        called
    }
}

impl Gate {
    /// Returns an open gate of `size` permits. With a size of 0 all wait until it grows or closes.
    pub fn new(size: usize) -> Self {
        Self {
            state: Mutex::new(State {
                size,
                held: 0,
                handed: 0,
                closed: false,
                line: Line::new(),
            }),
        }
    }

    /// Waits for a permit, in the order of arrival. `None` means that the gate is closed, and
    /// nothing else.
    pub fn acquire(&self) -> Option<Permit<'_>> {
        let mut state = lock(&self.state);
        if !state.take() {
            if state.closed {
                return None;
            }
            state = Line::park(&self.state, state, |state| &mut state.line, ());
            // Called by a hand-over or by the close, and the close takes back what was handed.
            if state.closed {
                return None;
            }
            state.handed -= 1;
        }
        drop(state);
        Some(Permit { gate: self })
    }

    /// Returns a permit if one is free. Never blocks.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        lock(&self.state).take().then(|| Permit { gate: self })
    }

    /// Changes the number of permits.
    ///
    /// Permits that are out stay valid: after lowering, those that come back are not given out again
    /// until fewer are out than there are. Growing serves those who wait at once.
    pub fn resize(&self, size: usize) {
        let called = {
            let mut state = lock(&self.state);
            state.size = size;
            state.hand_out()
        };
        called.wake();
    }

    /// Closes for good: all who wait leave without a permit, and none is given out again. Permits
    /// that are out stay valid until they are dropped. Closing again changes nothing.
    pub fn close(&self) {
        let called = {
            let mut state = lock(&self.state);
            state.closed = true;
            // Those who were handed a permit and still sleep will find the gate closed.
            state.held -= std::mem::take(&mut state.handed);
            let all = state.line.len();
            state.line.call(all)
        };
        called.wake();
    }

    /// Returns the counts.
    pub fn view(&self) -> GateView {
        let state = lock(&self.state);
        GateView {
            size: state.size,
            held: state.held,
            waiting: state.line.len(),
            closed: state.closed,
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let called = {
            let mut state = lock(&self.gate.state);
            state.held -= 1;
            state.hand_out()
        };
        called.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    /// Closes the gate when the test is over, also when it has failed: threads that wait on would
    /// keep it from ending.
    struct Closing<'gate>(&'gate Gate);

    impl Drop for Closing<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    fn until_waiting(gate: &Gate, count: usize) {
        while gate.view().waiting != count {
            thread::yield_now();
        }
    }

    #[test]
    fn no_more_permits_are_out_than_there_are() {
        let gate = Gate::new(2);
        let both = [gate.try_acquire(), gate.try_acquire()];
        assert!(both.iter().all(Option::is_some));
        assert!(gate.try_acquire().is_none());
        drop(both);
        assert_eq!((gate.view().held, gate.view().free()), (0, 2));
    }

    #[test]
    fn a_smaller_gate_waits_for_permits_to_come_back() {
        let gate = Gate::new(3);
        let mut held: Vec<_> = (0..3).map(|_| gate.acquire()).collect();
        gate.resize(1);
        for out in [2, 1] {
            held.pop();
            assert_eq!((gate.view().held, gate.view().free()), (out, 0));
            assert!(gate.try_acquire().is_none());
        }
        held.pop();
        assert!(gate.try_acquire().is_some());
    }

    #[test]
    fn permits_go_to_those_who_wait_in_the_order_in_which_they_came() {
        let gate = Gate::new(1);
        let order = Mutex::new(Vec::new());
        let held = gate.acquire();
        thread::scope(|scope| {
            for number in 0..4 {
                let (gate, order) = (&gate, &order);
                scope.spawn(move || {
                    let _permit = gate.acquire();
                    order.lock().unwrap().push(number);
                });
                until_waiting(gate, number + 1);
            }
            drop(held);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
        assert_eq!(gate.view().held, 0);
    }

    /// Between the return of a permit and the waking of its next holder, a newcomer finds none.
    #[test]
    fn a_returned_permit_belongs_to_the_first_in_line_at_once() {
        let gate = Gate::new(1);
        let held = gate.acquire();
        thread::scope(|scope| {
            let _closing = Closing(&gate);
            let waiting = scope.spawn(|| gate.acquire());
            until_waiting(&gate, 1);
            drop(held);
            assert!(gate.try_acquire().is_none());
            assert!(waiting.join().unwrap().is_some());
        });
    }

    #[test]
    fn growing_serves_as_many_as_there_is_room_for() {
        let gate = Gate::new(0);
        thread::scope(|scope| {
            let _closing = Closing(&gate);
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| gate.acquire().map(std::mem::forget)))
                .collect();
            until_waiting(&gate, 3);
            gate.resize(2);
            assert_eq!((gate.view().held, gate.view().waiting), (2, 1));
            gate.close();
            let served = waiting.into_iter().filter_map(|one| one.join().unwrap());
            assert!(served.count() <= 2);
        });
    }

    #[test]
    fn a_closed_gate_gives_nothing_and_takes_back_what_is_out() {
        let gate = Gate::new(2);
        let held = gate.acquire();
        gate.close();
        gate.close();
        assert!(gate.acquire().is_none());
        assert!(gate.try_acquire().is_none());
        gate.resize(9);
        assert!(gate.try_acquire().is_none());
        drop(held);
        assert_eq!(gate.view().held, 0);
    }
}
