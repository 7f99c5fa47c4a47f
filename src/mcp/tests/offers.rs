//! Resources and prompts of servers.

use super::super::connection::Outgoing;
use super::*;
use crate::agent::DynTool;
use pretty_assertions::assert_eq;

const BOTH: [&str; 2] = ["mcp_read_resource", "mcp_get_prompt"];

/// Lists a modern server with these capabilities and no tools.
fn tools(definition: Value, capabilities: &Value) -> (Stage, Vec<Rc<dyn DynTool>>) {
    let stage = Stage::new(definition);
    let versions = json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities});
    stage.http.respond(200, result(1, &versions));
    stage.http.respond(200, error(2, -32601));
    let listings = stage.list(&Listings::default());
    assert_eq!((listings.failures(), stage.http.requests().len()), (vec![], 2));
    let tools = listings.tools();
    (stage, tools)
}

fn names(tools: &[Rc<dyn DynTool>]) -> Vec<String> {
    tools.iter().map(|tool| tool.spec().name).collect()
}

#[test]
fn there_is_a_tool_for_what_a_server_announces() {
    let none: [&str; 0] = [];
    for (capabilities, expected) in [
        (json!({"resources": {"subscribe": true}, "prompts": {}}), &BOTH[..]),
        (json!({"resources": {}}), &BOTH[..1]),
        (json!({"tools": {}, "prompts": {}}), &BOTH[1..]),
        (json!({"resources": null, "prompts": 7}), &none[..]),
        (json!([]), &none[..]),
    ] {
        assert_eq!(names(&tools(plain(), &capabilities).1), expected, "{capabilities}");
    }
    let both = json!({"resources": {}, "prompts": {}});
    for (more, expected) in [
        (json!({"deny": ["mcp_get_prompt"]}), &BOTH[..1]),
        (json!({"allow": ["mcp_get_prompt", "other"]}), &BOTH[1..]),
        (json!({"allow": ["other"]}), &none[..]),
    ] {
        let mut definition = plain();
        definition.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        assert_eq!(names(&tools(definition, &both).1), expected, "{more}");
    }
}

#[test]
fn a_legacy_server_announces_them_in_the_handshake() {
    let stage = Stage::new(plain());
    stage.http.respond(404, "");
    let chosen = json!({"protocolVersion": "2025-11-25", "capabilities": {"resources": {}}});
    stage.http.respond(200, result(2, &chosen));
    stage.http.respond(202, "");
    stage.http.respond(200, result(3, &json!({"tools": [{"name": "a"}], "ttlMs": 60_000})));
    let first = stage.list(&Listings::default());
    assert_eq!(names(&first.tools()), ["crm__a", "mcp_read_resource"]);
    // While the server is down, its tools are known.
    stage.clock.advance(Duration::from_mins(1));
    let down = stage.list(&first);
    assert!(down.is_same(&first) && names(&down.tools()).len() == 2);
    // The server has changed.
    stage.clock.advance(Duration::from_mins(1));
    stage.http.respond(404, "");
    stage.http.respond(200, result(6, &json!({"protocolVersion": "2025-11-25", "capabilities": {}})));
    stage.http.respond(202, "");
    stage.http.respond(200, result(7, &json!({"tools": [{"name": "a"}]})));
    let changed = stage.list(&down);
    assert!(!changed.is_same(&down) && names(&changed.tools()) == ["crm__a"]);
}

#[test]
fn only_trusted_servers_make_it_a_read() {
    let both = json!({"resources": {}, "prompts": {}});
    for (is_trusted, effect) in [(true, Effect::NetworkRead), (false, Effect::Destructive)] {
        let mut definition = plain();
        definition["trusted"] = is_trusted.into();
        for tool in tools(definition, &both).1 {
            let spec = tool.spec();
            assert_eq!((spec.effect, spec.idempotent, spec.skips_repeats()), (effect, is_trusted, false));
            crate::turn::schema::check(&spec.parameters).expect("a schema that can be checked");
        }
    }
}

#[test]
fn a_call_names_one_of_the_servers() {
    let (_stage, tools) = tools(plain(), &json!({"resources": {}, "prompts": {}}));
    let checked = |place: usize, args: Value| tools[place].check(&args).map_err(|invalid| invalid.0);
    assert_eq!(checked(0, json!({"server": "crm"})), Ok(vec![]));
    assert_eq!(checked(1, json!({"server": "crm", "name": "p", "arguments": {"a": "b"}})), Ok(vec![]));
    let wrong = "no MCP server \"cmr\" has resources; servers with resources: \"crm\"";
    assert_eq!(checked(0, json!({"server": "cmr"})), Err(wrong.to_owned()));
    for args in [json!({}), json!({"server": 7}), json!({"server": "crm", "uri": 7}), json!(7)] {
        assert!(checked(0, args.clone()).is_err(), "{args}");
    }
    assert!(checked(1, json!({"server": "crm", "name": "p", "arguments": {"a": 7}})).is_err());
}

#[test]
fn a_modern_request_names_what_it_reads() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    http.respond(200, result(9, &json!({"contents": []})));
    let uri = "file:///é";
    let params = Map::from_iter([("uri".to_owned(), uri.into())]);
    let outgoing =
        Outgoing { caller: "ses_1", name: Some(uri), ..Outgoing::read(9, "resources/read", params) };
    assert_eq!(block_on(server.ask(&outgoing)), Ok(json!({"contents": []})));
    let requests = http.requests();
    let sent = ["mcp-method", "mcp-name"].map(|name| header(&requests[1], name));
    assert_eq!(sent, [Some("resources/read"), Some("=?base64?ZmlsZTovLy/DqQ==?=")]);
    assert_eq!(body(&requests[1])["params"]["uri"], uri);
}
