//! HTTP tools in turns: secrets, failures, repetitions and limits.

use crate::stage::{Stage, ms};
use async_trait::async_trait;
use edge_harness::platform::in_memory::{
    ScriptedHttp, ScriptedModels,
    models::{answer, call},
};
use edge_harness::ports::{
    AllowedHosts, Clock, Http, HttpError, HttpRequest, HttpResponse, Secrets, directory::DirectoryError,
};
use edge_harness::tools::http_tool::{Checked, HttpTool, HttpToolPorts};
use edge_harness::types::{ModelRequest, Part, TenantId};
use futures::future::pending;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

const SECRET: &str = "the \"secret\"/value";
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// The secrets `A` and `B` of the tenant of the stage.
#[derive(Default)]
struct Stored {
    is_down: Cell<bool>,
}

#[async_trait(?Send)]
impl Secrets for Stored {
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<String>, DirectoryError> {
        if self.is_down.get() {
            return Err(DirectoryError("no such table: tenant_secrets".into()));
        }
        let secret =
            (name == "A").then(|| SECRET.to_owned()).or_else(|| (name == "B").then(|| "second".to_owned()));
        Ok(secret.filter(|_| **tenant == *"t"))
    }
}

/// A server that never responds.
struct Silent;

#[async_trait(?Send)]
impl Http for Silent {
    async fn send(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
        pending().await
    }
}

struct World {
    stage: Stage,
    http: Rc<ScriptedHttp>,
    models: Rc<ScriptedModels>,
    secrets: Rc<Stored>,
}

/// A stage whose agent has this tool and calls it once with these arguments.
fn world(tool: Value, args: Value, http: Option<Rc<dyn Http>>) -> World {
    let scripted = Rc::new(ScriptedHttp::default());
    let (secrets, http) = (Rc::new(Stored::default()), http.unwrap_or_else(|| scripted.clone()));
    let ports = HttpToolPorts { http, secrets: secrets.clone(), allow: AllowedHosts::parse("*") };
    let name = tool["name"].as_str().unwrap().to_owned();
    let script = move |request: &ModelRequest| match request.messages.len() {
        1 => answer(vec![call("c", &name, args.clone())]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, models) = Stage::scripted(script, move |builder| {
        let declared = serde_json::from_value(tool.clone()).unwrap();
        let tool = Checked::new(declared).unwrap_or_else(|faults| panic!("{faults:?}"));
        builder.dyn_tool(Rc::new(HttpTool::new(tool, ports.clone())))
    });
    World { stage, http: scripted, models, secrets }
}

impl World {
    /// Runs the turn, and returns the record of the call's outcome.
    fn outcome(&self) -> Value {
        self.stage.post("t1", "go");
        self.stage.settle();
        let records = self.stage.records();
        records.into_iter().find(|record| record["type"] == "tool.completed").expect("an outcome")
    }

    /// Everything that is stored, logged or sent to the model.
    fn traces(&self) -> String {
        let requests = self.models.requests();
        let prompts: Vec<String> = requests.iter().map(|request| format!("{:?}", request.messages)).collect();
        format!("{:?} {:?} {}", self.stage.records(), self.stage.log.lines(), prompts.join(" "))
    }
}

fn lookup() -> Value {
    json!({
        "name": "lookup", "description": "Looks up.", "url": "https://crm.example.com/c/{{id}}?key=${secret:A}",
        "parameters": {"properties": {"id": {"type": "string"}, "note": {"type": "string"}}, "required": ["id"]},
        "headers": {"Authorization": "Bearer ${secret:B}", "X-Note": "{{note}}"},
    })
}

fn change() -> Value {
    json!({
        "name": "change", "method": "POST", "url": "https://crm.example.com/c", "effect": "network",
        "parameters": {"properties": {"text": {"type": "string"}}},
        "body": {"text": "{{text}}", "token": "${secret:A}"},
    })
}

#[test]
fn a_secret_is_sent_to_the_server_only() {
    let world = world(lookup(), json!({"id": "a/b"}), None);
    let echo = json!({"you": "Bearer second", "url": "https://crm.example.com/c/a%2Fb?key=the%20%22secret%22%2Fvalue",
                      "raw": SECRET, "name": "Ann"});
    world.http.respond_with(200, JSON, echo.to_string());
    let outcome = world.outcome();
    let sent = world.http.requests();
    assert_eq!(sent[0].url, "https://crm.example.com/c/a%2Fb?key=the%20%22secret%22%2Fvalue");
    assert!(sent[0].headers.contains(&("authorization".into(), "Bearer second".into())));
    assert!(!sent[0].headers.iter().any(|(name, _)| name == "x-note"));
    let expected = json!({"you": "Bearer [secret B]", "url": "https://crm.example.com/c/a%2Fb?key=[secret A]",
                          "raw": "[secret A]", "name": "Ann"});
    assert_eq!((&outcome["outcome"], &outcome["result"]), (&json!("result"), &expected));
    let traces = world.traces();
    for hidden in ["second", "the \\\"secret", "the%20%22secret"] {
        assert!(!traces.contains(hidden), "{hidden}: {traces}");
    }
}

#[test]
fn the_text_of_an_argument_is_no_reference_to_a_secret() {
    let args = json!({"id": "${secret:A}", "note": "${secret:B}"});
    let world = world(lookup(), args, None);
    world.http.respond_with(200, JSON, "{}");
    assert_eq!(world.outcome()["outcome"], "result");
    let sent = &world.http.requests()[0];
    assert!(sent.url.starts_with("https://crm.example.com/c/%24%7Bsecret%3AA%7D?key="), "{}", sent.url);
    assert!(sent.headers.contains(&("x-note".into(), "${secret:B}".into())));
    let own = self::world(change(), json!({"text": "${secret:B} {{token}}"}), None);
    own.http.respond_with(200, JSON, "{}");
    own.outcome();
    let body: Value = serde_json::from_slice(own.http.requests()[0].body.as_deref().unwrap()).unwrap();
    assert_eq!(body, json!({"text": "${secret:B} {{token}}", "token": SECRET}));
}

#[test]
fn a_failure_has_the_start_of_the_response_without_secrets() {
    let world = world(change(), json!({}), None);
    let body = format!("unknown token {SECRET}: {}", "x".repeat(3_000));
    world.http.respond_with(403, &[("x-header", "hidden-header")], body);
    let outcome = world.outcome();
    let reason = outcome["reason"].as_str().unwrap();
    assert_eq!(outcome["outcome"], "failure");
    assert!(reason.contains("status 403") && reason.contains("unknown token [secret A]: xxx"), "{reason}");
    assert!(reason.len() < 2_200 && !reason.contains("hidden-header"), "{reason}");
    let prompt = format!("{:?}", world.models.requests().last().unwrap().messages);
    assert!(prompt.contains("status 403") && prompt.contains("untrusted"), "{prompt}");
    let traces = world.traces();
    assert!(!traces.contains("the \\\"secret"), "{traces}");
}

#[test]
fn reads_are_repeated_and_changes_are_not() {
    let world = self::world(lookup(), json!({"id": "a"}), None);
    world.http.respond(503, "later");
    world.http.respond_with(429, &[("retry-after", "2")], "later");
    world.http.respond_with(200, JSON, "[1]");
    let start = world.stage.clock.now();
    assert_eq!(world.outcome()["result"], json!([1]));
    assert_eq!(world.http.requests().len(), 3);
    assert!(world.stage.clock.now().since(start) >= ms(2_500));
    let failing = self::world(lookup(), json!({"id": "a"}), None);
    for _ in 0..4 {
        failing.http.respond(500, "broken");
    }
    assert!(failing.outcome()["reason"].as_str().unwrap().contains("status 500"));
    assert_eq!(failing.http.requests().len(), 3);
    let once = self::world(change(), json!({}), None);
    once.http.respond(503, "later");
    once.http.respond_with(200, JSON, "{}");
    assert_eq!(once.outcome()["outcome"], "failure");
    assert_eq!(once.http.requests().len(), 1);
    let mut declared = change();
    declared["idempotent"] = json!(true);
    let again = self::world(declared, json!({}), None);
    again.http.respond(503, "later");
    again.http.respond_with(200, JSON, "{}");
    assert_eq!(again.outcome()["outcome"], "result");
    // The queue is empty, so the connection fails.
    let offline = self::world(change(), json!({}), None);
    let lost = offline.outcome();
    let expected =
        "the connection failed: offline; the request may have taken effect. Check before you try again.";
    assert_eq!((&lost["outcome"], &lost["reason"]), (&json!("unknown"), &json!(expected)));
    // A proxy has lost the server.
    let lost = self::world(change(), json!({}), None);
    lost.http.respond(504, "<html>");
    assert_eq!(lost.outcome()["outcome"], "unknown");
    assert_eq!(lost.http.requests().len(), 1);
}

#[test]
fn a_change_whose_response_cannot_be_read_says_that_it_was_made() {
    let world = world(change(), json!({}), None);
    world.http.respond_with(200, &[("content-type", "image/png")], "png");
    let outcome = world.outcome();
    let expected = "the server accepted the request, but the response is neither JSON nor text; its type is \"image/png\"";
    assert_eq!((&outcome["outcome"], &outcome["reason"]), (&json!("failure"), &json!(expected)));
}

#[test]
fn a_server_that_asks_to_wait_too_long_is_not_asked_again() {
    let world = world(lookup(), json!({"id": "a"}), None);
    world.http.respond_with(429, &[("retry-after", "3000")], "slow down");
    assert!(world.outcome()["reason"].as_str().unwrap().contains("status 429"));
    assert_eq!(world.http.requests().len(), 1);
}

#[test]
fn a_call_takes_at_most_its_timeout() {
    for (tool, doubt) in [(lookup(), false), (change(), true)] {
        let mut tool = tool;
        tool["timeout_s"] = json!(3);
        let world = world(tool, json!({"id": "a"}), Some(Rc::new(Silent)));
        let start = world.stage.clock.now();
        let outcome = world.outcome();
        assert_eq!(outcome["outcome"], if doubt { "unknown" } else { "timeout" });
        let reason = outcome["reason"].as_str().unwrap();
        assert_eq!(reason.contains("may have taken effect"), doubt, "{reason}");
        let took = world.stage.clock.now().since(start);
        assert!(took >= ms(3_000) && took < ms(5_000), "{took:?}");
    }
}

#[test]
fn a_call_that_cannot_be_sent_says_why() {
    let refused = |tool: Value, args: Value| {
        let world = world(tool, args, None);
        let outcome = world.outcome();
        assert_eq!(world.http.requests().len(), 0, "{outcome}");
        outcome["reason"].as_str().unwrap().to_owned()
    };
    let mut optional = lookup();
    optional["parameters"]["required"] = json!([]);
    assert!(refused(optional, json!({})).contains("the argument `id` is missing"));
    assert!(refused(lookup(), json!({"id": ".."})).contains("`id` cannot be used"));
    assert!(refused(lookup(), json!({"id": ["a"]})).contains("do not match the schema at"));
    assert!(refused(lookup(), json!({"id": "a", "note": "a\nb: c"})).contains("control character"));
    let mut unknown = lookup();
    unknown["headers"] = json!({"X-Key": "${secret:MISSING}"});
    let reason = refused(unknown, json!({"id": "a"}));
    assert_eq!(reason, "there is no secret \"MISSING\"; store it with PUT /v1/secrets/MISSING");
    let mut private = lookup();
    private["url"] = json!("https://10.0.0.1/{{id}}");
    assert!(refused(private, json!({"id": "a"})).contains("not on the public internet"));
    let down = world(lookup(), json!({"id": "a"}), None);
    down.secrets.is_down.set(true);
    let reason = down.outcome()["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, "the secrets cannot be read; try again");
}
