//! Questions that servers ask during a request.

use super::*;
use pretty_assertions::assert_eq;

/// A connection to a legacy server without sessions.
fn legacy(http: &Rc<ScriptedHttp>) -> Connection {
    let server = connection(http, plain());
    http.respond(404, "");
    http.respond(200, result(2, &json!({"protocolVersion": "2025-11-25", "capabilities": {}})));
    http.respond(202, "");
    server
}

fn ask_for_a_day(id: &str) -> String {
    let params = json!({"message": "Which day?", "requestedSchema": {"type": "object"}});
    format!(
        "data: {}\n\n",
        json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
    )
}

#[test]
fn a_question_of_a_legacy_server_ends_the_request_until_it_is_answered() {
    let http = Rc::new(ScriptedHttp::default());
    let server = legacy(&http);
    let ask = |id: u64, on_question: &dyn Fn(&Value) -> Option<Value>| {
        let mut outgoing = Outgoing::call("a", id, "book", Map::new(), Vec::new());
        outgoing.on_question = Some(on_question);
        block_on(server.ask(&outgoing))
    };
    http.respond_with(200, EVENTS, ask_for_a_day("e1"));
    http.respond(202, "");
    http.respond(202, "");
    let Err(McpError::Asks(request)) = ask(50, &|_| None) else { panic!("no question") };
    assert_eq!(request["params"]["message"], "Which day?");
    let handshake = body(&http.requests()[1]);
    assert_eq!(handshake["params"]["capabilities"], json!({"elicitation": {"form": {}}}));
    let sent: Vec<_> = http.requests().iter().skip(4).map(body).collect();
    assert_eq!(
        (&sent[0]["method"], &sent[0]["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(50))
    );
    assert_eq!((&sent[1]["id"], &sent[1]["error"]["code"]), (&json!("e1"), &json!(-32000)));
    let done = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 51, "result": {"n": 1}}));
    http.respond_with(200, EVENTS, ask_for_a_day("e2") + &done);
    http.respond(202, "");
    let accepted = json!({"action": "accept", "content": {}});
    assert_eq!(ask(51, &|_| Some(accepted.clone())), Ok(json!({"n": 1})));
    let last = http.requests().pop().expect("a request");
    assert_eq!(body(&last), json!({"jsonrpc": "2.0", "id": "e2", "result": accepted}));
}
