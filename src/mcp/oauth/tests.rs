use super::{Challenge, Subject, Tokens, begin, finish};
use crate::mcp::{McpServer, Ports};
use crate::platform::in_memory::{InMemoryConsents, ManualClock, PlainSealer, ScriptedHttp, SeededEntropy};
use crate::ports::{AllowedHosts, HttpRequest, Secrets, directory::DirectoryError};
use crate::types::{ConsentReply, FinishedConsent, TenantId, Timestamp};
use async_trait::async_trait;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use url::Url;

struct Vault;

#[async_trait(?Send)]
impl Secrets for Vault {
    async fn get(&self, _: &TenantId, _: &str) -> Result<Option<String>, DirectoryError> {
        Ok(Some("s3cret".into()))
    }
}

struct Stage {
    http: Rc<ScriptedHttp>,
    clock: ManualClock,
    ports: Ports,
    server: McpServer,
}

impl Stage {
    fn new() -> Self {
        let (http, clock) = (Rc::new(ScriptedHttp::default()), ManualClock::at(Timestamp(1_000_000)));
        let ports = Ports {
            http: http.clone(),
            secrets: Rc::new(Vault),
            clock: Rc::new(clock.clone()),
            hosts: AllowedHosts::parse("*"),
            consents: Rc::<InMemoryConsents>::default(),
            sealer: Rc::new(PlainSealer),
            entropy: Rc::<SeededEntropy>::default(),
            public_url: Some("https://agents.example.com".into()),
        };
        let server = McpServer { url: "https://crm.example.com/mcp".into(), ..McpServer::default() };
        Self { http, clock, ports, server }
    }

    fn respond(&self, status: u16, body: &Value) {
        self.http.respond(status, body.to_string());
    }

    /// Makes a request for consent at an authorization server with these metadata. Returns the parameters of the URL.
    fn begin(&self, more: &Value, scope: Option<&str>) -> Result<BTreeMap<String, String>, String> {
        let mut issuer = json!({
            "issuer": "https://as.example.com/x", "authorization_endpoint": "https://as.example.com/x/authorize",
            "token_endpoint": "https://as.example.com/x/token", "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": true,
        });
        issuer.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.respond(200, &json!({
            "resource": "https://crm.example.com/mcp", "authorization_servers": ["https://as.example.com/x"],
        }));
        self.respond(200, &issuer);
        let challenge = Challenge { scope: scope.map(str::to_owned), ..Challenge::default() };
        let call = (&"s".into(), &"c1".into());
        let url = block_on(begin(&self.ports, &subject("ann"), &self.server, &challenge, call));
        let url = Url::parse(&url.map_err(|error| error.to_string())?).expect("a URL");
        Ok(url.query_pairs().into_owned().collect())
    }

    fn finish(&self, state: &str, iss: Option<&str>) -> Option<FinishedConsent> {
        let returned =
            ConsentReply { state: state.into(), code: Some("the-code".into()), iss: iss.map(str::to_owned) };
        block_on(finish(&self.ports, &returned)).expect("a store that works")
    }

    fn access(&self, user: &str) -> Option<String> {
        block_on(Tokens::new(&self.ports, &subject(user)).access()).expect("a token or none")
    }

    fn last(&self) -> HttpRequest {
        self.http.requests().pop().expect("a request")
    }
}

fn subject(user: &str) -> Subject {
    Subject { tenant: "acme".into(), user: user.into(), resource: "https://crm.example.com/mcp".into() }
}

fn form(request: &HttpRequest) -> BTreeMap<String, String> {
    form_urlencoded::parse(request.body.as_ref().expect("a body")).into_owned().collect()
}

#[test]
fn a_code_becomes_a_token_of_its_user() {
    let stage = Stage::new();
    let asked = stage.begin(&json!({}), Some("read write")).expect("a URL");
    assert_eq!(asked["client_id"], "https://agents.example.com/client-metadata.json");
    assert_eq!((&*asked["scope"], &*asked["resource"]), ("read write", "https://crm.example.com/mcp"));
    assert_eq!(stage.access("ann"), None);
    stage.respond(
        200,
        &json!({"access_token": "one", "refresh_token": "r1", "expires_in": 3600, "token_type": "bearer"}),
    );
    let finished = stage.finish(&asked["state"], None).expect("a request");
    assert_eq!((&*finished.user, &*finished.call, finished.outcome), ("ann", "c1", Ok(())));
    let sent = form(&stage.last());
    assert_eq!((&*sent["code"], &*sent["client_id"]), ("the-code", &*asked["client_id"]));
    assert!(sent["code_verifier"].len() >= 43 && sent["code_verifier"] != asked["code_challenge"]);
    assert_eq!((stage.access("ann").as_deref(), stage.access("bob")), (Some("one"), None));
    assert_eq!(stage.finish(&asked["state"], None), None, "a state is valid once");
    // It expires, and the refresh token changes each time.
    stage.clock.advance(Duration::from_hours(1));
    stage.respond(
        200,
        &json!({"access_token": "two", "refresh_token": "r2", "expires_in": 1, "token_type": "Bearer"}),
    );
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
    assert_eq!(form(&stage.last())["refresh_token"], "r1");
    stage.respond(503, &json!({}));
    let down = block_on(Tokens::new(&stage.ports, &subject("ann")).access());
    assert!(down.is_err_and(|error| error.to_string().contains("status 503")));
    stage.respond(400, &json!({"error": "invalid_grant"}));
    assert_eq!(stage.access("ann"), None);
    assert_eq!(form(&stage.last())["refresh_token"], "r2");
}

#[test]
fn a_code_of_another_authorization_server_is_not_exchanged() {
    let stage = Stage::new();
    for (names_itself, iss) in
        [(false, Some("https://evil.example.com")), (true, Some("https://as.example.com/x/")), (true, None)]
    {
        let more = json!({"authorization_response_iss_parameter_supported": names_itself});
        let asked = stage.begin(&more, None).expect("a URL");
        let requests = stage.http.requests().len();
        let finished = stage.finish(&asked["state"], iss).expect("a request");
        assert!(finished.outcome.is_err_and(|why| why.contains("another authorization server")));
        assert_eq!((stage.http.requests().len(), stage.access("ann")), (requests, None));
    }
    let asked = stage.begin(&json!({}), None).expect("a URL");
    stage.clock.advance(Duration::from_hours(24));
    assert_eq!(stage.finish(&asked["state"], None), None, "it has expired");
}

#[test]
fn metadata_that_do_not_fit_are_refused() {
    let stage = Stage::new();
    for (more, why) in [
        (json!({"issuer": "https://as.example.com/x/"}), "is about another one"),
        (json!({"code_challenge_methods_supported": ["plain"]}), "PKCE"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "a URL that is refused"),
        (json!({"client_id_metadata_document_supported": false}), "registers no clients"),
    ] {
        let refused = stage.begin(&more, None).expect_err("refused");
        assert!(refused.contains(why), "{refused}");
    }
    let register =
        json!({"client_id_metadata_document_supported": false, "registration_endpoint": "https://10.0.0.1/"});
    assert!(stage.begin(&register, None).expect_err("refused").contains("public internet"));
}

#[test]
fn a_client_of_the_definition_authenticates_itself() {
    let mut stage = Stage::new();
    stage.server.oauth_client =
        serde_json::from_value(json!({"id": "own", "secret": "CRM"})).expect("a client");
    let asked = stage.begin(&json!({}), None).expect("a URL");
    assert_eq!(asked["client_id"], "own");
    stage.respond(401, &json!({"error": "invalid_client", "error_description": "s3cret"}));
    let finished = stage.finish(&asked["state"], None).expect("a request");
    let why = finished.outcome.expect_err("refused");
    assert!(why.ends_with("status 401 and the error invalid_client"), "{why}");
    let sent = stage.last();
    assert!(sent.headers.contains(&("authorization".into(), "Basic b3duOnMzY3JldA==".into())));
}
