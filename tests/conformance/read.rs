//! What [`fairq::store::Read`] promises.

use std::collections::BTreeMap;

use fairq::model::Stream;
use fairq::model::{
    Band, Due, Ending, LocalId, NewStep, OnLost, ShardId, StepId, StepState, Timestamp, Verdict,
    Weight,
};
use fairq::stats::{Dispatch, Outcome, Window};
use fairq::store::{Arrival, Counts, Filter, Order};

use super::{
    ONLY, Open, START, World, after, at, band, give_back, key, lost_step, over, runner, step,
    success,
};

fn ids(world: &World, filter: &Filter) -> Vec<StepId> {
    let steps = world.store.list(filter).unwrap();
    steps.into_iter().map(|step| step.id).collect()
}

/// Fills the only shard with one step in each state that can be reached, and returns for each since
/// when it stands there.
fn one_in_each_state(world: &World) -> [(StepId, StepState, Timestamp); 6] {
    let due = |due| NewStep { due, ..step("a") };
    let steps = [
        due(Due::At(after(9_000))),
        due(Due::Held),
        step("a"),
        step("b"),
        step("a"),
        step("a"),
    ];
    let ids = world.put(&steps);
    let running = world.claim(ids[3], 1, after(10)).unwrap();
    let done = world.claim(ids[4], 1, after(20)).unwrap();
    world.settle(success(&done));
    let bad = world.claim(ids[5], 1, after(30)).unwrap();
    world.settle(over(&bad, Ending::Exited { code: 1 }, Verdict::Failed));
    [
        (ids[0], StepState::Delayed, after(9_000)),
        (ids[1], StepState::Held, START),
        (ids[2], StepState::Ready, START),
        (running.id, StepState::Running, after(10)),
        (ids[4], StepState::Succeeded, after(30)),
        (ids[5], StepState::Failed, after(40)),
    ]
}

pub(crate) fn a_step_that_is_not_there_is_none(open: Open) {
    let world = World::new(open, 2);
    let id = world.put_one(step("a"));
    for local in [id.local.get() + 1, 0, -1, i64::MAX, i64::MIN] {
        let unknown = StepId::new(id.shard, LocalId::new(local));
        assert!(world.store.get(unknown).unwrap().is_none());
        assert_eq!(world.store.attempts(unknown).unwrap(), []);
        let output = world.store.output(unknown, 1, Stream::Stdout).unwrap();
        assert!(output.is_none());
    }
}

pub(crate) fn states_show_when_they_began(open: Open) {
    let world = World::new(open, 1);
    for (id, state, began) in one_in_each_state(&world) {
        let view = world.view(id);
        assert_eq!((view.state, view.at, view.created), (state, began, START));
        let by_list = Filter {
            states: vec![state],
            ..Filter::default()
        };
        assert_eq!(ids(&world, &by_list), [id]);
    }
}

/// Returns the filter that was changed so, in the order of ids.
fn by(change: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter {
        order: Order::Id,
        ..Filter::default()
    };
    change(&mut filter);
    filter
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Four steps with different keys, bands and tags.
fn four_to_select_from(world: &World) -> Vec<StepId> {
    let tagged = |of: &str, number, tags: &[&str]| NewStep {
        band: band(number),
        tags: texts(tags),
        ..step(of)
    };
    world.put(&[
        tagged("a", 1, &["x", "y"]),
        tagged("b", 2, &["y"]),
        tagged("a", 2, &[]),
        tagged("c", 3, &["xy", "x y"]),
    ])
}

pub(crate) fn each_part_of_a_filter_selects(open: Open) {
    let world = World::new(open, 2);
    let all = four_to_select_from(&world);
    let selects = |change: fn(&mut Filter), wanted: &[usize]| {
        let filter = by(change);
        let mut expected: Vec<StepId> = wanted.iter().map(|index| all[*index]).collect();
        expected.sort();
        assert_eq!(ids(&world, &filter), expected, "{filter:?}");
    };
    selects(|_| (), &[0, 1, 2, 3]);
    selects(|it| it.keys = vec![key("a")], &[0, 2]);
    selects(|it| it.keys = vec![key("c"), key("b")], &[1, 3]);
    selects(|it| it.keys = vec![key("none")], &[]);
    selects(|it| it.bands = vec![band(2), band(9)], &[1, 2]);
    selects(|it| it.tags = texts(&["x"]), &[0]);
    selects(|it| it.tags = texts(&["x y", "y"]), &[0, 1, 3]);
    selects(|it| it.tags = texts(&["_", "%", "x%"]), &[]);
    selects(|it| it.states = vec![StepState::Held], &[]);
    let all_must_match = |it: &mut Filter| {
        it.keys = vec![key("a")];
        it.bands = vec![band(2)];
        it.states = vec![StepState::Held, StepState::Ready];
    };
    selects(all_must_match, &[2]);
}

pub(crate) fn ids_are_found_in_their_order_however_many_there_are(open: Open) {
    let world = World::new(open, 3);
    let of_flow = |number: usize| NewStep {
        flow: [None, Some("one"), Some("two")][number % 3].map(str::to_owned),
        ..step(&number.to_string())
    };
    let steps: Vec<NewStep> = (0..90).map(of_flow).collect();
    let put = world.put(&steps);
    let expected = |flows: &[usize]| {
        let all = put.iter().enumerate();
        let mut ids: Vec<StepId> = all
            .filter(|(number, _)| flows.contains(&(number % 3)))
            .map(|(_, id)| *id)
            .collect();
        ids.sort();
        ids
    };
    for (flows, wanted) in [
        (vec![], expected(&[0, 1, 2])),
        (texts(&["two"]), expected(&[2])),
        (texts(&["two", "one"]), expected(&[1, 2])),
        (texts(&["on"]), vec![]),
    ] {
        let filter = by(|it| it.flows = flows.clone());
        assert_eq!(ids(&world, &filter), wanted);
        let cut = Filter {
            order: Order::Newest,
            limit: Some(2),
            ..filter
        };
        assert_eq!(world.store.find(&cut).unwrap(), wanted, "{flows:?}");
    }
}

pub(crate) fn ranges_of_ids_select_within_their_shard(open: Open) {
    let world = World::new(open, 2);
    let all = four_to_select_from(&world);
    let ranges = |ranges: &[(ShardId, i64, i64)]| ids(&world, &by(|it| it.ids = ranges.to_vec()));
    let alone = |id: StepId| (id.shard, id.local.get(), id.local.get());
    let mut two = [all[0], all[3]];
    two.sort();
    assert_eq!(ranges(&two.map(alone)), two);
    assert_eq!(ranges(&[(all[0].shard, 2, 1)]), []);
    for shard in world.shards() {
        let mut there = all.clone();
        there.retain(|id| id.shard == shard);
        assert!(!there.is_empty());
        // A step that two ranges hold is listed once.
        assert_eq!(ranges(&[(shard, 1, i64::MAX), (shard, 1, 2)]), there);
    }
    let nowhere = ShardId::new(20).unwrap();
    assert_eq!(ranges(&[(nowhere, 1, i64::MAX)]), []);
}

pub(crate) fn the_order_is_as_asked(open: Open) {
    let world = World::new(open, 2);
    let put = |of: &str, number, due, millis| {
        let step = NewStep {
            band: band(number),
            due,
            ..step(of)
        };
        world.store.enqueue(&[step], after(millis)).unwrap()[0]
    };
    let steps = [
        put("a", 5, Due::Held, 1),
        put("b", 5, Due::Now, 2),
        put("a", 9, Due::At(after(3)), 3),
        put("c", 5, Due::Now, 4),
        put("b", 1, Due::Now, 5),
        put("c", 9, Due::At(after(99)), 6),
        put("a", 9, Due::Now, 7),
        put("b", 9, Due::Now, 8),
    ];
    let claim = world.claim(steps[7], 1, after(50)).unwrap();
    world.settle(success(&claim));
    world.claim(steps[6], 1, after(50)).unwrap();
    let in_order = |order| {
        let filter = Filter {
            order,
            ..Filter::default()
        };
        ids(&world, &filter)
    };
    let listed = |order: [usize; 8]| order.map(|index| steps[index]);
    let relevant = listed([6, 4, 1, 3, 2, 7, 5, 0]);
    assert_eq!(in_order(Order::Relevance), relevant);
    assert_eq!(in_order(Order::Newest), listed([7, 6, 5, 4, 3, 2, 1, 0]));
    let mut by_id = steps.to_vec();
    by_id.sort();
    assert_eq!(in_order(Order::Id), by_id);
    assert_eq!(Filter::default().order, Order::Relevance);
}

pub(crate) fn a_limit_keeps_the_first(open: Open) {
    let world = World::new(open, 3);
    for number in 0..12 {
        let step = step(&number.to_string());
        world.store.enqueue(&[step], after(number)).unwrap();
    }
    for order in [Order::Relevance, Order::Id, Order::Newest] {
        let limited = |limit| {
            let filter = Filter {
                order,
                limit,
                ..Filter::default()
            };
            ids(&world, &filter)
        };
        let all = limited(None);
        assert_eq!(all.len(), 12);
        for limit in [0, 1, 5, 12, 13, usize::MAX] {
            assert_eq!(limited(Some(limit)), all[..limit.min(12)], "{order:?}");
        }
    }
}

pub(crate) fn counts_tell_states_bands_and_the_next_due_time(open: Open) {
    let world = World::new(open, 2);
    let counts = |shard| {
        let mut counts = world.store.counts(shard).unwrap();
        counts.states.retain(|_, count| *count > 0);
        counts.ready.retain(|_, count| *count > 0);
        counts
    };
    for shard in world.shards() {
        assert_eq!(counts(shard), fairq::store::ShardCounts::default());
    }
    let world = World::new(open, 1);
    let expected: Counts<StepState> = one_in_each_state(&world)
        .into_iter()
        .map(|(_, state, _)| (state, 1))
        .collect();
    world.put(&[NewStep {
        band: band(3),
        ..step("z")
    }]);
    let failed = world.put_one(lost_step(OnLost::Fail));
    world.claim(failed, 8, after(10)).unwrap();
    world.store.reclaim(ONLY, runner(8), after(11)).unwrap();
    let mut counts = world.store.counts(ONLY).unwrap();
    counts.states.retain(|_, count| *count > 0);
    let mut expected = expected;
    expected.insert(StepState::Ready, 2);
    expected.insert(StepState::Failed, 2);
    assert_eq!(counts.states, expected);
    assert_eq!(counts.ready, BTreeMap::from([(band(3), 1), (band(100), 1)]));
    assert_eq!(counts.next_due, Some(after(9_000)));
    world.store.promote(ONLY, after(9_000)).unwrap();
    assert_eq!(world.store.counts(ONLY).unwrap().next_due, None);
}

pub(crate) fn the_due_steps_of_a_key_before_one_are_counted_up_to_a_limit(open: Open) {
    let world = World::new(open, 1);
    let other_band = NewStep {
        band: band(7),
        ..step("a")
    };
    let held = NewStep {
        due: Due::Held,
        ..step("a")
    };
    let all = world.put(&[
        step("a"),
        step("b"),
        step("a"),
        other_band,
        held,
        step("a"),
        step("a"),
    ]);
    let ahead = |id, most| {
        let store = &world.store;
        let count = store.ahead(id, Band::DEFAULT, &key("a"), most);
        count.unwrap()
    };
    let counts: Vec<u32> = all.iter().map(|id| ahead(*id, 10)).collect();
    assert_eq!(counts, [0, 1, 1, 2, 2, 2, 3]);
    assert_eq!(ahead(all[6], 2), 2);
    assert_eq!(ahead(all[6], 0), 0);
    world.take(all[2]);
    assert_eq!(ahead(all[6], 10), 2);
}

pub(crate) fn a_running_step_still_tells_since_when_it_had_been_due(open: Open) {
    let world = World::new(open, 1);
    let since = |id| world.view(id).since;
    let id = world.put_one(step("a"));
    assert_eq!(since(id), Some(START));
    let claim = world.claim(id, 1, after(10)).unwrap();
    assert_eq!(since(id), Some(START));
    world.settle(success(&claim));
    assert_eq!(since(id), None);
}

pub(crate) fn the_dispatches_of_a_window_are_all_tries_that_were_claimed_in_it(open: Open) {
    let world = World::new(open, 2);
    let put = |of: &str, number| {
        world.put_one(NewStep {
            band: band(number),
            weight: Weight::new(2.5).unwrap(),
            ..step(of)
        })
    };
    let ids = [
        put("a", 3),
        put("b", 4),
        put("c", 5),
        put("d", 6),
        put("e", 7),
    ];
    let early = world.claim(ids[0], 1, after(10)).unwrap();
    world.settle(success(&early));
    let failing = world.claim(ids[1], 1, after(20)).unwrap();
    world.settle(over(
        &failing,
        Ending::Signalled { signal: 9 },
        Verdict::Failed,
    ));
    let given_back = world.claim(ids[2], 1, after(30)).unwrap();
    world.settle(give_back(&given_back));
    world.claim(ids[3], 8, after(40)).unwrap();
    world
        .store
        .reclaim(ids[3].shard, runner(8), after(45))
        .unwrap();
    world.claim(ids[2], 1, after(50)).unwrap();
    let found = |window: Window| {
        let mut all = Vec::new();
        for shard in world.shards() {
            world
                .store
                .dispatches(shard, window, &mut |one| all.push(one))
                .unwrap();
        }
        all.sort_by_key(|one| one.claimed);
        all
    };
    let expected = |step: usize, number: u32, claimed: i64, ended: Option<i64>, outcome| Dispatch {
        id: ids[step],
        band: band(number),
        key: key(["a", "b", "c", "d", "e"][step]),
        weight: Weight::new(2.5).unwrap(),
        since: START,
        claimed: after(claimed),
        started: (ended.is_some() && outcome != Outcome::Lost).then(|| after(claimed + 1)),
        ended: ended.map(after),
        outcome,
    };
    let all = [
        expected(0, 3, 10, Some(20), Outcome::Succeeded),
        expected(1, 4, 20, Some(30), Outcome::Failed),
        expected(2, 5, 30, Some(40), Outcome::Interrupted),
        expected(3, 6, 40, Some(45), Outcome::Lost),
        expected(2, 5, 50, None, Outcome::Running),
    ];
    assert_eq!(found(Window::Since(at(0))), all);
    assert_eq!(found(Window::Since(after(20))), all[1..]);
    assert_eq!(found(Window::Since(after(21))), all[2..]);
    assert_eq!(found(Window::Since(after(51))), []);
    assert_eq!(found(Window::Last(99)), all);
    assert_eq!(found(Window::Last(0)), []);
    // The latest of all shards are among the latest of each.
    for count in 1..=all.len() {
        let last = found(Window::Last(count));
        assert!(last.ends_with(&all[all.len() - count..]), "{last:?}");
        for shard in world.shards() {
            assert!(last.iter().filter(|one| one.id.shard == shard).count() <= count);
        }
    }
}

pub(crate) fn arrivals_follow_their_numbers_from_an_instant_on(open: Open) {
    let world = World::new(open, 1);
    let mut all = Vec::new();
    for number in 0..20 {
        let step = NewStep {
            name: Some(format!("n{number}")),
            band: band(7),
            ..step("a")
        };
        // Two at each instant.
        let created = after(10 * (number / 2));
        let id = world.store.enqueue(&[step], created).unwrap()[0];
        all.push(Arrival {
            id,
            band: band(7),
            key: key("a"),
            weight: Weight::ONE,
            name: Some(format!("n{number}")),
            created,
        });
    }
    let from = |last: i64, since, limit| {
        world
            .store
            .arrivals(ONLY, LocalId::new(last), since, limit)
            .unwrap()
    };
    assert_eq!(from(0, at(0), usize::MAX), all);
    assert_eq!(from(0, at(0), 3), all[..3]);
    for last in 0..=20_u8 {
        for millis in 0..100 {
            let skipped = usize::from(last).max(usize::try_from((millis + 9) / 10 * 2).unwrap());
            let expected = &all[skipped.min(20)..];
            let found = from(i64::from(last), after(millis), usize::MAX);
            assert_eq!(found, expected, "{last} {millis}");
        }
    }
    assert_eq!(from(0, after(91), 9), []);
    assert_eq!(from(i64::MAX, at(0), 9), []);
}
