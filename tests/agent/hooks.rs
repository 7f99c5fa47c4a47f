//! The changes that hooks can make to a turn.

use crate::scripts::step_of;
use crate::stage::Stage;
use async_trait::async_trait;
use edge_harness::agent::{
    ActDecision, Hook, RuntimeContext,
    hook::{HookEvent, OnError, PostActing, PreActing, PreCall, PreReasoning, SubStepError},
};
use edge_harness::platform::in_memory::models::{ScriptedResponse, answer, call};
use edge_harness::types::{
    ModelRequest, Part, StopReason, ToolOutcome, TurnError, TurnStatus, message::text_of,
};
use serde_json::json;
use std::{cell::RefCell, rc::Rc};

/// Calls `read_it` once, then repeats the tool's result.
fn one_call(request: &ModelRequest) -> ScriptedResponse {
    let result = request.messages.iter().flat_map(|m| &m.parts).find_map(|part| match part {
        Part::ToolResult { outcome, .. } => Some(outcome.model_text().into_owned()),
        _ => None,
    });
    match step_of(request) {
        0 => answer(vec![call("c1", "read_it", json!({"key": "a"}))]),
        _ => answer(vec![Part::text(result.unwrap_or_default())]),
    }
}

/// A hook with configurable decisions.
#[derive(Default)]
struct Choices {
    name: &'static str,
    say: Option<&'static str>,
    system: Option<&'static str>,
    act: Option<ActDecision>,
    key: Option<&'static str>,
    outcome: Option<ToolOutcome>,
    refuse: Option<TurnError>,
    errors: Rc<RefCell<Vec<String>>>,
}

#[async_trait(?Send)]
impl Hook for Choices {
    fn name(&self) -> &'static str {
        self.name
    }
    fn events(&self) -> &'static [HookEvent] {
        &HookEvent::ALL
    }
    async fn pre_call(&self, event: &mut PreCall, _cx: &RuntimeContext) -> Result<(), TurnError> {
        if let Some(say) = self.say {
            event.message.parts = vec![Part::text(say)];
        }
        self.refuse.clone().map_or(Ok(()), Err)
    }
    async fn pre_reasoning(&self, event: &mut PreReasoning, _cx: &RuntimeContext) -> Result<(), TurnError> {
        if let Some(system) = self.system {
            event.request.system = system.into();
        }
        Ok(())
    }
    async fn pre_acting(&self, event: &mut PreActing<'_>, _cx: &RuntimeContext) -> ActDecision {
        if let Some(key) = self.key {
            event.call.args["key"] = key.into();
        }
        self.act.clone().unwrap_or(ActDecision::Continue)
    }
    async fn post_acting(&self, event: &mut PostActing<'_>, _cx: &RuntimeContext) {
        if let Some(outcome) = &self.outcome {
            event.outcome = outcome.clone();
        }
    }
    fn on_error(&self, event: &mut OnError<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.errors.borrow_mut().push(event.error.code.clone());
        Ok(())
    }
}

/// The stage after one turn with these hooks, and the requests to the model.
fn turn(hooks: fn() -> Vec<Choices>) -> (Stage, Vec<ModelRequest>) {
    let (stage, models) =
        Stage::scripted(one_call, move |builder| hooks().into_iter().fold(builder, |b, h| b.hook(h)));
    stage.post("t1", "original");
    stage.settle();
    stage.check();
    // Extracting facts after the turn uses no tools.
    let requests = models.requests().into_iter().filter(|request| !request.tools.is_empty()).collect();
    (stage, requests)
}

fn result(text: &str) -> ToolOutcome {
    ToolOutcome::Result { result: text.into() }
}

fn reply(stage: &Stage) -> String {
    stage.end("t1").reply.map(|reply| text_of(&reply.parts)).unwrap_or_default()
}

#[test]
fn pre_call_changes_the_prompt_but_not_the_log() {
    let (stage, requests) = turn(|| vec![Choices { name: "a", say: Some("redacted"), ..Choices::default() }]);
    for request in &requests {
        assert_eq!(request.messages[0].text(), "redacted");
    }
    let records = stage.records();
    assert_eq!(records[1]["message"]["parts"][0]["text"], "original");
    assert_eq!(stage.session().messages()[0].text(), "original");
}

#[test]
fn pre_reasoning_changes_the_request() {
    let (_, requests) = turn(|| vec![Choices { name: "a", system: Some("be brief"), ..Choices::default() }]);
    // The built-in hooks run later.
    let own = |request: &ModelRequest| request.system.split("\n\n").next().map(str::to_owned);
    assert_eq!(requests.iter().filter_map(own).collect::<Vec<_>>(), ["be brief"; 2]);
}

#[test]
fn deny_beats_answer_in_any_order() {
    fn deny(name: &'static str) -> Choices {
        Choices { name, act: Some(ActDecision::Deny("not at night".into())), ..Choices::default() }
    }
    fn answer(name: &'static str) -> Choices {
        Choices { name, act: Some(ActDecision::Outcome(result("from a cache"))), ..Choices::default() }
    }
    for hooks in [(|| vec![deny("a"), answer("b")]) as fn() -> _, || vec![answer("a"), deny("b")]] {
        assert_eq!(reply(&turn(hooks).0), "Not run: not at night");
    }
    assert_eq!(reply(&turn(|| vec![answer("a")]).0), "from a cache");
}

#[test]
fn pre_acting_changes_arguments_but_not_the_log() {
    let (stage, _) = turn(|| vec![Choices { name: "a", key: Some("b"), ..Choices::default() }]);
    assert_eq!(reply(&stage), "read b");
    let started = stage.records().into_iter().find(|r| r["type"] == "tool.started").unwrap();
    assert_eq!(started["args"], json!({"key": "a"}));
}

#[test]
fn post_acting_changes_the_outcome_before_it_is_recorded() {
    let (stage, _) =
        turn(|| vec![Choices { name: "a", outcome: Some(result("masked")), ..Choices::default() }]);
    assert_eq!(reply(&stage), "masked");
    let completed = stage.records().into_iter().find(|r| r["type"] == "tool.completed").unwrap();
    assert_eq!(completed["result"], "masked");
}

#[test]
fn a_failing_hook_fails_the_turn_and_error_hooks_run() {
    let error = || TurnError::new("over_quota", "no", false);
    let errors = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&errors);
    let (stage, _) = Stage::scripted(one_call, move |builder| {
        let errors = Rc::clone(&heard);
        builder.hook(Choices { name: "a", refuse: Some(error()), errors, ..Choices::default() })
    });
    stage.post("t1", "hello");
    stage.settle();
    stage.check();
    let end = stage.end("t1");
    assert_eq!(
        (end.status, end.stop_reason, end.error),
        (TurnStatus::Failed, StopReason::Error, Some(error()))
    );
    assert_eq!(*errors.borrow(), ["over_quota"]);
    // The error's message may contain text of the user.
    let line = stage.log.lines().pop().unwrap();
    assert_eq!((&line["event"], &line["code"]), (&"turn.failed".into(), &"over_quota".into()));
    assert!(!line.to_string().contains(&error().message), "{line}");
}

#[test]
fn a_session_sums_the_usage_of_its_turns() {
    let (stage, _) = turn(Vec::new);
    let used = stage.end("t1").usage;
    stage.post("t2", "again");
    stage.settle();
    let total = stage.session().state().activity.totals.usage;
    assert_eq!(total.total_tokens, used.total_tokens + stage.end("t2").usage.total_tokens);
}
