//! The title, the cost and the queue length of a session.

use crate::http::{ask, call, respond_beside, whole};
use crate::stage::{NOW, Stage};
use edge_harness::agent::OnBusy;
use edge_harness::platform::in_memory::{ManualClock, ScriptedModels, models::answer};
use edge_harness::ports::directory::SessionKinds;
use edge_harness::ports::{Directory, Model, Models};
use edge_harness::types::{
    BudgetPatch, Category, ModelError, ModelEvent, ModelResponse, Part, PatternRule, Policy, Price, Usage,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

fn title(stage: &Stage) -> (Value, Value) {
    let session = whole(ask(stage, "GET /v1/sessions/s", "", &json!({})).unwrap());
    (session["title"].clone(), session["title_pinned"].clone())
}

fn patch(stage: &Stage, body: Value) {
    ask(stage, "PATCH /v1/sessions/s", "", &body).unwrap();
}

#[test]
fn a_title_set_by_a_caller_stays_until_it_is_removed() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    assert_eq!(title(&stage), (json!("hello"), json!(false)));
    patch(&stage, json!({"title": "hello"}));
    assert_eq!(title(&stage), (json!("hello"), json!(true)));
    patch(&stage, json!({"title": "Mine"}));
    stage.post("t2", "two");
    stage.settle();
    assert_eq!(title(&stage), (json!("Mine"), json!(true)));
    patch(&stage, json!({"title": null}));
    assert_eq!(title(&stage), (Value::Null, json!(false)));
    stage.post("t3", "three");
    stage.settle();
    assert_eq!(title(&stage), (json!("three"), json!(false)));
    let line =
        block_on(stage.directory.sessions(SessionKinds::Conversations, &"t".into(), None, None, None, 10))
            .unwrap()
            .pop()
            .unwrap();
    assert_eq!(line.title.as_deref(), Some("three"), "the directory is updated");
}

#[test]
fn a_queued_message_sets_the_title_when_it_starts() {
    let stage = Stage::demo();
    stage.post("t1", "/slow 10 3");
    stage.run();
    stage.post("t2", "second");
    patch(&stage, json!({"title": null}));
    stage.settle();
    assert_eq!(title(&stage), (json!("second"), json!(false)));
    let named = Stage::demo();
    ask(&named, "POST /v1/sessions", "", &json!({"title": "Mine"})).unwrap();
    named.post("t1", "hello");
    named.settle();
    assert_eq!(title(&named), (json!("Mine"), json!(true)));
}

struct Priced(ScriptedModels);

impl Models for Priced {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.0.resolve(id)
    }

    fn default_model(&self) -> String {
        self.0.default_model()
    }

    fn price(&self, _id: &str) -> Option<Price> {
        Some(Price { input: 1_000.0, output: 1_000.0, cache_read: None, cache_write: None })
    }
}

#[test]
fn a_session_sums_its_turns_cost_and_a_fork_starts_at_zero() {
    let models = Priced(ScriptedModels::new(|_| {
        let usage = Usage { input_tokens: 700, output_tokens: 300, total_tokens: 1_000, ..Usage::default() };
        let counted = |event| match event {
            Ok(ModelEvent::Done(response)) => Ok(ModelEvent::Done(ModelResponse { usage, ..response })),
            other => other,
        };
        answer(vec![Part::text("x")]).into_iter().map(counted).collect()
    }));
    let stage = Stage::with(ManualClock::at(NOW), Rc::new(models), |builder| builder);
    for turn in ["t1", "t2"] {
        stage.post(turn, "hello");
        stage.settle();
    }
    let rule = PatternRule { tool: None, pattern: "x".into(), policy: Policy::Deny };
    stage.permit(|permissions| {
        permissions.yolo = true;
        permissions.patterns.push(rule);
        permissions.grants.categories.insert(Category::Edit);
        permissions.grants.tools.insert("echo".into());
    });
    let shown = whole(ask(&stage, "GET /v1/sessions/s", "", &json!({})).unwrap());
    assert_eq!((&shown["usage"]["total_tokens"], &shown["cost_usd"]), (&json!(2_000), &json!(2.0)));
    let other = Rc::new(Stage::demo());
    let fork = call("POST /fork", "", &json!({}));
    let copy = whole(respond_beside(&stage, &other, &fork).unwrap());
    assert_eq!((&copy["usage"]["total_tokens"], copy.get("cost_usd")), (&json!(0), None));
    let permissions = &copy["permissions"];
    assert_eq!((&permissions["yolo"], &permissions["grants"]), (&json!(false), &json!({})));
    assert_eq!(permissions["tools"], json!({"echo": "ask"}), "a grant does not remove the rule");
    assert_eq!(permissions["patterns"], json!([{"pattern": "x", "policy": "deny"}]));
}

#[test]
fn changes_of_the_queue_length_are_recorded() {
    let stage = Stage::demo();
    stage.post("t1", "/tool read_it {\"key\": \"k\"}");
    stage.run();
    for turn in ["t2", "t3", "t4"] {
        stage.post(turn, "hello");
    }
    assert!(stage.host().remove_queued(&stage.session(), &"t3".into()).unwrap());
    let fork = call("POST /fork", "", &json!({}));
    let other = Rc::new(Stage::demo());
    respond_beside(&stage, &other, &fork).unwrap();
    stage.settle();
    stage.post("t5", "/tool read_it {\"key\": \"k\"}");
    stage.post("t6", "hello");
    stage.post("t7", "hello");
    stage.try_post("t8", "hello", OnBusy::Steer, BudgetPatch::default()).unwrap();
    stage.settle();
    stage.check();
    let counts = |stage: &Stage| -> Vec<Value> {
        let queued = stage.records().into_iter().filter(|record| record["type"] == "followup.queued");
        queued.map(|record| record["count"].clone()).collect()
    };
    assert_eq!(json!(counts(&stage)), json!([1, 2, 3, 2, 1, 0, 1, 2, 0]));
    assert_eq!(json!(counts(&other)), json!([1, 2, 3, 2, 0]));
    let kinds = stage.kinds();
    let queued = kinds.iter().position(|kind| kind == "turn.queued").unwrap();
    assert_eq!(kinds[queued + 1], "followup.queued");
}
