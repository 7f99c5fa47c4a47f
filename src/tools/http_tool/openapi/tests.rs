use super::super::declared::Checked;
use super::*;
use pretty_assertions::assert_eq;
use serde_json::json;

fn import(document: Value, operations: &[&str]) -> OpenApi {
    let import =
        json!({ "document": document, "operations": operations, "headers": {"X-Key": "${secret:KEY}"} });
    serde_json::from_value(import).expect("an import")
}

fn pointers(import: &OpenApi) -> Vec<String> {
    import.tools().expect_err("faults").into_iter().map(|fault| fault.pointer).collect()
}

fn pets() -> Value {
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": "https://pets.example.com/v2/"}],
        "paths": {
            "/pets/{petId}": {
                "parameters": [{"$ref": "#/components/parameters/PetId"}],
                "get": {
                    "operationId": "pets.get", "summary": "Returns a pet.", "description": "By its id.",
                    "parameters": [
                        {"in": "query", "name": "fields[]", "schema": {"type": "array", "items": {"type": "string", "pattern": "^a"}}},
                        {"in": "header", "name": "X-Trace", "schema": {"type": "string"}, "description": "A trace."},
                        {"in": "header", "name": "Authorization", "schema": {"type": "string"}},
                        {"in": "cookie", "name": "session", "schema": {"type": "string"}},
                    ],
                },
                "put": {
                    "operationId": "putPet",
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
                },
            },
            "/pets": {"post": {
                "operationId": "addPets",
                "requestBody": {"content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}}},
            }},
        },
        "components": {
            "parameters": {"PetId": {"in": "path", "name": "petId", "required": true, "schema": {"type": "integer"}}},
            "schemas": {
                "Named": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "example": "Rex"}}},
                "Pet": {"allOf": [{"$ref": "#/components/schemas/Named"}, {
                    "type": "object", "required": ["id", "kind"],
                    "properties": {
                        "id": {"type": "integer", "readOnly": true},
                        "kind": {"type": "string", "nullable": true, "enum": ["cat", "dog"]},
                        "petId": {"type": "integer"},
                        "parent": {"$ref": "#/components/schemas/Pet"},
                    },
                }]},
            },
        },
    })
}

#[test]
fn parameters_become_arguments() {
    let tools = import(pets(), &["pets.get"]).tools().expect("tools");
    let [tool] = tools.as_slice() else { panic!("{tools:?}") };
    assert_eq!((&*tool.name, &*tool.description), ("pets_get", "Returns a pet.\nBy its id."));
    assert_eq!(tool.url, "https://pets.example.com/v2/pets/{{petId}}?fields%5B%5D={{fields__}}");
    assert_eq!(json!(tool.headers), json!({"X-Key": "${secret:KEY}", "X-Trace": "{{X-Trace}}"}));
    let expected = json!({
        "type": "object", "required": ["petId"], "additionalProperties": false,
        "properties": {
            "petId": {"type": "integer"}, "fields__": {"type": "array", "items": {"type": "string"}},
            "X-Trace": {"type": "string", "description": "A trace."},
        },
    });
    assert_eq!(json!(tool.parameters), expected);
    assert!(Checked::new(tool.clone()).is_ok());
}

#[test]
fn the_properties_of_a_body_become_arguments() {
    let tools = import(pets(), &["putPet", "addPets"]).tools().expect("tools");
    let [put, add] = tools.as_slice() else { panic!("{tools:?}") };
    let body = json!({"name": "{{name}}", "kind": "{{kind}}", "petId": "{{petId}}", "parent": "{{parent}}"});
    assert_eq!((put.method, put.body.as_ref()), (Method::Put, Some(&body)));
    assert_eq!(put.parameters["required"], json!(["kind", "name", "petId"]));
    let properties = &put.parameters["properties"];
    assert_eq!(properties["name"], json!({"type": "string"}));
    assert_eq!(properties["kind"], json!({"type": ["string", "null"], "enum": ["cat", "dog", null]}));
    assert_eq!(properties["parent"], json!({}), "a pet contains a pet");
    assert_eq!(put.description, "PUT /pets/{petId}");
    assert_eq!((add.body.as_ref(), &add.parameters["required"]), (Some(&json!("{{body}}")), &json!([])));
    assert!(tools.into_iter().all(|tool| Checked::new(tool).is_ok()));
}

#[test]
fn what_cannot_become_a_tool_is_a_fault() {
    assert_eq!(pointers(&import(pets(), &["nothing", "putPet"])), ["/operations/0"]);
    let operation = |operation: Value| {
        let mut all = operation;
        all["operationId"] = json!("o");
        let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example.com"}], "paths": {"/a/{b}": {"post": all}},
                              "components": {"schemas": {"Loop": {"$ref": "#/components/schemas/Loop"}}}});
        pointers(&import(document, &["o"]))
    };
    let at = "/document/paths/~1a~1{b}/post";
    let b = json!({"in": "path", "name": "b", "schema": {}});
    assert_eq!(operation(json!({})), ["/document/paths/~1a~1{b}"]);
    let matrix = json!({"in": "path", "name": "b", "style": "matrix", "schema": {}});
    assert_eq!(operation(json!({"parameters": [matrix]})), [format!("{at}/parameters/0")]);
    let own_server = operation(json!({"parameters": [b], "servers": [{"url": "https://b.example.com"}]}));
    assert_eq!(own_server, [format!("{at}/servers")]);
    let first = |parameter: Value| operation(json!({"parameters": [parameter, b]}));
    for bad in [
        json!({"in": "cookie", "name": "c", "required": true, "schema": {}}),
        json!({"in": "query", "name": "c", "schema": {"type": "object"}}),
        json!({"in": "query", "name": "c", "style": "pipeDelimited", "schema": {"type": "array"}}),
        json!({"in": "query", "name": "c", "content": {}}),
        json!({"in": "query", "name": "c", "explode": false, "schema": {"type": "array", "nullable": true}}),
        json!({"in": "query", "name": "c", "schema": {"anyOf": [{"type": ["null", "object"]}]}}),
        json!({"in": "header", "name": "c", "schema": {"oneOf": [{"type": "string"}, {"type": "array"}]}}),
        json!({"in": "header", "name": "c d", "schema": {}}),
        json!({"in": "header", "name": "Host", "required": true, "schema": {}}),
        json!({"in": "path", "name": "c", "schema": {}}),
        json!({"in": "query", "name": "b", "schema": {}}),
        json!({"in": "query", "name": "", "schema": {}}),
        json!({"name": "c"}),
    ] {
        assert_eq!(first(bad), [format!("{at}/parameters/0")]);
    }
    let reference = first(json!({"$ref": "#/components/parameters/None"}));
    assert_eq!(reference, [format!("{at}/parameters/0/$ref")]);
    assert_eq!(first(json!({"$ref": "https://a.example.com/p.json"})), [format!("{at}/parameters/0/$ref")]);
    let form = json!({"content": {"application/x-www-form-urlencoded": {"schema": {}}}});
    assert_eq!(
        operation(json!({"parameters": [b], "requestBody": form})),
        [format!("{at}/requestBody/content")]
    );
    let mut no_server = pets();
    no_server["servers"] = json!([{"url": "https://{region}.example.com"}]);
    assert_eq!(pointers(&import(no_server.clone(), &["putPet"])), ["/document/servers/0/url"]);
    let own =
        OpenApi { base_url: Some("https://eu.example.com/api".into()), ..import(no_server, &["putPet"]) };
    assert_eq!(own.tools().expect("tools")[0].url, "https://eu.example.com/api/pets/{{petId}}");
}

/// The import of one operation with this path.
fn at_path(path: &str, operation: Value) -> OpenApi {
    let mut operation = operation;
    operation["operationId"] = json!("o");
    let paths = Map::from_iter([(path.to_owned(), json!({"put": operation}))]);
    import(json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example.com"}], "paths": paths}), &["o"])
}

#[test]
fn a_path_cannot_change_the_host_or_the_query() {
    for path in [".evil.example/a", "@evil.example/", ":8443/", "", "/a?b=c", "/a#b", "/a\\b"] {
        let at = format!("/document/paths/{}", escaped(path));
        assert_eq!(pointers(&at_path(path, json!({}))), [at], "{path}");
    }
}

#[test]
fn only_documents_of_openapi_3_are_read() {
    let mut document = pets();
    document["openapi"] = json!("2.0");
    assert_eq!(pointers(&import(document.clone(), &["pets.get"])), ["/document/openapi"]);
    document.as_object_mut().expect("an object").remove("openapi");
    assert_eq!(pointers(&import(document, &["pets.get"])), ["/document/openapi"]);
}

#[test]
fn plain_json_precedes_other_media_types() {
    let sent = |names: &[&str]| {
        let content: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let tools = at_path("/a", json!({"requestBody": {"content": content}}))
            .tools()
            .map_err(|faults| faults.len())?;
        Ok(tools[0].headers.get("content-type").cloned())
    };
    assert_eq!(sent(&["application/hal+json", "application/json"]), Ok(None));
    assert_eq!(sent(&["application/json; charset=utf-8"]), Ok(None));
    assert_eq!(sent(&["*/*"]), Ok(None));
    assert_eq!(sent(&["application/*+json"]), Ok(None));
    let patch = "application/merge-patch+json";
    assert_eq!(sent(&[patch]), Ok(Some(patch.to_owned())));
    assert_eq!(sent(&["application/x+json;a=${secret:KEY}"]), Err(1));
    assert_eq!(sent(&["text/plain", "application/xml"]), Err(1));
}

#[test]
fn a_header_of_all_requests_is_no_argument() {
    let header = json!({"in": "header", "name": "x-key", "required": true, "schema": {"type": "string"}});
    let tools = at_path("/a", json!({"parameters": [header]})).tools().expect("tools");
    assert_eq!(tools[0].parameters["properties"], json!({}));
    assert_eq!(json!(tools[0].headers), json!({"X-Key": "${secret:KEY}"}));
}

#[test]
fn references_cannot_multiply_a_large_text() {
    let mut document = pets();
    document["components"]["schemas"]["Large"] = json!({"description": "x".repeat(10_000)});
    let references: Vec<Value> = (0..100).map(|_| json!({"$ref": "#/components/schemas/Large"})).collect();
    document["components"]["parameters"]["PetId"]["schema"] = json!({ "allOf": references });
    assert_eq!(pointers(&import(document, &["pets.get"])), ["/document/components/schemas/Large"]);
}
