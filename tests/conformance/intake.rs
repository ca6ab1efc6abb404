//! What [`fairq::store::Intake`] promises.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use fairq::error::{Error, ErrorKind};
use fairq::model::{
    Backoff, Command, Due, Environment, NewStep, OnLost, Policy, Span, StepId, StepState, Weight,
};
use fairq::store::Filter;
use fairq::store::placement::Placement;

use super::{ONLY, Open, START, World, at, band, key, step};

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

pub(crate) fn ids_come_back_in_the_order_of_the_steps(open: Open) {
    let world = World::new(open, 4);
    let keys: Vec<String> = (0..40).map(|number| format!("user{number}")).collect();
    let steps: Vec<NewStep> = keys.iter().map(|of| step(of)).collect();
    let ids = world.put(&steps);
    assert_eq!(ids.len(), steps.len());
    for (id, of) in ids.iter().zip(&keys) {
        assert_eq!(world.view(*id).key, key(of));
    }
    let shards: BTreeSet<_> = ids.iter().map(|id| id.shard).collect();
    assert_eq!(shards.len(), 4, "forty keys left a shard out");
}

pub(crate) fn ids_rise_from_one_on_each_shard(open: Open) {
    let world = World::new(open, 3);
    let steps: Vec<NewStep> = (0..30).map(|number| step(&number.to_string())).collect();
    let mut ids = world.put(&steps);
    ids.extend(world.put(&steps));
    for shard in world.shards() {
        let locals = ids.iter().filter(|id| id.shard == shard);
        let locals: Vec<i64> = locals.map(|id| id.local.get()).collect();
        let expected: Vec<i64> = (1..).take(locals.len()).collect();
        assert_eq!(locals, expected);
    }
}

pub(crate) fn what_was_asked_for_is_kept_byte_for_byte(open: Open) {
    let world = World::new(open, 1);
    let env = Environment::from_pairs([
        (os(b"PATH"), os(b"/bin")),
        (os(b"ODD\xfe"), os(b"a=b\n\xff")),
        (os(b"EMPTY"), os(b"")),
    ]);
    let asked = NewStep {
        command: Command::Argv(vec![os(b"/bin/\xffcat"), os(b""), os(b"a b\n'\"$X")]),
        cwd: os(b"/tmp/\xfa\xfb").into(),
        env: Arc::new(env),
        band: band(2_147_483_647),
        key: key("Ω mega"),
        weight: Weight::new(5e-324).unwrap(),
        name: Some("näme".to_owned()),
        tags: vec!["x y".to_owned(), "ü".to_owned(), String::new()],
        due: Due::Now,
        flow: Some("release 7".to_owned()),
        policy: Policy {
            on_lost: OnLost::Hold,
            grace: Span::from_millis(1),
            leave_group: true,
            retries: 3,
            backoff: Backoff {
                base: Span::from_millis(5),
                factor: 1.5,
                cap: Span::from_millis(50),
            },
            retry_on: vec![75, 1],
            no_retry_on: vec![2],
            timeout: Some(Span::from_millis(77)),
            kill_signal: 2,
            expire: Some(at(i64::MAX)),
            limits: BTreeMap::new(),
            max_output: Some(9),
        },
        ..step("a")
    };
    let shell = NewStep {
        command: Command::Shell(os(b"echo \xff\n | cat")),
        env: Arc::clone(&asked.env),
        ..step("plain")
    };
    let steps = [asked, shell];
    for (id, asked) in world.put(&steps).into_iter().zip(&steps) {
        let kept = world.view(id);
        assert_eq!(kept.id, id);
        assert_eq!(kept.command, asked.command);
        assert_eq!(kept.cwd, asked.cwd);
        assert_eq!(kept.env, asked.env);
        assert_eq!(kept.band, asked.band);
        assert_eq!(kept.key, asked.key);
        assert_eq!(kept.weight, asked.weight);
        assert_eq!(kept.name, asked.name);
        // Labels are a set: shown in their own order, whatever the order they were given in.
        let labels = |tags: &[String]| tags.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(labels(&kept.tags), labels(&asked.tags));
        assert_eq!(kept.flow, asked.flow);
        assert_eq!(kept.policy, asked.policy);
        assert_eq!((kept.created, kept.at), (START, START));
        assert_eq!(kept.state, StepState::Ready);
        assert_eq!((kept.attempt, kept.fence, kept.runner), (0, 0, None));
        assert_eq!((kept.ending, kept.started), (None, None));
        let claim = world.take(id);
        assert_eq!(claim.command, asked.command);
        assert_eq!(claim.cwd, asked.cwd);
        assert_eq!(claim.env, asked.env);
    }
}

pub(crate) fn nothing_in_makes_nothing(open: Open) {
    let world = World::new(open, 2);
    assert_eq!(world.put(&[]), []);
    assert!(world.store.list(&Filter::default()).unwrap().is_empty());
    assert_eq!(world.put_one(step("a")).local.get(), 1);
}

pub(crate) fn a_step_goes_where_its_key_is_placed(open: Open) {
    let world = World::new(open, 4);
    for number in 0..20 {
        let of = format!("user{}", number % 10);
        let place = world.store.place(&key(&of));
        assert_eq!(world.put_one(step(&of)).shard, place);
        assert_eq!(world.store.place(&key(&of)), place, "{of} moved");
    }
}

pub(crate) fn spread_steps_fill_the_shards_evenly(open: Open) {
    let world = World::placed(open, 3, Placement::Spread);
    let mut ids = world.put(&[step("hot"), step("hot"), step("hot"), step("hot")]);
    let next = world.store.place(&key("hot"));
    ids.push(world.put_one(step("hot")));
    assert_eq!(ids[4].shard, next);
    ids.push(world.put_one(step("hot")));
    for shard in world.shards() {
        let count = ids.iter().filter(|id| id.shard == shard).count();
        assert_eq!(count, 2, "{ids:?}");
    }
}

pub(crate) fn threads_that_enqueue_at_once_never_share_an_id(open: Open) {
    let world = World::new(open, 1);
    let enqueue = &|thread: usize| -> Vec<StepId> {
        let of = format!("t{thread}");
        let batches = (0..10).map(|_| world.store.enqueue(&[step(&of), step(&of)], at(5)));
        batches.flat_map(Result::unwrap).collect()
    };
    let all: Vec<Vec<StepId>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || enqueue(thread)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    for (thread, ids) in all.iter().enumerate() {
        assert!(ids.is_sorted(), "ids of one caller fell");
        let due = world.due(&format!("t{thread}"));
        let mine: Vec<_> = ids.iter().map(|id| id.local).collect();
        assert_eq!(due, mine);
    }
    let distinct: BTreeSet<StepId> = all.into_iter().flatten().collect();
    assert_eq!(distinct.len(), 80);
    assert!(distinct.iter().all(|id| id.shard == ONLY));
}

pub(crate) fn a_pour_stores_all_that_come_in_their_order(open: Open) {
    const MANY: usize = 3_000;
    let world = World::new(open, 3);
    let names: Vec<String> = (0..7).map(|number| format!("user{number}")).collect();
    let keys = names.iter().map(|of| key(of)).collect();
    let named = |number: usize| NewStep {
        name: Some(number.to_string()),
        due: [Due::Now, Due::Held, Due::At(at(START.millis() + 5))][number % 3],
        ..step(&names[number % names.len()])
    };
    let mut steps = (0..MANY).map(|number| Ok(named(number)));
    let ids = world.store.pour(&keys, &mut steps, START).unwrap();
    assert_eq!(ids.len(), MANY);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), MANY);
    for (number, id) in ids.iter().enumerate() {
        let (view, asked) = (world.view(*id), named(number));
        assert_eq!((view.name, view.key), (asked.name, asked.key));
        let state = [StepState::Ready, StepState::Held, StepState::Delayed][number % 3];
        assert_eq!((view.state, view.created), (state, START));
    }
    for of in &names {
        let mine = ids.iter().filter(|id| world.view(**id).key == key(of));
        assert!(mine.is_sorted(), "steps of {of} lost their order");
    }
    let none = world.store.pour(&keys, &mut std::iter::empty(), START);
    assert_eq!(none.unwrap(), []);
}

pub(crate) fn a_pour_that_is_cut_off_stores_nothing(open: Open) {
    let world = World::new(open, 2);
    let keys = BTreeSet::from([key("a"), key("b"), key("c")]);
    let mut steps = (0..1_500).map(|number| match number {
        1_400 => Err(Error::new(ErrorKind::Usage, "line 1401 is no step")),
        _ => Ok(step(["a", "b", "c"][number % 3])),
    });
    let error = world.store.pour(&keys, &mut steps, START).unwrap_err();
    assert_eq!(error.what(), "line 1401 is no step");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(world.store.find(&Filter::default()).unwrap().is_empty());
    for shard in world.shards() {
        assert_eq!(world.store.tally(shard).unwrap().band(), None);
    }
    assert_eq!(world.put(&[step("a"), step("b")]).len(), 2);
}
