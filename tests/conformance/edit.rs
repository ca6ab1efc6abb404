//! What the store promises of changing what was asked for.

use std::ffi::OsString;
use std::sync::Arc;

use fairq::model::{Command, Environment, NewStep, Policy, StepState, Weight};
use fairq::store::{Action, Edit};

use super::steer::{NOW, done, in_state};
use super::{ONLY, Open, START, World, after, at, band, key, step, success};

pub(crate) fn an_edit_changes_what_was_asked_for(open: Open) {
    let world = World::new(open, 1);
    let word = |text: &str| OsString::from(text);
    let edit = Edit {
        command: Some(Command::Argv(vec![word("echo"), word("new")])),
        cwd: Some("/tmp".into()),
        env: Some(Arc::new(Environment::from_pairs([(word("A"), word("1"))]))),
        band: Some(band(3)),
        key: Some(key("other")),
        weight: Weight::new(7.0),
        name: Some(Some("new".to_owned())),
        tags: Some(vec!["new".to_owned()]),
        flow: Some(Some("flow".to_owned())),
        due: None,
        policy: Some(Policy {
            retries: 9,
            ..Policy::default()
        }),
    };
    let old = NewStep {
        name: Some("old".to_owned()),
        tags: vec!["old".to_owned(), "older".to_owned()],
        ..step("a")
    };
    let ids = world.put(&[old, step("a")]);
    let ready = done(StepState::Ready, StepState::Ready);
    let steered = world.steer(ids[0], &Action::from(edit.clone()), after(NOW));
    assert_eq!(steered, ready);
    let view = world.view(ids[0]);
    assert_eq!((view.id, view.created, view.at), (ids[0], START, START));
    assert_eq!(Some(&view.command), edit.command.as_ref());
    assert_eq!(Some(&view.cwd), edit.cwd.as_ref());
    assert_eq!(Some(&view.env), edit.env.as_ref());
    assert_eq!((view.band, &view.key), (band(3), &key("other")));
    assert_eq!(view.weight, Weight::new(7.0).unwrap());
    assert_eq!(view.name.as_deref(), Some("new"));
    assert_eq!(view.tags, ["new"]);
    assert_eq!(view.flow.as_deref(), Some("flow"));
    assert_eq!(Some(&view.policy), edit.policy.as_ref());
    // It is due where it is now, and nowhere else.
    assert_eq!(world.due("a"), [ids[1].local]);
    assert_eq!(world.due_at(ONLY, band(3), &key("other")), [ids[0].local]);
    let tally = world.store.tally(ONLY).unwrap();
    assert_eq!(tally.band(), Some(band(3)));
    assert_eq!(tally.get(&key("other")).unwrap().weight, view.weight);
    let claim = world.take(ids[0]);
    assert_eq!(Some(claim.command), edit.command);
    assert_eq!(claim.policy.retries, 9);
}

pub(crate) fn what_an_edit_leaves_out_stays(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(NewStep {
        name: Some("old".to_owned()),
        tags: vec!["old".to_owned(), "older".to_owned()],
        flow: Some("old".to_owned()),
        ..step("a")
    });
    let before = world.view(id);
    world.steer(id, &Action::from(Edit::default()), after(NOW));
    assert_eq!(format!("{:?}", world.view(id)), format!("{before:?}"));
    let nameless = Edit {
        name: Some(None),
        flow: Some(None),
        tags: Some(Vec::new()),
        ..Edit::default()
    };
    world.steer(id, &Action::from(nameless), after(NOW));
    let view = world.view(id);
    assert_eq!((view.name, view.flow), (None, None));
    assert!(view.tags.is_empty());
    assert_eq!(view.command, before.command);
}

pub(crate) fn an_edited_time_decides_where_a_step_waits(open: Open) {
    let world = World::new(open, 1);
    let timed = |due: Option<i64>| {
        Action::from(Edit {
            due: Some(due.map(after)),
            ..Edit::default()
        })
    };
    let (ready, delayed, held) = (StepState::Ready, StepState::Delayed, StepState::Held);
    let blocked = StepState::Blocked;
    for (from, due, to) in [
        (ready, None, ready),
        (ready, Some(NOW), ready),
        (ready, Some(NOW + 1), delayed),
        (delayed, None, ready),
        (delayed, Some(NOW + 5), delayed),
        (held, Some(NOW + 5), held),
        (held, None, held),
        (blocked, Some(NOW + 5), blocked),
    ] {
        let id = in_state(&world, from);
        assert_eq!(world.steer(id, &timed(due), after(NOW)), done(from, to));
        let view = world.view(id);
        assert_eq!(view.state, to);
        if to == delayed {
            assert_eq!(view.at, after(due.unwrap()));
        } else if from == delayed {
            assert_eq!(view.at, after(NOW));
        } else if to == ready {
            assert_eq!(view.at, START, "it lost its age");
        } else if from == held {
            let later = if due.is_some() { delayed } else { ready };
            let steered = world.steer(id, &Action::Release, after(NOW));
            assert_eq!(steered, done(held, later));
        }
    }
    let next = world.store.promote(ONLY, after(NOW)).unwrap();
    assert_eq!(next, Some(after(NOW + 1)));
    let blocked = in_state(&world, blocked);
    world.steer(blocked, &timed(Some(NOW + 9)), after(NOW));
    let parent = world.store.parents(blocked).unwrap()[0].parent;
    world.run(parent, success);
    let view = world.view(blocked);
    assert_eq!(
        (view.state, view.at),
        (delayed, at(after(NOW + 9).millis()))
    );
}
