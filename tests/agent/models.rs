//! Which models sessions may use.

use crate::http::{ask, call, respond};
use crate::stage::{NOW, Stage};
use edge_harness::http::Response;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{ManualClock, ScriptedHttp};
use edge_harness::types::{ErrorCode, FieldError, Mode, ModelList, Problem, TenantLimits, TenantPolicy};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// Creates a stage with a deployment's models. The default model is `openai/m`, whose provider cannot be reached.
fn stage(set: impl Fn(&mut ModelSettings)) -> Stage {
    let clock = ManualClock::at(NOW);
    let mut settings = ModelSettings::default();
    settings.default = Some("openai/m".into());
    settings.credentials("openai").key = Some("k".into());
    set(&mut settings);
    let http = Rc::new(ScriptedHttp::default());
    let models = ModelRegistry::new(settings, http, None, Rc::new(clock.clone()));
    Stage::with(clock, Rc::new(models), |builder| builder)
}

/// Returns the only wrong field.
#[track_caller]
fn fault(answer: Result<Response, Problem>) -> FieldError {
    let problem = answer.map(drop).unwrap_err();
    assert_eq!(problem.code, ErrorCode::ValidationFailed);
    assert_eq!(problem.errors.len(), 1, "{problem:?}");
    problem.errors[0].clone()
}

/// Sets the models of the tenant, in a new version of its policy.
fn limit(stage: &Stage, version: u64, models: &[&str]) {
    let models = Some(ModelList(models.iter().map(|&model| model.to_owned()).collect()));
    let policy = TenantPolicy {
        limits: TenantLimits { models, ..TenantLimits::default() },
        version,
        ..TenantPolicy::default()
    };
    stage.host().apply_tenant_policy(&"t".into(), &policy).unwrap();
}

fn model_of(stage: &Stage) -> Option<String> {
    stage.session().state().meta.model.clone()
}

fn error_of(stage: &Stage, turn: &str) -> Value {
    let mut records = stage.records().into_iter();
    let failed = records.find(|record| record["type"] == "turn.failed" && record["turn"] == turn);
    failed.expect("a failed turn")["error"].clone()
}

#[test]
fn a_request_names_the_demo_model_only_if_the_deployment_offers_it() {
    let closed = stage(|_| ());
    for body in [json!({"model": "demo/echo"}), json!({"model": "demo/other"})] {
        let fault = fault(ask(&closed, "POST /v1/sessions", "", &body));
        assert_eq!(fault.pointer, "/model");
        let unknown = "the provider is one of openai, anthropic, workers-ai";
        assert!(fault.detail.starts_with("unknown model") && fault.detail.ends_with(unknown), "{fault:?}");
    }
    let open = stage(|settings| settings.demo = true);
    ask(&open, "POST /v1/sessions", "", &json!({"model": "demo/echo"})).unwrap();
    open.post("t1", "/say hi");
    open.settle();
    assert_eq!(open.end("t1").reply.unwrap().text, "hi");
}

#[test]
fn a_stored_session_cannot_use_a_demo_model_that_is_no_longer_offered() {
    let closed = stage(|_| ());
    ask(&closed, "POST /v1/sessions", "", &json!({})).unwrap();
    let session = closed.session();
    session.commit(NOW, |draft| draft.set_model(Some("demo/echo".into()))).unwrap();
    closed.post("t1", "/tool echo {\"text\": \"hi\"}");
    closed.settle();
    let error = error_of(&closed, "t1");
    assert!(error["message"].as_str().unwrap().starts_with("unknown model \"demo/echo\""), "{error}");
}

#[test]
fn a_tenants_list_narrows_that_of_the_deployment() {
    let stage = stage(|settings| {
        settings.demo = true;
        settings.allow = Some(ModelList(vec!["openai/*".into(), "demo/echo".into()]));
    });
    limit(&stage, 1, &["openai/large-*", "demo/*", "anthropic/*"]);
    for (body, available) in [
        (json!({"model": "anthropic/x"}), None),
        (json!({"model": "openai/small"}), Some("openai/large-*, demo/*, anthropic/*")),
        // The default model, which the tenant may not use.
        (json!({}), Some("openai/large-*, demo/*, anthropic/*")),
    ] {
        let fault = fault(ask(&stage, "POST /v1/sessions", "", &body));
        assert_eq!(fault.pointer, "/model", "{body}");
        assert!(available.is_none_or(|available| fault.detail.ends_with(available)), "{fault:?}");
    }
    ask(&stage, "POST /v1/sessions", "", &json!({"model": "openai/large-1"})).unwrap();
    for (model, is_allowed) in
        [(json!("openai/small"), false), (Value::Null, false), (json!("demo/echo"), true)]
    {
        let answer = ask(&stage, "PATCH /v1/sessions/s", "", &json!({"model": model}));
        assert_eq!(answer.is_ok(), is_allowed, "{model}");
    }
    assert_eq!(model_of(&stage).as_deref(), Some("demo/echo"));
}

#[test]
fn a_stored_session_fails_its_next_turn_when_its_model_is_no_longer_allowed() {
    let stage = stage(|settings| settings.default = Some("demo/echo".into()));
    stage.post("t1", "/say hi");
    stage.settle();
    assert_eq!(stage.end("t1").reply.unwrap().text, "hi");
    limit(&stage, 1, &["openai/*"]);
    stage.post("t2", "/tool echo {\"text\": \"hi\"}");
    stage.settle();
    let message = error_of(&stage, "t2")["message"].clone();
    assert_eq!(message, "the model \"demo/echo\" is not available here; available: openai/*");
    let compact = respond(&stage, &call("POST /compact", "", &json!({}))).map(drop).unwrap_err();
    assert_eq!(compact.code, ErrorCode::ValidationFailed);
    limit(&stage, 2, &["demo/echo"]);
    stage.post("t3", "/say again");
    stage.settle();
    assert_eq!(stage.end("t3").reply.unwrap().text, "again");
}

#[test]
fn a_mode_sets_its_model_only_if_the_tenant_may_use_it() {
    let mode =
        |id: &str, model: &str| Mode { id: id.into(), default_model: Some(model.into()), ..Mode::default() };
    let modes = vec![mode("plan", "openai/large"), mode("build", "openai/small")];
    let stage = stage(|settings| settings.demo = true).with_modes(modes);
    limit(&stage, 1, &["openai/small", "demo/echo"]);
    let body = json!({"model": "demo/echo", "mode": "plan"});
    ask(&stage, "POST /v1/sessions", "", &body).unwrap();
    let switch = |mode: &str| {
        ask(&stage, "PATCH /v1/sessions/s", "", &json!({"mode": mode})).unwrap();
        model_of(&stage)
    };
    assert_eq!(switch("build").as_deref(), Some("openai/small"));
    limit(&stage, 2, &["openai/small"]);
    assert_eq!(
        switch("plan").as_deref(),
        Some("openai/small"),
        "neither the last model nor that of the mode"
    );
}
