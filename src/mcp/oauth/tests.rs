use super::{Asked, Challenge, Subject, Tokens, begin, confirm, park, pending::hash, vault::key};
use crate::mcp::{McpError, McpServer, Ports};
use crate::platform::in_memory::{
    InMemoryConsents, ManualClock, PlainSealer, ScriptedHttp, SeededEntropy, TaskPool,
};
use crate::ports::{
    AllowedHosts, Http, HttpError, HttpRequest, HttpResponse, Secrets, Spawner,
    consents::{ConsentKind, Sealed},
    directory::DirectoryError,
};
use crate::types::{ConsentPage, ConsentReply, TenantId, Timestamp};
use async_trait::async_trait;
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeMap, pin::pin, rc::Rc, time::Duration};
use url::Url;

struct Vault;

#[async_trait(?Send)]
impl Secrets for Vault {
    async fn get(&self, _: &TenantId, _: &str) -> Result<Option<String>, DirectoryError> {
        Ok(Some("s3cret".into()))
    }
}

/// The scripted network, on which something can happen while a request is on its way.
#[derive(Default)]
struct Network {
    scripted: ScriptedHttp,
    meanwhile: RefCell<Option<Box<dyn FnOnce()>>>,
}

#[async_trait(?Send)]
impl Http for Network {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(event) = self.meanwhile.take() {
            event();
        }
        self.scripted.send(request).await
    }
}

struct Stage {
    network: Rc<Network>,
    clock: ManualClock,
    ports: Rc<Ports>,
    server: McpServer,
    tasks: Rc<TaskPool>,
}

impl Stage {
    fn new() -> Self {
        let (network, clock) = (Rc::<Network>::default(), ManualClock::at(Timestamp(1_000_000)));
        let tasks = Rc::<TaskPool>::default();
        let spawner = Rc::clone(&tasks);
        let ports = Ports {
            http: network.clone(),
            secrets: Rc::new(Vault),
            clock: Rc::new(clock.clone()),
            hosts: AllowedHosts::parse("*"),
            consents: Rc::<InMemoryConsents>::default(),
            sealer: Rc::new(PlainSealer),
            spawn: Box::new(move |work| spawner.spawn(work)),
            entropy: Rc::<SeededEntropy>::default(),
            public_url: Some("https://agents.example.com".into()),
        };
        let server = McpServer { url: "https://crm.example.com/mcp".into(), ..McpServer::default() };
        Self { network, clock, ports: Rc::new(ports), server, tasks }
    }

    fn respond(&self, status: u16, body: &Value) {
        self.network.scripted.respond(status, body.to_string());
    }

    fn requests(&self) -> Vec<HttpRequest> {
        self.network.scripted.requests()
    }

    /// Lets something happen while the next request is on its way.
    fn meanwhile(&self, event: impl FnOnce() + 'static) {
        *self.network.meanwhile.borrow_mut() = Some(Box::new(event));
    }

    /// Makes a request for consent at an authorization server with these metadata. Returns the parameters of the URL.
    fn begin(&self, more: &Value, scope: Option<&str>) -> Result<BTreeMap<String, String>, String> {
        self.metadata(more);
        self.ask(scope)
    }

    /// Queues the metadata of a server and of its authorization server.
    fn metadata(&self, more: &Value) {
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
    }

    fn ask(&self, scope: Option<&str>) -> Result<BTreeMap<String, String>, String> {
        let challenge = Challenge { scope: scope.map(str::to_owned), ..Challenge::default() };
        let asked = block_on(begin(&self.ports, &subject("ann"), &self.server, &challenge));
        let Asked { request, url } = asked.map_err(|error| error.to_string())?;
        let url = Url::parse(&url).expect("a URL");
        let asked: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(request, hash(&asked["state"]));
        Ok(asked)
    }

    /// Sends the browser back with a code. Returns the confirmation code, or why the user is not connected.
    fn park(&self, state: &str, iss: Option<&str>) -> Option<Result<String, String>> {
        let reply =
            ConsentReply { state: state.into(), code: Some("the-code".into()), iss: iss.map(str::to_owned) };
        let page = block_on(park(&self.ports, &reply)).expect("a store that works");
        page.map(|page| match page {
            ConsentPage::Confirm { code, .. } => Ok(code),
            ConsentPage::Refused(why) => Err(why),
        })
    }

    fn confirm(&self, user: &str, state: &str, code: &str) -> Result<bool, String> {
        let confirmed = block_on(confirm(&self.ports, &subject(user), &hash(state), code));
        confirmed.map_err(|error| error.to_string())
    }

    fn tokens(&self, user: &str) -> Tokens {
        Tokens::new(&self.ports, &subject(user))
    }

    fn access(&self, user: &str) -> Option<String> {
        self.try_access(user).expect("a token or none")
    }

    fn try_access(&self, user: &str) -> Result<Option<String>, McpError> {
        let tokens = self.tokens(user);
        let mut access = pin!(tokens.access());
        let early = access.as_mut().now_or_never();
        self.tasks.run();
        early.unwrap_or_else(|| block_on(access))
    }

    /// Connects a user with this token.
    fn connect(&self, token: &Value) {
        let asked = self.begin(&json!({}), None).expect("a URL");
        let code = self.park(&asked["state"], None).expect("a request").expect("a code");
        self.respond(200, token);
        assert_eq!(self.confirm("ann", &asked["state"], &code), Ok(true));
    }

    fn last(&self) -> HttpRequest {
        self.requests().pop().expect("a request")
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
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    assert_eq!(stage.access("ann"), None, "nothing is exchanged before the user confirms");
    assert_eq!(stage.confirm("ann", &asked["state"], &code), Ok(true));
    let sent = form(&stage.last());
    assert_eq!((&*sent["code"], &*sent["client_id"]), ("the-code", &*asked["client_id"]));
    assert!(sent["code_verifier"].len() >= 43 && sent["code_verifier"] != asked["code_challenge"]);
    assert_eq!((stage.access("ann").as_deref(), stage.access("bob")), (Some("one"), None));
    assert_eq!(stage.park(&asked["state"], None), None, "a state is valid once");
    assert_eq!(stage.confirm("ann", &asked["state"], &code), Ok(false), "a code is valid once");
    // It expires, and the refresh token changes each time.
    stage.clock.advance(Duration::from_hours(1));
    stage.respond(
        200,
        &json!({"access_token": "two", "refresh_token": "r2", "expires_in": 1, "token_type": "Bearer"}),
    );
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
    assert_eq!(form(&stage.last())["refresh_token"], "r1");
    stage.respond(503, &json!({}));
    let down = stage.try_access("ann");
    assert!(down.is_err_and(|error| error.to_string().contains("status 503")));
    stage.respond(400, &json!({"error": "invalid_grant"}));
    assert_eq!(stage.access("ann"), None);
    assert_eq!(form(&stage.last())["refresh_token"], "r2");
}

#[test]
fn a_code_of_another_authorization_server_is_not_exchanged() {
    let stage = Stage::new();
    let names_itself = json!({"authorization_response_iss_parameter_supported": true});
    // The page of an honest server, whose code would go to another one.
    let two_origins = json!({"token_endpoint": "https://evil.example.com/token"});
    for (more, iss) in [
        (&json!({}), Some("https://evil.example.com")),
        (&names_itself, Some("https://as.example.com/x/")),
        (&names_itself, None),
        (&two_origins, Some("https://honest.example.com")),
        (&two_origins, None),
    ] {
        let asked = stage.begin(more, None).expect("a URL");
        let requests = stage.requests().len();
        let parked = stage.park(&asked["state"], iss).expect("a request");
        assert!(parked.is_err_and(|why| why.contains("authorization server")));
        assert_eq!((stage.requests().len(), stage.access("ann")), (requests, None));
    }
    let asked = stage.begin(&two_origins, None).expect("a URL");
    assert!(stage.park(&asked["state"], Some("https://as.example.com/x")).expect("a request").is_ok());
    let asked = stage.begin(&json!({}), None).expect("a URL");
    stage.clock.advance(Duration::from_hours(24));
    assert_eq!(stage.park(&asked["state"], None), None, "it has expired");
}

#[test]
fn only_the_user_of_the_session_who_has_opened_the_page_connects_it() {
    let stage = Stage::new();
    let parked = || {
        let asked = stage.begin(&json!({}), None).expect("a URL");
        let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
        (asked["state"].clone(), code)
    };
    // The code of one session's page does not connect another session.
    let ((one, of_one), (two, _)) = (parked(), parked());
    assert_eq!(stage.confirm("bob", &one, &of_one), Ok(false), "the session of another user");
    assert_eq!(stage.confirm("ann", &two, &of_one), Ok(false), "the code of another session");
    let (state, code) = parked();
    assert_eq!(stage.confirm("ann", &state, "0000-0000"), Ok(false));
    assert_eq!(stage.confirm("ann", &state, &code), Ok(false), "there is one attempt");
    let early = stage.begin(&json!({}), None).expect("a URL");
    assert_eq!(stage.confirm("ann", &early["state"], "0000-0000"), Ok(false), "before consent");
    let (state, code) = parked();
    stage.clock.advance(Duration::from_mins(10));
    assert_eq!(stage.confirm("ann", &state, &code), Ok(false), "it has expired");
    assert_eq!(stage.access("ann"), None);
}

#[test]
fn a_failure_that_may_pass_leaves_the_code_valid() {
    let stage = Stage::new();
    let asked = stage.begin(&json!({}), None).expect("a URL");
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    stage.respond(503, &json!({}));
    let failed = block_on(confirm(&stage.ports, &subject("ann"), &hash(&asked["state"]), &code));
    assert!(failed.is_err_and(|error| error.is_transient()));
    stage.respond(200, &json!({"access_token": "one", "token_type": "Bearer"}));
    assert_eq!(stage.confirm("ann", &asked["state"], &code), Ok(true));
    assert_eq!(stage.access("ann").as_deref(), Some("one"));
    // A refusal is final.
    let asked = stage.begin(&json!({}), None).expect("a URL");
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    stage.respond(400, &json!({"error": "invalid_grant"}));
    assert!(stage.confirm("ann", &asked["state"], &code).is_err_and(|why| why.contains("invalid_grant")));
    assert_eq!(stage.confirm("ann", &asked["state"], &code), Ok(false));
}

#[test]
fn no_token_outlives_the_erasure_of_its_user() {
    let stage = Stage::new();
    let asked = stage.begin(&json!({}), None).expect("a URL");
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    let consents = Rc::clone(&stage.ports.consents);
    stage.meanwhile(move || {
        let erased = consents.erase(&"acme".into(), Some(&"ann".into())).now_or_never();
        erased.expect("no wait").expect("a store that works");
    });
    stage.respond(200, &json!({"access_token": "one", "token_type": "Bearer"}));
    assert_eq!(stage.confirm("ann", &asked["state"], &code), Ok(false));
    assert_eq!(stage.access("ann"), None);
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
    let client =
        |issuer: &str| serde_json::from_value(json!({"id": "own", "secret": "CRM", "issuer": issuer}));
    // The server decides which authorization server it names, and must not get the secret by that.
    stage.server.oauth_client = client("https://as.example.com").expect("a client");
    assert!(stage.begin(&json!({}), None).expect_err("refused").contains("not the `issuer`"));
    stage.server.oauth_client = client("https://as.example.com/x").expect("a client");
    let asked = stage.begin(&json!({}), None).expect("a URL");
    assert_eq!(asked["client_id"], "own");
    stage.respond(401, &json!({"error": "invalid_client", "error_description": "s3cret"}));
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    let why = stage.confirm("ann", &asked["state"], &code).expect_err("refused");
    assert!(why.ends_with("status 401 and the error invalid_client"), "{why}");
    let sent = stage.last();
    assert!(sent.headers.contains(&("authorization".into(), "Basic b3duOnMzY3JldA==".into())));
}

fn tokens(access: &str, refresh: &str) -> Value {
    json!({"access_token": access, "refresh_token": refresh, "expires_in": 3600, "token_type": "Bearer"})
}

#[test]
fn a_refusal_that_says_nothing_about_the_token_leaves_it() {
    let stage = Stage::new();
    stage.connect(&tokens("one", "r1"));
    stage.clock.advance(Duration::from_hours(1));
    stage.respond(403, &json!({"error": "blocked by a firewall"}));
    assert!(stage.try_access("ann").is_err());
    stage.respond(200, &tokens("two", "r2"));
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
}

#[test]
fn a_token_goes_to_no_other_server_of_the_same_name() {
    let stage = Stage::new();
    let asked = stage.begin(&json!({}), None).expect("a URL");
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    let requests = stage.requests().len();
    let other = Subject { resource: "https://other.example.com/mcp".into(), ..subject("ann") };
    let confirmed = block_on(confirm(&stage.ports, &other, &hash(&asked["state"]), &code));
    assert_eq!((confirmed.ok(), stage.requests().len()), (Some(false), requests));
}

#[test]
fn a_refresh_ends_though_its_call_is_dropped() {
    let stage = Stage::new();
    stage.connect(&tokens("one", "r1"));
    stage.clock.advance(Duration::from_hours(1));
    stage.respond(200, &tokens("two", "r2"));
    // The call ends before its response arrives.
    assert!(stage.tokens("ann").access().now_or_never().is_none());
    stage.tasks.run();
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
}

#[test]
fn a_refused_token_does_not_disturb_its_refresh() {
    let stage = Stage::new();
    stage.connect(&tokens("one", "r1"));
    // A refusal makes it expire.
    block_on(stage.tokens("ann").refuse("one")).expect("a store that works");
    stage.respond(200, &tokens("two", "r2"));
    let another = stage.tokens("ann");
    // Another call is refused while the token is refreshed.
    stage.meanwhile(move || {
        another.refuse("one").now_or_never().expect("no wait").expect("a store that works");
    });
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
    assert_eq!(stage.access("ann").as_deref(), Some("two"), "it is stored");
}

#[test]
fn a_refreshed_token_replaces_one_that_was_changed_meanwhile() {
    let stage = Stage::new();
    stage.connect(&tokens("one", "r1"));
    stage.clock.advance(Duration::from_hours(1));
    stage.respond(200, &tokens("two", "r2"));
    let consents = Rc::clone(&stage.ports.consents);
    stage.meanwhile(move || {
        let of = subject("ann");
        let key = key(&of.tenant, Some(&of.user), ConsentKind::Token, &of.resource);
        let Sealed { value, version } =
            consents.get(&key).now_or_never().expect("no wait").expect("a store").expect("a token");
        let replaced = consents.replace(&key, &value, version).now_or_never().expect("no wait");
        assert_eq!(replaced, Ok(true));
    });
    assert_eq!(stage.access("ann").as_deref(), Some("two"));
    assert_eq!(stage.access("ann").as_deref(), Some("two"), "it is stored");
}

#[test]
fn a_registered_client_is_used_until_it_ends() {
    let stage = Stage::new();
    let register = json!({
        "client_id_metadata_document_supported": false, "registration_endpoint": "https://as.example.com/register",
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    });
    // The response to a registration is the third one of a request for consent.
    let begin = |client: Option<&Value>| {
        stage.metadata(&register);
        client.iter().for_each(|client| stage.respond(201, client));
        stage.ask(None).expect("a URL")
    };
    let client =
        |id: &str, end: u64| json!({"client_id": id, "client_secret": "s", "client_secret_expires_at": end});
    // The clock is at 1,000 seconds.
    assert_eq!(begin(Some(&client("one", 1_600)))["client_id"], "one");
    assert_eq!(begin(None)["client_id"], "one");
    stage.clock.advance(Duration::from_mins(10));
    assert_eq!(begin(Some(&client("two", 0)))["client_id"], "two");
    stage.clock.advance(Duration::from_hours(29 * 24));
    let asked = begin(None);
    assert_eq!(asked["client_id"], "two");
    // The authorization server does not know it any more.
    let code = stage.park(&asked["state"], None).expect("a request").expect("a code");
    stage.respond(401, &json!({"error": "invalid_client"}));
    assert!(stage.confirm("ann", &asked["state"], &code).is_err_and(|why| why.contains("invalid_client")));
    assert_eq!(begin(Some(&client("three", 0)))["client_id"], "three");
    stage.clock.advance(Duration::from_hours(30 * 24));
    assert_eq!(begin(Some(&client("four", 0)))["client_id"], "four");
}
