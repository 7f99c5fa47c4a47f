//! Models that take over when the session's model fails.

use crate::scripts::{ruling, step_of};
use crate::stage::Stage;
use edge_harness::agent::Settings;
use edge_harness::platform::in_memory::models::{ScriptedModels, answer, call};
use edge_harness::session::Draft;
use edge_harness::types::{
    Decision, ModelError, ModelErrorKind, ModelEvent, ModelList, ModelRequest, Part, Policy, ResolvedBy,
    Rules, TenantLimits, TenantPolicy,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A stage whose session's model fails with this error, after these events. Two models may take over, of which the first
/// one fails, too. The third model calls a tool, then replies.
fn failing(
    error: ModelErrorKind,
    events: Vec<ModelEvent>,
    settings: Settings,
) -> (Stage, Rc<ScriptedModels>) {
    let fails = move |error: ModelErrorKind, events: Vec<ModelEvent>| {
        let events = events.into_iter().map(Ok);
        events.chain([Err(ModelError::new(error, "it failed"))]).collect()
    };
    let script = move |request: &ModelRequest| match &*request.model {
        "model" => fails(error, events.clone()),
        "second" => fails(ModelErrorKind::Unavailable, Vec::new()),
        _ if step_of(request) == 0 => answer(vec![call("c1", "echo", json!({"text": "a"}))]),
        _ => answer(vec![Part::text("Done")]),
    };
    let models = vec!["scripted/second".to_owned(), "scripted/third".to_owned()];
    let settings = Settings { fallback_models: models, ..settings };
    Stage::scripted(script, move |builder| builder.settings(settings.clone()))
}

fn asked(models: &ScriptedModels) -> Vec<String> {
    models.requests().into_iter().map(|request| request.model).collect()
}

fn of_kind(stage: &Stage, kind: &str) -> Vec<Value> {
    stage.records().into_iter().filter(|record| record["type"] == kind).collect()
}

#[test]
fn another_model_takes_over_until_the_end_of_the_turn() {
    let (stage, models) = failing(ModelErrorKind::Unavailable, Vec::new(), Settings::default());
    stage.post("t1", "hello");
    stage.settle();
    assert_eq!(asked(&models), ["model", "second", "third", "third"]);
    let changes: Vec<_> = of_kind(&stage, "model.fallback")
        .iter()
        .map(|record| [&record["previous"], &record["model"], &record["reason"]].map(Value::clone))
        .collect();
    let unavailable = "provider_unavailable";
    assert_eq!(
        changes,
        [
            [json!("scripted/model"), json!("scripted/second"), json!(unavailable)],
            [json!("scripted/second"), json!("scripted/third"), json!(unavailable)],
        ]
    );
    let usage = of_kind(&stage, "usage.updated");
    assert_eq!(usage.len(), 2);
    assert!(usage.iter().all(|record| record["model"] == "scripted/third"), "{usage:?}");
    assert_eq!(of_kind(&stage, "turn.completed")[0]["model"], "scripted/third");
    // The next turn starts with the session's model.
    stage.post("t2", "hello");
    stage.settle();
    assert_eq!(asked(&models)[4], "model");
    stage.check();
}

#[test]
fn too_many_requests_are_repeated_first() {
    let (stage, models) = failing(ModelErrorKind::RateLimited, Vec::new(), Settings::default());
    stage.post("t1", "hello");
    stage.settle();
    let asked = asked(&models);
    assert_eq!(asked[..5], ["model", "model", "model", "model", "second"]);
    assert_eq!(of_kind(&stage, "turn.completed").len(), 1);
}

#[test]
fn a_refused_account_fails_the_turn_unless_a_setting_says_otherwise() {
    for (kind, fallback_for_account, ended) in [
        (ModelErrorKind::Auth, false, "turn.failed"),
        (ModelErrorKind::Billing, false, "turn.failed"),
        (ModelErrorKind::Auth, true, "turn.completed"),
        (ModelErrorKind::Billing, true, "turn.completed"),
        (ModelErrorKind::Invalid, true, "turn.failed"),
    ] {
        let settings = Settings { fallback_for_account, ..Settings::default() };
        let (stage, _) = failing(kind, Vec::new(), settings);
        stage.post("t1", "hello");
        stage.settle();
        assert_eq!(of_kind(&stage, ended).len(), 1, "{kind:?}");
    }
}

#[test]
fn no_other_model_continues_a_response_that_has_begun() {
    let begun = vec![ModelEvent::Text("It is".into())];
    let (stage, models) = failing(ModelErrorKind::Cut, begun, Settings::default());
    stage.post("t1", "hello");
    stage.settle();
    assert_eq!(asked(&models), ["model"; 4]);
    assert_eq!(of_kind(&stage, "turn.failed").len(), 1);
}

#[test]
fn models_that_the_tenant_may_not_use_are_skipped() {
    let (stage, models) = failing(ModelErrorKind::Unavailable, Vec::new(), Settings::default());
    let allowed = ["scripted/model", "scripted/third"].map(str::to_owned);
    let limits = TenantLimits { models: Some(ModelList(allowed.into())), ..TenantLimits::default() };
    let policy = TenantPolicy { limits, version: 1, ..TenantPolicy::default() };
    stage.host().apply_tenant_policy(&"t".into(), &policy).unwrap();
    stage.post("t1", "hello");
    stage.settle();
    assert_eq!(asked(&models), ["model", "third", "third"]);
}

#[test]
fn the_model_that_has_taken_over_stays_after_a_suspension_and_a_restart() {
    let permissions = Rules { default: Some(Policy::Ask), ..Rules::default() };
    let settings = Settings { permissions, ..Settings::default() };
    let (stage, models) = failing(ModelErrorKind::Unavailable, Vec::new(), settings);
    stage.post("t1", "hello");
    stage.settle_waiting();
    stage.crash();
    let decision = ruling(Decision::Approve);
    stage.host().decide(&stage.session(), &"c1".into(), decision, ResolvedBy::default()).unwrap();
    stage.settle();
    assert_eq!(asked(&models), ["model", "second", "third", "third"]);
    assert_eq!(of_kind(&stage, "model.fallback").len(), 2);
}

#[test]
fn the_sessions_model_may_be_one_of_those_that_take_over() {
    let (stage, models) = failing(ModelErrorKind::Unavailable, Vec::new(), Settings::default());
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    let change = |draft: &mut Draft| draft.set_model(Some("scripted/second".into()));
    stage.session().commit(stage.host().now(), change).unwrap();
    stage.post("t1", "hello");
    stage.settle();
    assert_eq!(asked(&models), ["second", "third", "third"]);
}
