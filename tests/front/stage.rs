//! A gateway with in-memory ports, and a client.

use crate::signatures::RustCrypto;
use async_trait::async_trait;
use bytes::Bytes;
use edge_harness::agent::settings::SkillSettings;
use edge_harness::http::anonymous_sockets::AnonymousSockets;
use edge_harness::http::{
    AuthCache, Body, Forward, ForwardedMessages, Gateway, GatewayConfig, Handled, Readiness, RefusalPace,
    Refusals, RequestBlocks, Response, TenantSecrets, handle,
};
use edge_harness::memory::{Memories, MemorySettings};
use edge_harness::model::{ModelRegistry, ModelSettings, one_shot::OneShotModel};
use edge_harness::platform::in_memory::clock::{ManualClock, SeededEntropy};
use edge_harness::platform::in_memory::directory::InMemoryDirectory;
use edge_harness::platform::in_memory::{
    InMemoryAgents, InMemoryConsents, InMemoryInbox, InMemoryIndex, InMemoryLedger, InMemoryMoves,
    InMemorySecrets, InMemorySpaces, MemoryBlobs, MemoryFiles, MemoryLog,
};
use edge_harness::ports::directory::SessionEntry;
use edge_harness::ports::{
    Clock, Directory, Http, HttpError, HttpRequest, HttpResponse, PeerError, ReaderRequest, SessionEraser,
    SessionReader, SessionResponse,
};
use edge_harness::types::{
    Actor, AuditAction, AuditEntry, Mode, Principal, SessionId, TenantId, TenantLimits, Timestamp, UserId,
};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use futures::executor::block_on;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

pub const ADMIN: &str = "the-operators-key-with-its-32-bytes";
pub const DEV: &str = "the-development-key";
pub const NOW: Timestamp = Timestamp(1_795_176_000_000);

pub struct Stage {
    pub gateway: Gateway,
    pub agents: Rc<InMemoryAgents>,
    pub consents: Rc<InMemoryConsents>,
    pub secrets: Rc<InMemorySecrets>,
    pub directory: Rc<InMemoryDirectory>,
    pub ledger: Rc<InMemoryLedger>,
    pub inbox: Rc<InMemoryInbox>,
    pub clock: ManualClock,
    pub web: Rc<Web>,
    pub objects: Rc<Objects>,
    pub index: Rc<InMemoryIndex>,
    pub files: Rc<MemoryFiles>,
    pub blobs: Rc<MemoryBlobs>,
    pub log: Rc<MemoryLog>,
}

/// External documents by URL, and the number of requests for each.
#[derive(Default)]
pub struct Web {
    pub documents: RefCell<BTreeMap<String, Value>>,
    pub asked: Cell<usize>,
}

#[async_trait(?Send)]
impl Http for Web {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.asked.set(self.asked.get() + 1);
        let document = self.documents.borrow().get(&request.url).map(Value::to_string);
        let text = document.ok_or_else(|| HttpError("no route to host".into()))?;
        let body = stream::iter([Ok(Bytes::from(text))]).boxed_local();
        Ok(HttpResponse { status: 200, headers: vec![], body })
    }
}

/// The pieces of a body.
pub type Pieces = Vec<Result<Bytes, PeerError>>;

/// The session objects: which were erased, and which fail.
#[derive(Default)]
pub struct Objects {
    pub directory: Rc<InMemoryDirectory>,
    pub erased: RefCell<Vec<String>>,
    pub stuck: RefCell<Vec<String>>,
    /// Erasures that run now, and the most that ran at the same time.
    pub running: Cell<usize>,
    pub most: Cell<usize>,
    /// What objects respond to readers, by path; the last piece of a body that breaks is an error.
    pub responses: RefCell<BTreeMap<String, (u16, Pieces)>>,
    /// The user as which the last reader asked.
    pub reader: RefCell<Option<UserId>>,
    /// The requests of readers with a body, each with its session.
    pub posted: RefCell<Vec<(String, Value)>>,
    /// Number of requests of readers so far.
    pub reads: Cell<usize>,
    /// How far each erasure advances a clock.
    pub takes: RefCell<Option<(ManualClock, Duration)>>,
}

#[async_trait(?Send)]
impl SessionEraser for Objects {
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> Result<(), PeerError> {
        self.running.set(self.running.get() + 1);
        self.most.set(self.most.get().max(self.running.get()));
        yield_once().await;
        self.running.set(self.running.get() - 1);
        if let Some((clock, span)) = &*self.takes.borrow() {
            clock.advance(*span);
        }
        if self.stuck.borrow().iter().any(|stuck| stuck == session.as_str()) {
            return Err(PeerError("overloaded".into()));
        }
        self.erased.borrow_mut().push(format!("{tenant}/{session}"));
        self.directory.delete_session(tenant, session).await.map_err(|error| PeerError(error.to_string()))
    }
}

#[async_trait(?Send)]
impl SessionReader for Objects {
    async fn send(
        &self,
        principal: &Principal,
        session: &SessionId,
        request: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError> {
        let target = request.target;
        if let Some(body) = request.body {
            self.posted.borrow_mut().push((session.to_string(), serde_json::from_str(body).unwrap()));
        }
        self.reads.set(self.reads.get() + 1);
        *self.reader.borrow_mut() = principal.user.clone();
        yield_once().await;
        let name = format!("{}/{session}{}", principal.tenant, target.replace("/v1/sessions/", " "));
        let found = self.responses.borrow().get(&name).cloned();
        let (status, pieces) = found.ok_or_else(|| PeerError(format!("no object for {name}")))?;
        Ok(SessionResponse { status, body: stream::iter(pieces).boxed_local() })
    }
}

/// Yields once, as a call over the network does.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }

    pub fn text(&self, name: &str) -> String {
        self.body[name].as_str().unwrap_or_else(|| panic!("no {name} in {self:?}")).to_owned()
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = match body {
            Body::Bytes(bytes) => serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into()),
            Body::Empty => Value::Null,
            Body::Stream(_) | Body::WebSocket(_) => panic!("the gateway never streams"),
        };
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

pub fn config() -> GatewayConfig {
    GatewayConfig {
        admin_key: Some(ADMIN.into()),
        dev_api_key: Some(DEV.into()),
        dev: false,
        origins: vec!["https://app.example".into()],
        modes: vec![Mode {
            id: "plan".into(),
            description: Some("Plans.".into()),
            instructions: Some("Write a plan.".into()),
            ..Mode::default()
        }],
        skills: SkillSettings::default(),
        models: vec!["demo/echo".into()],
        shards: vec!["DB".into(), "DB_1".into()],
        limits: TenantLimits::default(),
        push_notifications: false,
        malformed: vec![],
    }
}

impl Stage {
    /// Whether a line of the log contains the text.
    pub fn logged(&self, text: &str) -> bool {
        self.log.lines().iter().any(|line| line.to_string().contains(text))
    }

    pub fn new() -> Self {
        Self::with(config())
    }

    pub fn with(config: GatewayConfig) -> Self {
        let directory = Rc::new(InMemoryDirectory::default());
        let clock = ManualClock::at(NOW);
        let ledger = Rc::new(InMemoryLedger::new(Rc::new(clock.clone())));
        let inbox = Rc::new(InMemoryInbox::new(Rc::new(clock.clone())));
        let web = Rc::new(Web::default());
        let objects = Rc::new(Objects { directory: directory.clone(), ..Objects::default() });
        let log = Rc::new(MemoryLog::default());
        let (files, blobs) = (Rc::new(MemoryFiles::default()), Rc::new(MemoryBlobs::default()));
        let entropy = Rc::new(SeededEntropy::default());
        let stores = Stores::new(files.clone(), blobs.clone(), Rc::new(clock.clone()), entropy);
        let workspaces = Rc::new(Workspaces::new(stores, Bundle::default()));
        let models = ModelRegistry::new(ModelSettings::default(), web.clone(), None, Rc::new(clock.clone()));
        let index = Rc::new(InMemoryIndex::default());
        let memories = Memories::new(
            index.clone(),
            Rc::new(InMemorySpaces::new(index.clone())),
            workspaces.clone(),
            OneShotModel {
                models: Rc::new(models),
                clock: Rc::new(clock.clone()),
                entropy: Rc::new(SeededEntropy::default()),
            },
            MemorySettings::default(),
            Rc::new(MemoryLog::default()),
        );
        let memories = Rc::new(memories);
        let store = Rc::new(InMemoryAgents::new(directory.clone()));
        let secret_store = Rc::new(InMemorySecrets::new(directory.clone()));
        let secrets = Rc::new(TenantSecrets::new(
            secret_store.clone(),
            Rc::new(clock.clone()),
            Rc::new(SeededEntropy::default()),
            log.clone(),
            config.admin_key.clone(),
        ));
        let consents = Rc::<InMemoryConsents>::default();
        let agents = crate::deployment::agents(
            &store,
            &clock,
            &workspaces,
            &memories,
            &directory,
            &secrets,
            consents.clone(),
        );
        let gateway = Gateway {
            config,
            agents: Rc::new(agents),
            secrets,
            directory: directory.clone(),
            http: web.clone(),
            signatures: Rc::new(RustCrypto),
            clock: Rc::new(clock.clone()),
            entropy: Rc::new(SeededEntropy::default()),
            files: workspaces,
            memories,
            eraser: objects.clone(),
            reader: objects.clone(),
            ledger: ledger.clone(),
            inbox: inbox.clone(),
            moves: Rc::new(InMemoryMoves::default()),
            readiness: Readiness::default(),
            requests: RequestBlocks::default(),
            refusals: Refusals::default(),
            refusal_pace: RefusalPace::default(),
            messages: ForwardedMessages::default(),
            anonymous: AnonymousSockets::default(),
            cache: Rc::new(AuthCache::default()),
            log: log.clone(),
        };
        Self {
            gateway,
            agents: store,
            secrets: secret_store,
            consents,
            directory,
            ledger,
            inbox,
            clock,
            web,
            objects,
            files,
            index,
            blobs,
            log,
        }
    }

    pub async fn handle(&self, request: Request) -> Handled {
        let Request { head, body } = request;
        handle(&self.gateway, head, async move { Ok(body) }).await
    }

    pub fn send(&self, request: Request) -> Handled {
        block_on(self.handle(request))
    }

    pub fn answer(&self, request: Request) -> Answer {
        match self.send(request) {
            Handled::Response(response) => response.into(),
            Handled::Forward(forward) => panic!("forwarded to {}", forward.session),
            Handled::Socket(_) => panic!("a WebSocket"),
        }
    }

    pub fn forward(&self, request: Request) -> Box<Forward> {
        match self.send(request) {
            Handled::Forward(forward) => forward,
            Handled::Response(response) => panic!("answered {:?}", Answer::from(response)),
            Handled::Socket(_) => panic!("a WebSocket"),
        }
    }

    /// The status of `GET /v1/sessions` with this credential.
    pub fn status_of(&self, credential: &str) -> u16 {
        self.answer(get("/v1/sessions").bearer(credential)).status
    }

    pub fn tenant(&self, id: &str, jwt: Value) {
        let answer = self.answer(
            post("/v1/admin/tenants").bearer(ADMIN).json(&serde_json::json!({ "id": id, "jwt": jwt })),
        );
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Creates a key of a tenant; returns its id and its secret.
    pub fn key(&self, tenant: &str, body: Value) -> (String, String) {
        let path = format!("/v1/admin/tenants/{tenant}/keys");
        let answer = self.answer(post(&path).bearer(ADMIN).json(&body));
        assert_eq!(answer.status, 201, "{answer:?}");
        (answer.text("id"), answer.text("key"))
    }

    /// Revokes a key in another isolate.
    pub fn revoke_elsewhere(&self, tenant: &str, key: &str) {
        let audit = AuditEntry { object: key.to_owned(), ..self.audit_row(tenant) };
        assert!(block_on(self.directory.delete_key(&key.into(), &audit)).unwrap());
    }

    /// A row of the audit trail, for a change that another isolate makes.
    pub fn audit_row(&self, tenant: &str) -> AuditEntry {
        AuditEntry {
            tenant: tenant.into(),
            id: self.gateway.make_id(),
            at: self.clock.now(),
            actor: Actor::Operator,
            action: AuditAction::KeyRevoked,
            object: String::new(),
            address: None,
            request_id: None,
            details: Map::new(),
        }
    }

    pub fn session(&self, tenant: &str, id: &str, user: &str, age_ms: u64) {
        let at = Timestamp(NOW.0 - age_ms);
        let entry = SessionEntry {
            tenant: tenant.into(),
            id: id.into(),
            user: user.into(),
            agent: "default".into(),
            title: None,
            created_at: at,
            updated_at: at,
            pending: 0,
            running: false,
            parent: None,
        };
        block_on(self.directory.put_session(&entry)).unwrap();
    }
}

pub struct Request {
    head: edge_harness::http::Request,
    body: Bytes,
}

impl Request {
    /// The method and target.
    pub fn target(&self) -> String {
        format!("{} {}", self.head.method(), self.head.uri())
    }
}

pub fn request(method: &str, target: &str) -> Request {
    let mut head = edge_harness::http::Request::default();
    *head.method_mut() = method.parse().unwrap();
    *head.uri_mut() = target.parse().unwrap();
    Request { head, body: Bytes::new() }.header("host", "localhost:8787")
}

pub fn get(target: &str) -> Request {
    request("GET", target)
}

pub fn post(target: &str) -> Request {
    request("POST", target)
}

pub fn delete(target: &str) -> Request {
    request("DELETE", target)
}

impl Request {
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().unwrap();
        self.head.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    pub fn bearer(self, credential: &str) -> Self {
        self.header("authorization", &format!("Bearer {credential}"))
    }

    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self.header("content-type", "application/json")
    }
}

/// The ids in a list's `data`.
pub fn ids(answer: &Answer) -> Vec<&str> {
    answer.body["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}
