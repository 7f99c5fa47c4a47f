//! The Responses of OpenAI, with the session's object in memory.

use crate::http::{exchange, request, status, stream, whole};
use crate::scripts::{says, step_of};
use crate::stage::{Stage, ms};
use edge_harness::http::Response;
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::session::hub::ByteReceiver;
use edge_harness::standard::Config;
use edge_harness::types::{
    Category, ErrorCode, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part, Policy, Problem, Role,
};
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

const CREATE: &str = "POST /v1/responses";

fn send(stage: &Stage, route: &str, query: &str, body: &Value) -> Result<Response, Problem> {
    let asked = request(route, query, &[], body.to_string());
    exchange(stage, asked)
}

fn create(stage: &Stage, body: Value) -> Value {
    let response = send(stage, CREATE, "", &asked(body)).unwrap();
    assert_eq!(status(&response), 200);
    whole(response)
}

/// A request in the conversation of the stage's session.
fn asked(mut body: Value) -> Value {
    body["model"] = "default".into();
    if body["previous_response_id"].is_null() && body["store"].is_null() {
        body["conversation"] = "s".into();
    }
    body
}

fn show(stage: &Stage, id: &Value) -> Value {
    whole(send(stage, &format!("GET /v1/responses/{}", id.as_str().unwrap()), "", &json!({})).unwrap())
}

/// Reads a stream to its end.
fn read_all(stage: &Stage, mut open: ByteReceiver) -> Vec<Value> {
    let mut out = Vec::new();
    for _ in 0..300 {
        while let Some(item) = open.next().now_or_never() {
            let Some(bytes) = item else { return events(&String::from_utf8(out).unwrap()) };
            out.extend_from_slice(&bytes.expect("a complete stream"));
        }
        stage.tick(ms(10));
    }
    panic!("no end: {}", String::from_utf8_lossy(&out));
}

fn events(text: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    let blocks: Vec<_> = text.split_terminator("\n\n").filter(|block| !block.starts_with(':')).collect();
    assert_eq!(blocks.last(), Some(&"data: [DONE]"));
    for block in &blocks[..blocks.len() - 1] {
        let (event, data) = block.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event, format!("event: {}", data["type"].as_str().unwrap()));
        found.push(data);
    }
    found
}

fn streamed(stage: &Stage, mut body: Value) -> Vec<Value> {
    body["stream"] = true.into();
    let found = read_all(stage, stream(send(stage, CREATE, "", &asked(body)).unwrap()));
    check(&found);
    found
}

/// Checks what the accumulators of clients require.
fn check(events: &[Value]) {
    let mut open: Vec<Option<Value>> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], json!(index));
        let place = event["output_index"].as_u64().map(|place| usize::try_from(place).unwrap());
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(place, Some(open.len()), "{event}");
                open.push(Some(event["item"]["id"].clone()));
            }
            "response.output_item.done" => {
                assert_eq!(open[place.unwrap()].take(), Some(event["item"]["id"].clone()), "{event}");
            }
            _ if place.is_some() => assert!(open[place.unwrap()].is_some(), "{event}"),
            _ => {}
        }
        assert!(event["response"].is_null() || event["response"]["id"] == events[0]["response"]["id"]);
    }
    assert!(open.iter().all(Option::is_none), "every item is done");
    assert_eq!(
        (&events[0]["type"], &events[1]["type"]),
        (&json!("response.created"), &json!("response.in_progress"))
    );
    let last = &events.last().unwrap()["response"];
    let done: Vec<_> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    let items: Vec<_> = done.iter().map(|event| event["item"].clone()).collect();
    let by_index = |item: &Value| items.iter().position(|other| other["id"] == item["id"]);
    assert!(last["output"].as_array().unwrap().iter().all(|item| by_index(item).is_some()));
}

fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

fn texts(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

/// The fields that Open Responses requires of a response, besides `output`, with those of a request that says nothing.
fn defaults() -> Value {
    json!({
        "object": "response", "status": "completed", "incomplete_details": null, "model": "default",
        "previous_response_id": null, "instructions": null, "error": null, "tools": [], "tool_choice": "auto",
        "truncation": "disabled", "parallel_tool_calls": true, "text": {"format": {"type": "text"}}, "top_p": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0, "temperature": 1.0,
        "reasoning": {"effort": null, "summary": null}, "user": null, "max_output_tokens": null,
        "max_tool_calls": null, "store": true, "background": false, "service_tier": "default", "metadata": {},
        "safety_identifier": null, "prompt_cache_key": null,
    })
}

#[test]
fn a_response_has_all_fields_that_clients_require() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let mut response = create(&stage, json!({"input": "hi"}));
    assert_eq!(texts(&response), ["Hello"]);
    let fields = response.as_object_mut().unwrap();
    fields.remove("output");
    assert!(fields.remove("id").unwrap().is_string());
    assert!(["created_at", "completed_at"].iter().all(|name| fields.remove(*name).unwrap().is_u64()));
    assert_eq!(fields.remove("usage").unwrap()["total_tokens"], json!(7));
    assert_eq!(response, defaults());
}

#[test]
fn a_response_repeats_its_request() {
    let (stage, _) = Stage::scripted(|_| says("{\"a\": 1}"), |builder| builder);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let asked = json!({
        "instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.5, "truncation": "auto",
        "parallel_tool_calls": false, "max_output_tokens": 90, "tool_choice": "none", "user": "ann",
        "reasoning": {"effort": "max", "summary": "auto"}, "safety_identifier": "x", "prompt_cache_key": "y",
    });
    let mut body = asked.clone();
    body["input"] = "hi".into();
    body["tools"] = json!([{"type": "function", "name": "look"}]);
    body["text"] =
        json!({"format": {"type": "json_schema", "name": "n", "schema": schema}, "verbosity": "low"});
    let response = create(&stage, body);
    for (name, value) in asked.as_object().unwrap() {
        assert_eq!(response[name], *value, "{name}");
    }
    // With the fields that a request may omit, and a response may not.
    let tool =
        json!({"type": "function", "name": "look", "description": null, "parameters": null, "strict": null});
    assert_eq!(response["tools"], json!([tool]));
    let format =
        json!({"type": "json_schema", "name": "n", "description": null, "schema": schema, "strict": false});
    assert_eq!(response["text"], json!({"format": format, "verbosity": "low"}));
    let response =
        create(&stage, json!({"input": "hi", "user": "ann", "text": {"format": {"type": "json_object"}}}));
    assert_eq!(response["text"], json!({"format": {"type": "json_object"}}));
}

#[test]
fn a_field_that_is_null_is_absent() {
    let (stage, _) = Stage::scripted(|_| says("{}"), |builder| builder);
    let nullable = [
        "background",
        "include",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ];
    let mut bodies: Vec<_> = nullable.map(|name| json!({"input": "hi", name: null})).into();
    let tool =
        json!({"type": "function", "name": "look", "description": null, "parameters": null, "strict": null});
    let format = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": null});
    bodies.extend([
        json!({"input": "hi", "tools": [tool]}),
        json!({"input": "hi", "reasoning": {"effort": null, "summary": null}}),
        json!({"input": "hi", "text": {"format": null, "verbosity": null}}),
        json!({"input": "hi", "text": {"format": format}}),
    ]);
    for body in bodies {
        let mut fields = defaults();
        fields
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !["tools", "text", "status"].contains(&name.as_str()));
        let response = create(&stage, body.clone());
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(response[name], *value, "{body}");
        }
    }
}

#[test]
fn a_stream_is_numbered_the_same_when_it_is_read_again() {
    let script = |_: &ModelRequest| {
        let text = "Hello to the whole wide world";
        let mut events = says(text);
        events[0] = Ok(ModelEvent::Text(text[..9].into()));
        events.insert(1, Ok(ModelEvent::Text(text[9..].into())));
        events
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let live = streamed(&stage, json!({"input": "hi"}));
    let id = live[0]["response"]["id"].as_str().unwrap().to_owned();
    let again = |query: &str| {
        let response = send(&stage, &format!("GET /v1/responses/{id}"), query, &json!({})).unwrap();
        read_all(&stage, stream(response))
    };
    let shape = |events: &[Value]| -> Vec<Value> {
        events.iter().map(|event| json!([event["sequence_number"], event["type"], event["delta"]])).collect()
    };
    assert_eq!(shape(&again("stream=true")), shape(&live));
    assert_eq!(shape(&again("stream=true&starting_after=5")), shape(&live[6..]));
    assert_eq!(show(&stage, &json!(id))["output"], live.last().unwrap()["response"]["output"]);
}

#[test]
fn a_long_stream_is_read_again_as_fast_as_its_reader_reads() {
    let text = "many words ".repeat(50_000);
    let said = text.clone();
    let (stage, _) = Stage::scripted(move |_: &ModelRequest| says(&said), |builder| builder);
    let response = create(&stage, json!({"input": "hi"}));
    let id = response["id"].as_str().unwrap();
    let again = |query: &str| {
        let response = send(&stage, &format!("GET /v1/responses/{id}"), query, &json!({})).unwrap();
        read_all(&stage, stream(response))
    };
    let whole = again("stream=true");
    check(&whole);
    let deltas =
        |events: &[Value]| -> String { events.iter().filter_map(|event| event["delta"].as_str()).collect() };
    assert_eq!(deltas(&whole), text);
    let number = 60_000;
    assert_eq!(again(&format!("stream=true&starting_after={number}")), whole[number + 1..]);
}

#[test]
fn the_next_response_continues_the_conversation() {
    let (stage, models) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let first = create(&stage, json!({"input": "one"}));
    create(&stage, json!({"input": "two", "previous_response_id": first["id"]}));
    let shown: Vec<_> = models.requests()[1].messages.iter().map(|message| message.text()).collect();
    assert_eq!(shown, ["one", "Hello", "two"]);
    let older = send(&stage, CREATE, "", &asked(json!({"input": "x", "previous_response_id": first["id"]})));
    let problem = older.map(drop).unwrap_err();
    assert_eq!(problem.errors[0].pointer, "/previous_response_id");
    let unknown = json!({"input": "x", "previous_response_id": "resp_trn_1_0.s"});
    assert!(send(&stage, CREATE, "", &asked(unknown)).is_err());
}

#[test]
fn tools_of_the_server_appear_with_their_output() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(vec![
            Part::text("Look."),
            call("c1", "echo", json!({"text": "a"})),
            call("c2", "echo", json!({"text": "b"})),
        ]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let events = streamed(&stage, json!({"input": "hi"}));
    let response = &events.last().unwrap()["response"];
    let expected = [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ];
    assert_eq!((kinds(response), texts(response)), (expected.to_vec(), vec!["Look.", "Done"]));
    assert_eq!(response["output"][1]["call_id"], response["output"][3]["call_id"]);
}

#[test]
fn the_client_runs_its_tools_and_each_part_of_the_turn_is_a_response() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("It is 7."),
        _ => answer(vec![call("c1", "look", json!({"at": 1}))]),
    };
    let tools = json!([{"type": "function", "name": "look", "strict": true,
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}]);
    for store in [None, Some(false)] {
        let (stage, _) = Stage::scripted(script, |builder| builder);
        let input = json!([{"role": "user", "content": "look"}]);
        let mut body = json!({"input": input, "tools": tools});
        store.into_iter().for_each(|store| body["store"] = store.into());
        let first = create(&stage, body.clone());
        assert_eq!((kinds(&first), &first["status"]), (vec!["function_call"], &json!("completed")));
        let result = json!({
            "type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "7",
        });
        let second = match store {
            None => create(&stage, json!({"input": [result], "previous_response_id": first["id"]})),
            Some(_) => {
                body["input"] = json!([input[0], first["output"][0], result]);
                create(&stage, body)
            }
        };
        assert_eq!(texts(&second), ["It is 7."], "{store:?}");
        assert_ne!(first["id"], second["id"]);
        if store.is_none() {
            assert_eq!(show(&stage, &first["id"])["output"], first["output"]);
            assert_eq!(show(&stage, &second["id"])["output"], second["output"]);
            let items = |id: &Value| {
                let route = format!("GET /v1/responses/{}/input_items", id.as_str().unwrap());
                whole(send(&stage, &route, "", &json!({})).unwrap())["data"].clone()
            };
            assert_eq!(items(&first["id"])[0]["content"][0]["text"], json!("look"));
            assert_eq!(items(&second["id"])[0]["output"], json!("7"));
        } else {
            stage.live(ms(5_000));
            assert_eq!(stage.host().open().map(|session| session.is_some()), Ok(false), "erased");
        }
    }
}

#[test]
fn an_approval_is_requested_and_given() {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => says("Done"),
        _ => answer(vec![call("c1", "write_it", json!({"key": "k"}))]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.categories.insert(Category::Other, Policy::Ask);
    });
    let first = create(&stage, json!({"input": "write"}));
    assert_eq!(kinds(&first), ["function_call", "mcp_approval_request"]);
    let request = first["output"][1]["id"].clone();
    let given = json!([{"type": "mcp_approval_response", "approval_request_id": request, "approve": true}]);
    let second = create(&stage, json!({"input": given, "previous_response_id": first["id"]}));
    assert_eq!((kinds(&second), texts(&second)), (vec!["function_call_output", "message"], vec!["Done"]));
}

#[test]
fn questions_and_plans_are_items_of_their_own() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("q", "ask_user", json!({"question": "Tea?"}))]),
        1 => answer(vec![call("p0", "plan_enter", json!({}))]),
        2 => answer(vec![call("p1", "plan_write", json!({"content": "# Tea"}))]),
        3 => answer(vec![call("p2", "plan_exit", json!({}))]),
        _ => says("Done"),
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let stage = stage.with_modes(Config::default().agent.modes);
    let first = create(&stage, json!({"input": "hi"}));
    assert_eq!(kinds(&first), ["function_call", "edge_harness:question"]);
    let question = &first["output"][1];
    assert_eq!((&question["call_id"], &question["payload"]["question"]), (&json!("q"), &json!("Tea?")));
    let answered = |before: &Value, answer: &str| {
        let item = before["output"].as_array().unwrap().last().unwrap();
        let given = json!([{"type": "function_call_output", "call_id": item["call_id"], "output": answer}]);
        create(&stage, json!({"input": given, "previous_response_id": before["id"]}))
    };
    let second = answered(&first, "Yes");
    let plan = second["output"].as_array().unwrap().last().unwrap();
    assert_eq!((&plan["type"], &plan["name"]), (&json!("edge_harness:plan"), &json!("plan_exit")));
    assert!(plan["payload"]["plan"].as_str().unwrap().contains("# Tea"), "{plan}");
    let third = answered(&second, "approved");
    assert_eq!((&third["status"], texts(&third)), (&json!("completed"), vec!["Done"]));
    let results = models.requests().pop().unwrap();
    let last = format!("{:?}", results.messages.last().unwrap());
    assert!(last.contains("approved the plan"), "{last}");
}

#[test]
fn reasoning_is_an_item() {
    let script = |_: &ModelRequest| {
        let parts = vec![Part::Reasoning { text: "Be polite.".into(), provider: None }, Part::text("Hello")];
        answer(parts)
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let events = streamed(&stage, json!({"input": "hi", "reasoning": {"effort": "high"}}));
    let response = &events.last().unwrap()["response"];
    let items = response["output"].as_array().unwrap();
    let reasoning = items.iter().find(|item| item["type"] == "reasoning").unwrap();
    assert_eq!(reasoning["summary"], json!([{"type": "summary_text", "text": "Be polite."}]));
    assert_eq!(show(&stage, &response["id"])["output"], response["output"]);
}

#[test]
fn a_response_in_the_background_is_read_later_and_can_be_canceled() {
    let stage = Stage::demo();
    let first = create(&stage, json!({"input": "/slow 100 5", "background": true}));
    assert_eq!(first["status"], json!("in_progress"));
    stage.settle();
    let done = show(&stage, &first["id"]);
    assert_eq!((&done["status"], kinds(&done)), (&json!("completed"), vec!["message"]));
    let second = create(&stage, json!({"input": "/slow 100 500", "background": true}));
    let third = create(&stage, json!({"input": "/say three", "background": true}));
    assert_eq!(show(&stage, &third["id"])["status"], json!("queued"));
    let cancel = |id: &Value| {
        let route = format!("POST /v1/responses/{}/cancel", id.as_str().unwrap());
        whole(send(&stage, &route, "", &json!({})).unwrap())["status"].clone()
    };
    assert_eq!(cancel(&third["id"]), json!("cancelled"));
    assert_eq!(cancel(&second["id"]), json!("cancelled"));
    assert_eq!(cancel(&first["id"]), json!("completed"), "it has ended");
}

#[test]
fn text_that_was_voided_is_an_incomplete_item_of_the_stream_only() {
    let tries = Rc::new(RefCell::new(0));
    let script = move |_: &ModelRequest| {
        *tries.borrow_mut() += 1;
        match *tries.borrow() {
            1 => {
                vec![Ok(ModelEvent::Text("Hel".into())), Err(ModelError::new(ModelErrorKind::Network, "cut"))]
            }
            _ => says("Hello"),
        }
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let events = streamed(&stage, json!({"input": "hi"}));
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let statuses: Vec<_> = done.map(|event| event["item"]["status"].clone()).collect();
    assert_eq!(statuses, ["incomplete", "completed"]);
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["content"][0]["text"]), (1, &json!("Hello")));
}

#[test]
fn failures_are_part_of_the_response() {
    let refuse = |_: &ModelRequest| vec![Err(ModelError::new(ModelErrorKind::Auth, "no key"))];
    let (stage, _) = Stage::scripted(refuse, |builder| builder);
    let response = create(&stage, json!({"input": "hi"}));
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("server_error")));
    let events = streamed(&stage, json!({"input": "hi"}));
    assert_eq!(events.last().unwrap()["type"], json!("response.failed"));
}

#[test]
fn a_response_is_deleted_with_its_session() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let first = create(&stage, json!({"input": "one"}));
    let route = format!("DELETE /v1/responses/{}", first["id"].as_str().unwrap());
    let second = create(&stage, json!({"input": "two", "previous_response_id": first["id"]}));
    let problem = send(&stage, &route, "", &json!({})).map(drop).unwrap_err();
    assert_eq!(problem.code, ErrorCode::AlreadyExists);
    assert_eq!(show(&stage, &second["id"])["status"], json!("completed"));
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let only = create(&stage, json!({"input": "one"}));
    let route = format!("DELETE /v1/responses/{}", only["id"].as_str().unwrap());
    assert_eq!(whole(send(&stage, &route, "", &json!({})).unwrap())["deleted"], json!(true));
    assert_eq!(stage.host().open().map(|session| session.is_some()), Ok(false));
}

#[test]
fn requests_that_cannot_be_served_name_the_field() {
    let stage = Stage::demo();
    let cases = [
        (json!({"input": []}), "/input"),
        (json!({"input": [{"role": "robot", "content": "x"}]}), "/input/0/role"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "/input/0/type"),
        (json!({"input": [{"type": "function_call_output", "output": "x"}]}), "/input/0/call_id"),
        (json!({"input": "hi", "tools": [{"type": "web_search"}]}), "/tools/0/type"),
        (json!({"input": "hi", "tools": [{"type": "function", "name": "ask_user"}]}), "/tools/0"),
        (json!({"input": "hi", "tool_choice": "required"}), "/tool_choice"),
        (
            json!({"input": "hi", "previous_response_id": "resp_t_0.s", "conversation": "s"}),
            "/previous_response_id",
        ),
    ];
    for (body, pointer) in cases {
        let mut body = asked(body);
        body["model"] = "default".into();
        let problem = send(&stage, CREATE, "", &body).map(drop).expect_err(pointer);
        assert_eq!(problem.errors.first().map(|error| error.pointer.as_str()), Some(pointer), "{problem}");
    }
}
