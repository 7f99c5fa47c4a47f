//! Which models sessions may use.

use crate::http::ask;
use crate::stage::{NOW, Stage};
use edge_harness::http::Response;
use edge_harness::model::{ModelRegistry, ModelSettings};
use edge_harness::platform::in_memory::{ManualClock, ScriptedHttp};
use edge_harness::types::{ErrorCode, FieldError, Problem};
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
