//! Plan mode: reading, writing a plan, and its approval.

use crate::stage::ms;
use crate::{
    questions::{say, tool_results, waiting},
    scripts::step_of,
    stage::Stage,
};
use edge_harness::agent::host::suspensions::{CallAnswer, TurnEffect};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::standard::Config;
use edge_harness::types::{ErrorCode, FilePath, Mode, Part, WaitKind};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

type Calls = &'static [(&'static str, &'static str)];

/// Makes these calls, one per step, then replies.
fn stage(calls: Calls) -> (Stage, Rc<ScriptedModels>) {
    let script = move |step: usize| match calls.get(step) {
        Some((name, args)) => vec![call(&format!("c{step}"), name, serde_json::from_str(args).unwrap())],
        None => vec![Part::text("done")],
    };
    let (stage, models) = Stage::scripted(move |request| answer(script(step_of(request))), |builder| builder);
    (stage.with_modes(Config::default().agent.modes), models)
}

pub fn begun(calls: Calls) -> (Stage, Rc<ScriptedModels>) {
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
fn an_approved_plan_is_carried_out_and_mentioned_in_later_turns() {
    let (stage, models) = begun(PLANNED);
    let pending = stage.session().pending().unwrap().pop().unwrap();
    assert_eq!((pending.kind, mode(&stage)), (WaitKind::Plan, Some("plan".into())));
    let plan = json!({"path": "plans/s.md", "plan": "# Plan\n1. Paint it.", "summary": "Paint."});
    assert_eq!(pending.payload, plan);
    assert!(models.requests()[1].system.contains("You are in plan mode"));
    let answer = json!({"action": "approved", "feedback": "In green."});
    assert_eq!(say(&stage, "c2", answer), Ok(TurnEffect::Continues));
    let results = tool_results(&stage, "t1");
    assert_eq!(
        results[2],
        "The user approved the plan in `plans/s.md`. You are now in mode `build`: carry out the plan. The \
         user says: In green."
    );
    assert_eq!((results.len(), mode(&stage)), (9, Some("build".into())), "the turn continues for many steps");
    assert_eq!(stage.end("t1").reply.unwrap().text, "done");
    let files = stage.workspaces();
    let (file, _) = block_on(
        files
            .open(&"t".into(), &"default".into(), &"u".into(), None)
            .read(&FilePath::parse("plans/s.md").unwrap()),
    )
    .unwrap();
    assert_eq!(file.bytes, "# Plan\n1. Paint it.");

    stage.post("t2", "how far are you?");
    stage.run();
    let hint = "The user has approved the plan in `plans/s.md`";
    let volatile = |place: usize| models.requests()[place].volatile.clone();
    assert!(volatile(10).contains(hint), "{}", volatile(10));
    // Entering plan mode again drops the approved plan.
    assert!(!volatile(11).contains(hint));
}

#[test]
fn plan_mode_only_runs_reads() {
    let (stage, models) = begun(&[
        ("plan_enter", "{}"),
        ("read_it", r#"{"key": "a"}"#),
        ("write_it", r#"{"key": "a"}"#),
        ("write_file", r#"{"path": "a.md", "content": "x"}"#),
        ("plan_write", r#"{"content": "x"}"#),
        ("ask_user", r#"{"question": "Which?"}"#),
    ]);
    stage.tick(ms(200));
    say(&stage, "c5", json!("This.")).unwrap();
    tool_results(&stage, "t1");
    assert_eq!(stage.outcomes("t1"), ["result", "result", "permission", "permission", "result", "result"]);
    assert!(stage.runs.borrow().is_empty());
    let offers =
        |place: usize, name: &str| models.requests()[place].tools.iter().any(|tool| tool.name == name);
    assert!(offers(0, "write_it") && offers(0, "read_it"));
    assert!(!offers(1, "write_it") && offers(1, "read_it") && offers(1, "plan_write"));
}

#[test]
fn a_rejected_plan_is_revised_or_postponed() {
    let (stage, _) = begun(&[
        ("plan_enter", "{}"),
        ("plan_write", r#"{"content": "one"}"#),
        ("plan_exit", "{}"),
        ("plan_exit", "{}"),
        ("plan_write", r#"{"content": "two"}"#),
        ("plan_exit", "{}"),
    ]);
    say(&stage, "c2", json!({"action": "rejected", "feedback": "Too short."})).unwrap();
    // Not skipped as a repeated call, because the decision may differ.
    say(&stage, "c3", json!("rejected")).unwrap();
    assert_eq!(stage.session().pending().unwrap()[0].payload["plan"], "two");
    say(&stage, "c5", json!({"action": "rejected"})).unwrap();
    let results = tool_results(&stage, "t1");
    assert_eq!(results[2], "The user rejected the plan. The user says: Too short. Revise it and ask again.");
    let stop = "The user rejected the plan without a reason. Stop here and wait for the user's next message.";
    assert_eq!((&results[3], &results[5]), (&json!(stop), &json!(stop)));
    assert_eq!((mode(&stage), stage.session().state().guidance.plan.clone()), (Some("plan".into()), None));
}

#[test]
fn a_missing_plan_or_one_outside_plan_mode_is_not_submitted() {
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
    let results = tool_results(&stage, "t1");
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
    assert_eq!(results.len(), starts.len());
    for (result, start) in results.iter().zip(starts) {
        assert!(result.as_str().unwrap().starts_with(start), "{result} instead of {start}");
    }
    assert!(!stage.kinds().contains(&"tool.suspended".to_owned()));
}

#[test]
fn any_file_may_be_a_plan_and_invalid_decisions_are_refused() {
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
    tool_results(&stage, "t1");
    let plan = stage.session().state().guidance.plan.clone().map(|plan| plan.path);
    assert_eq!(
        (plan, mode(&stage)),
        (Some("ideas/a.md".into()), None),
        "it is carried out where it was shown"
    );
}

#[test]
fn an_approved_plan_switches_the_mode_once() {
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
    let results = tool_results(&reference, "t1");
    assert_eq!(results[0], "unknown mode \"plan\"; available: think, try, ship");
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

/// Makes these calls in one step, then replies.
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
fn an_approval_of_a_plan_that_has_changed_is_refused() {
    let (stage, models) =
        begun(&[("plan_enter", "{}"), ("plan_write", r##"{"content": "# good"}"##), ("plan_exit", "{}")]);
    let plan = FilePath::parse("plans/s.md").unwrap();
    let files = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    let rewrite =
        |text: &str| drop(block_on(files.write(&plan, text.to_owned().into(), &Precondition::Any)).unwrap());
    let hash = || stage.session().pending().unwrap()[0].args_hash.clone();
    let check_seen = |answer: Value, seen: Option<String>| {
        let answer = CallAnswer::Answer(answer);
        let session = stage.session();
        block_on(stage.host().ensure_current(&session, &"c2".into(), &answer, seen.as_deref()))
            .map_err(|problem| problem.code)
    };
    let check = |answer: Value| check_seen(answer, None);
    let first_hash = hash();
    let shown = || stage.session().pending().unwrap()[0].payload["plan"].clone();
    assert_eq!(check(json!("approved")), Ok(()));
    rewrite("# evil");
    assert_eq!((check(json!("rejected")), shown()), (Ok(()), json!("# good")));
    assert_eq!((check(json!("approved")), shown()), (Err(ErrorCode::StalePlan), json!("# evil")));
    assert!(!stage.kinds().contains(&"answer.given".to_owned()));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "tool.suspended").count(), 2);
    // A retry that says what it saw is refused again. What is shown now may be approved.
    assert_eq!(check_seen(json!("approved"), Some(first_hash)), Err(ErrorCode::StaleArgsHash));
    assert_eq!(check_seen(json!("approved"), Some(hash())), Ok(()));
    assert_eq!(check(json!("approved")), Ok(()));
    say(&stage, "c2", json!("approved")).unwrap();
    tool_results(&stage, "t1");
    // A call that no longer waits is not announced again.
    let records = stage.kinds().len();
    rewrite("# later");
    assert_eq!(check(json!("approved")), Ok(()));
    assert_eq!(stage.kinds().len(), records);
    // The file may change after the approval, too.
    rewrite("# evil and more");
    let sent = models.requests().len();
    stage.post("t2", "go on");
    stage.run();
    let changed = &models.requests()[sent].volatile;
    assert!(changed.contains("The plan in `plans/s.md` has changed since the user approved it"), "{changed}");
    assert!(!changed.contains("has approved"), "{changed}");
}

#[test]
fn an_approval_is_for_the_plan_that_was_shown() {
    let stage = at_once(&[("plan_write", r#"{"content": "another one"}"#), ("plan_exit", "{}")]);
    stage.post("t0", "hello");
    stage.settle();
    let session = stage.session();
    let plan = FilePath::parse("plans/s.md").unwrap();
    let files = stage.workspaces().open(&"t".into(), &"default".into(), &"u".into(), None);
    block_on(files.write(&plan, "the first one".into(), &Precondition::Any)).unwrap();
    let modes = std::rc::Rc::clone(stage.host().agent().modes());
    let planning = modes.get("plan").unwrap();
    session.commit(stage.host().now(), |draft| draft.switch_mode(&modes, None, planning)).unwrap();
    stage.post("t1", "go");
    stage.run();
    let pending = stage.session().pending().unwrap().remove(0);
    assert_eq!(pending.payload["plan"], "the first one");
    say(&stage, &pending.call_id, json!("approved")).unwrap();
    assert!(tool_results(&stage, "t1")[1].as_str().unwrap().contains("has changed"));
    assert_eq!((mode(&stage), stage.session().state().guidance.plan.clone()), (Some("plan".into()), None));
}

#[test]
fn entering_a_mode_applies_to_the_rest_of_the_step() {
    let stage = at_once(&[("plan_enter", "{}"), ("write_it", r#"{"key": "a"}"#)]);
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    assert_eq!(stage.outcomes("t1"), ["result", "permission"]);
    assert!(stage.runs.borrow().is_empty());
}

#[test]
fn a_new_plan_replaces_the_approved_one() {
    let (stage, _) = begun(PLANNED);
    say(&stage, "c2", json!("approved")).unwrap();
    stage.settle();
    assert!(stage.session().state().guidance.plan.is_some());
    let modes = std::rc::Rc::clone(stage.host().agent().modes());
    let planning = modes.get("plan").unwrap();
    stage.session().commit(stage.host().now(), |draft| draft.switch_mode(&modes, None, planning)).unwrap();
    assert_eq!(stage.session().state().guidance.plan, None);
}
