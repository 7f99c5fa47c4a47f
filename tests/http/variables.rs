//! Configuration by variables, in the real Worker.

use crate::support::{Chat, Server, log::of_type};
use pretty_assertions::assert_eq;
use serde_json::json;

fn chat(server: &Server) -> Chat {
    let client = server.client();
    let session = client.post("/v1/sessions", json!({})).expect(201);
    Chat::new(client, session["id"].as_str().unwrap())
}

#[test]
fn variables_configure_thinking_reflection_and_judges() {
    let judges = json!([{"name": "polite", "instructions": "Is the reply polite?", "sample": 1}]);
    let server = Server::start(json!({
        "THINK": "low", "REFLECT_EVERY": "2", "JUDGES": judges.to_string(),
    }));
    let chat = chat(&server);
    let call = "/tool echo {\"text\": \"hi\"}\n/then /say done\n/reflect CONTINUE as planned\n\
        /judge {\"score\": 0.5, \"reason\": \"short\"}";
    let turns = [1, 2].map(|_| {
        let answer = chat.say(call);
        chat.until_logged("judge.completed");
        answer["turn_id"].as_str().unwrap().to_owned()
    });
    let reflections: Vec<_> =
        turns.iter().map(|turn| chat.get(&format!("/turns/{turn}"))["reflections"].clone()).collect();
    assert_eq!(reflections, [0, 1], "in every second turn");
    let reflected = of_type(&chat.log(), "turn.reflected").pop().unwrap().clone();
    assert_eq!(reflected["note"], "CONTINUE as planned");
    let grades = chat.get(&format!("/turns/{}", turns[0]))["judgements"].clone();
    assert_eq!(grades, json!([{"judge": "polite", "score": 0.5, "reason": "short"}]));
}

#[test]
fn a_misconfigured_deployment_reports_an_error_without_details() {
    let twice = json!([{"id": "a"}, {"id": "a"}]).to_string();
    for bad in [
        json!({"THINK": "sometimes"}),
        json!({"JUDGES": "[{}]"}),
        json!({"MODEL_PRICES": "{"}),
        json!({"MODES": twice}),
        json!({"EXTERNAL_TOOLS": "[{}]"}),
    ] {
        let server = Server::start(bad.clone());
        let problem = server.client().post("/v1/sessions", json!({})).expect(501);
        assert_eq!(problem["code"], "not_configured", "{bad}");
        for (name, value) in bad.as_object().unwrap() {
            let shown = problem["detail"].as_str().unwrap();
            assert!(!shown.contains(value.as_str().unwrap()) && !shown.contains(name.as_str()), "{shown}");
            server.expect_log(name);
            server.expect_log("malformed");
        }
    }
}

#[test]
fn a_short_operators_key_is_refused_and_named() {
    let short = "a-key-of-31-bytes-is-too-short!";
    let mut server = Server::start(json!({ "ADMIN_KEY": short }));
    let admin = server.anonymous().with_key(short);
    for path in ["/readyz", "/v1/admin/tenants"] {
        let problem = admin.get(path).expect(501);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("ADMIN_KEY") && detail.contains("openssl rand -hex 32"), "{detail}");
        assert!(!detail.contains(short), "{detail}");
    }
    server.client().post("/v1/tickets", json!({"session": "s"})).expect(501);
    server.anonymous().get("/healthz").expect(200);
    server.restart_with(json!({ "ADMIN_KEY": "a-key-of-32-bytes-is-long-enough" }));
    server.anonymous().get("/readyz").expect(200);
}

#[test]
fn variables_configure_modes_and_external_tools() {
    let modes = json!([{"id": "ask"}, {"id": "act", "default": true, "transitions_to": []}]);
    let tools = json!([{"name": "lookup", "description": "Looks a customer up.",
        "parameters": {"properties": {"id": {"type": "integer"}}}}]);
    let server = Server::start(json!({"MODES": modes.to_string(), "EXTERNAL_TOOLS": tools.to_string()}));
    let client = server.client();
    let made = client.post("/v1/sessions", json!({"id": "s"})).expect(201);
    assert_eq!(made["mode"], "act");
    let refused = client.patch("/v1/sessions/s", json!({"mode": "ask"})).expect(409);
    assert_eq!(refused["code"], "transition_not_allowed");
    let body = json!({"content": "/tool lookup {\"id\": 7}\n/then /say done"});
    let waits = client.post("/v1/sessions/s/messages", body).expect(200);
    let pending = &waits["pending"][0];
    assert_eq!((&pending["kind"], &pending["payload"]), (&json!("external"), &json!({"id": 7})));
    let answers = format!("/v1/sessions/s/answers/{}", pending["call_id"].as_str().unwrap());
    let ended = client.post(&answers, json!({"answer": {"name": "Ann"}})).expect(200);
    assert_eq!((&ended["status"], &ended["reply"]["text"]), (&json!("completed"), &json!("done")));
}
