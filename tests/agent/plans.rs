//! Plan mode: looking, writing a plan, and the user's judgement of it.

use crate::{
    questions::{say, told, waiting},
    stage::{Stage, step_of},
};
use edge_harness::agent::host::suspensions::TurnEffect;
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::standard::Config;
use edge_harness::types::{FilePath, Mode, Part, WaitKind};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

type Calls = &'static [(&'static str, &'static str)];

/// Makes these calls, one a step, then says that it is done.
fn stage(calls: Calls) -> (Stage, Rc<ScriptedModels>) {
    let script = move |step: usize| match calls.get(step) {
        Some((name, args)) => vec![call(&format!("c{step}"), name, serde_json::from_str(args).unwrap())],
        None => vec![Part::text("done")],
    };
    let (stage, models) = Stage::scripted(move |request| answer(script(step_of(request))), |builder| builder);
    (stage.with_modes(Config::default().agent.modes), models)
}

fn begun(calls: Calls) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = stage(calls);
    stage.post("t1", "go");
    stage.run();
    (stage, models)
}

fn mode(stage: &Stage) -> Option<String> {
    stage.session().state().meta.mode.clone()
}

const PLANNED: Calls = &[
    ("plan_enter", "{}"),
    ("plan_write", r##"{"content": "# Plan\n1. Paint it."}"##),
    ("plan_exit", r#"{"summary": "Paint."}"#),
    ("read_it", r#"{"key": "a"}"#),
    ("read_it", r#"{"key": "b"}"#),
    ("read_it", r#"{"key": "c"}"#),
    ("read_it", r#"{"key": "d"}"#),
    ("read_it", r#"{"key": "e"}"#),
    ("read_it", r#"{"key": "f"}"#),
];

#[test]
fn an_approved_plan_is_carried_out_in_the_same_turn_and_later_turns_are_pointed_to_it() {
    let (stage, models) = begun(PLANNED);
    let pending = stage.session().pending().unwrap().pop().unwrap();
    assert_eq!((pending.kind, mode(&stage)), (WaitKind::Plan, Some("plan".into())));
    let plan = json!({"path": "plans/s.md", "plan": "# Plan\n1. Paint it.", "summary": "Paint."});
    assert_eq!(pending.payload, plan);
    assert!(models.requests()[1].system.contains("You are in plan mode"));
    let answer = json!({"action": "approved", "feedback": "In green."});
    assert_eq!(say(&stage, "c2", answer), Ok(TurnEffect::Continues));
    let told = told(&stage, "t1");
    assert_eq!(
        told[2],
        "The user approved the plan in `plans/s.md`. You are now in mode `build`: carry out the plan. The \
         user says: In green."
    );
    assert_eq!((told.len(), mode(&stage)), (9, Some("build".into())), "it goes on for many steps");
    assert_eq!(stage.end("t1").reply.unwrap().text, "done");
    let files = stage.workspaces();
    let (file, _) =
        block_on(files.open(&"t".into(), "default", "u", None).read(&FilePath::parse("plans/s.md").unwrap()))
            .unwrap();
    assert_eq!(file.bytes, "# Plan\n1. Paint it.");

    stage.post("t2", "how far are you?");
    stage.run();
    let hint = "The user has approved the plan in `plans/s.md`";
    let volatile = |place: usize| models.requests()[place].volatile.clone();
    assert!(volatile(10).contains(hint), "{}", volatile(10));
    // A new plan is about to be made.
    assert!(!volatile(11).contains(hint));
}

#[test]
fn in_plan_mode_what_reads_runs_and_what_writes_does_not() {
    let (stage, models) = begun(&[
        ("plan_enter", "{}"),
        ("read_it", r#"{"key": "a"}"#),
        ("write_it", r#"{"key": "a"}"#),
        ("write_file", r#"{"path": "a.md", "content": "x"}"#),
        ("plan_write", r#"{"content": "x"}"#),
        ("ask_user", r#"{"question": "Which?"}"#),
    ]);
    stage.tick(200);
    say(&stage, "c5", json!("This.")).unwrap();
    told(&stage, "t1");
    assert_eq!(stage.outcomes("t1"), ["result", "result", "permission", "permission", "result", "result"]);
    assert!(stage.runs.borrow().is_empty());
    let offers =
        |place: usize, name: &str| models.requests()[place].tools.iter().any(|tool| tool.name == name);
    assert!(offers(0, "write_it") && offers(0, "read_it"));
    assert!(!offers(1, "write_it") && offers(1, "read_it") && offers(1, "plan_write"));
}

#[test]
fn a_rejected_plan_is_changed_or_waited_with() {
    let (stage, _) = begun(&[
        ("plan_enter", "{}"),
        ("plan_write", r#"{"content": "one"}"#),
        ("plan_exit", "{}"),
        ("plan_exit", "{}"),
        ("plan_write", r#"{"content": "two"}"#),
        ("plan_exit", "{}"),
    ]);
    say(&stage, "c2", json!({"action": "rejected", "feedback": "Too short."})).unwrap();
    // Not spared: it may be judged otherwise.
    say(&stage, "c3", json!("rejected")).unwrap();
    assert_eq!(stage.session().pending().unwrap()[0].payload["plan"], "two");
    say(&stage, "c5", json!({"action": "rejected"})).unwrap();
    let told = told(&stage, "t1");
    assert_eq!(told[2], "The user rejected the plan. The user says: Too short. Revise it and ask again.");
    let stop = "The user rejected the plan without a reason. Stop here and wait for the user's next message.";
    assert_eq!((&told[3], &told[5]), (&json!(stop), &json!(stop)));
    assert_eq!((mode(&stage), stage.session().state().plan.clone()), (Some("plan".into()), None));
}

#[test]
fn nobody_is_asked_about_a_plan_that_is_not_there_or_outside_plan_mode() {
    let (stage, _) = begun(&[
        ("plan_exit", "{}"),
        ("plan_write", r#"{"content": "x"}"#),
        ("plan_enter", "{}"),
        ("plan_exit", "{}"),
        ("plan_write", r#"{"content": " "}"#),
        ("plan_enter", "{}"),
        ("submit_plan", r#"{"path": "nowhere.md"}"#),
        ("submit_plan", r#"{"path": "../x"}"#),
    ]);
    let told = told(&stage, "t1");
    let starts = [
        "available in plan mode only; call plan_enter first",
        "available in plan mode only; call plan_enter first",
        "You are in plan mode.",
        "there is no plan yet; write it with plan_write first",
        "the plan is empty",
        "You are in plan mode.",
        "`nowhere.md` does not exist or is empty",
        "`../x` is not a valid path",
    ];
    assert_eq!(told.len(), starts.len());
    for (told, start) in told.iter().zip(starts) {
        assert!(told.as_str().unwrap().starts_with(start), "{told} instead of {start}");
    }
    assert!(!stage.kinds().contains(&"tool.suspended".to_owned()));
}

#[test]
fn any_file_may_be_a_plan_and_what_is_no_judgement_is_refused() {
    let (stage, _) = begun(&[
        ("write_file", r#"{"path": "ideas/a.md", "content": "Paint it."}"#),
        ("submit_plan", r#"{"path": "/ideas/a.md"}"#),
    ]);
    let pending = stage.session().pending().unwrap().pop().unwrap();
    assert_eq!(pending.payload, json!({"path": "ideas/a.md", "plan": "Paint it."}));
    for bad in [json!("yes"), json!({"action": "maybe"}), json!({"action": "approved", "feedback": 7})] {
        let refused = say(&stage, "c1", bad).unwrap_err();
        assert_eq!((refused.code.status(), refused.errors[0].pointer.as_str()), (422, "/answer"));
    }
    assert_eq!(waiting(&stage), ["c1"]);
    say(&stage, "c1", json!("approved")).unwrap();
    told(&stage, "t1");
    let plan = stage.session().state().plan.clone().map(|plan| plan.path);
    assert_eq!(
        (plan, mode(&stage)),
        (Some("ideas/a.md".into()), None),
        "it is carried out where it was shown"
    );
}

#[test]
fn an_approved_plan_leads_where_its_mode_leads_once() {
    let modes = || -> Vec<Mode> {
        let list: Value = json!([
            {"id": "think", "default": true, "transitions_to": ["try"]},
            {"id": "try", "transitions_to": ["ship"]},
            {"id": "ship"},
        ]);
        serde_json::from_value(list).unwrap()
    };
    let waiting = || {
        let (stage, _) = stage(&[
            ("plan_enter", "{}"),
            ("write_file", r#"{"path": "a.md", "content": "Paint it."}"#),
            ("submit_plan", r#"{"path": "a.md"}"#),
        ]);
        let stage = stage.with_modes(modes());
        stage.post("t1", "go");
        stage.run();
        stage
    };
    let reference = waiting();
    let before = reference.store.commits();
    say(&reference, "c2", json!("approved")).unwrap();
    let told = told(&reference, "t1");
    assert_eq!(told[0], "unknown mode \"plan\"; available: think, try, ship");
    assert_eq!(mode(&reference).as_deref(), Some("try"));
    for last in 1..=reference.store.commits() - before {
        let stage = waiting();
        stage.store.die_after(Some(last));
        say(&stage, "c2", json!("approved")).unwrap();
        stage.crash();
        stage.store.die_after(None);
        stage.wake();
        stage.settle();
        stage.check();
        assert_eq!(mode(&stage).as_deref(), Some("try"), "after {last} commits");
        assert_eq!(stage.outcomes("t1"), ["failure", "result", "result"]);
    }
}

/// Makes these calls, all in one step, then says that it is done.
fn at_once(calls: Calls) -> Stage {
    let made = || {
        let made = calls.iter().enumerate();
        made.map(|(n, (name, args))| call(&format!("c{n}"), name, serde_json::from_str(args).unwrap()))
            .collect()
    };
    let script = move |step: usize| if step == 0 { made() } else { vec![Part::text("done")] };
    let (stage, _) = Stage::scripted(move |request| answer(script(step_of(request))), |builder| builder);
    stage.with_modes(Config::default().agent.modes)
}

#[test]
fn what_is_approved_is_the_plan_that_was_shown() {
    let stage = at_once(&[("plan_write", r#"{"content": "another one"}"#), ("plan_exit", "{}")]);
    stage.post("t0", "hello");
    stage.settle();
    let session = stage.session();
    let plan = FilePath::parse("plans/s.md").unwrap();
    let files = stage.workspaces().open(&"t".into(), "default", "u", None);
    block_on(files.write(&plan, "the first one".into(), &Precondition::Any)).unwrap();
    let modes = std::rc::Rc::clone(stage.host().agent().modes());
    let planning = modes.get("plan").unwrap();
    session.commit(stage.host().now(), |draft| draft.switch_mode(&modes, None, planning)).unwrap();
    stage.post("t1", "go");
    stage.run();
    let pending = stage.session().pending().unwrap().remove(0);
    assert_eq!(pending.payload["plan"], "the first one");
    say(&stage, &pending.call_id, json!("approved")).unwrap();
    assert!(told(&stage, "t1")[1].as_str().unwrap().contains("has changed"));
    assert_eq!((mode(&stage), stage.session().state().plan.clone()), (Some("plan".into()), None));
}

#[test]
fn a_mode_that_is_entered_holds_for_the_rest_of_its_step() {
    let stage = at_once(&[("plan_enter", "{}"), ("write_it", r#"{"key": "a"}"#)]);
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    assert_eq!(stage.outcomes("t1"), ["result", "permission"]);
    assert!(stage.runs.borrow().is_empty());
}

#[test]
fn a_plan_does_not_hold_any_more_when_another_one_is_made() {
    let (stage, _) = begun(PLANNED);
    say(&stage, "c2", json!("approved")).unwrap();
    stage.settle();
    assert!(stage.session().state().plan.is_some());
    let modes = std::rc::Rc::clone(stage.host().agent().modes());
    let planning = modes.get("plan").unwrap();
    stage.session().commit(stage.host().now(), |draft| draft.switch_mode(&modes, None, planning)).unwrap();
    assert_eq!(stage.session().state().plan, None);
}
