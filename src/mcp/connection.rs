//! Speaks with one server, in the era that it supports.

mod exchange;

use exchange::{OnQuestion, canceled};

use super::elicitation;
use super::error::McpError;
use super::headers::encoded;
use super::message::{MAX_BYTES, MAX_LIST_BYTES, Reader};
use super::oauth::{self, Asked, Challenge, Subject};
use super::offers::Offers;
use super::ports::Ports;
use super::protocol::{
    CAPABILITIES, CLIENT_INFO, LEGACY, METHOD_HEADER, MODERN, NAME_HEADER, SESSION_HEADER, VERSION,
    VERSION_HEADER,
};
use super::server::McpServer;
use crate::ports::{AllowedHosts, outbound::Endpoint};
use crate::types::{Invalid, TenantId, Timestamp, ToolProgress, UserId, expiring::Expiring};
use serde_json::{Map, Value, json};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// A server that does not support the requested version.
const UNSUPPORTED_VERSION: i64 = -32022;
/// An unknown method.
pub(super) const UNKNOWN_METHOD: i64 = -32601;
/// The oldest version. Some servers respond with it though they speak Streamable HTTP.
const OLDEST: &str = "2024-11-05";
/// Maximum length of the id of a legacy session.
const MAX_SESSION_ID: usize = 1_024;
/// Maximum number of legacy sessions with one server.
const MAX_SESSIONS: usize = 1_000;
/// How long a legacy session is used. A server may end it earlier.
const SESSION_TTL: Duration = Duration::from_hours(24);

/// The connection to one server of one agent. It has no open connection: what it keeps is how to speak.
pub struct Connection {
    name: String,
    tenant: TenantId,
    /// The user whose consent the requests have; `None` for a server that needs none.
    user: Option<UserId>,
    server: McpServer,
    /// An older Worker may have stored a definition that this one refuses.
    endpoint: Result<Endpoint, Invalid>,
    ports: Rc<Ports>,
    era: RefCell<Option<Era>>,
    /// The legacy sessions, by caller: `None` for a server without sessions. Callers share none, because a server may keep
    /// state in it.
    sessions: Expiring<Option<String>>,
    next_id: Cell<u64>,
    /// What the server offers besides tools, as far as it has said it.
    offers: Cell<Offers>,
    is_outdated: Cell<bool>,
    /// Until when the stream of a legacy session is not opened.
    no_stream_until: Cell<Timestamp>,
}

/// How the server speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy { version: String, has_sessions: bool },
}

/// A request.
pub(super) struct Outgoing<'a> {
    /// The session of the agent on whose behalf it is sent; empty for lists.
    pub caller: &'a str,
    pub id: u64,
    pub method: &'static str,
    pub params: Map<String, Value>,
    /// What a modern request is about.
    pub name: Option<&'a str>,
    /// More headers of a modern request.
    pub headers: Vec<(String, String)>,
    /// Maximum size of the response, in bytes.
    pub max_bytes: usize,
    /// Whether it was sent, so that it may have taken effect.
    pub is_sent: Cell<bool>,
    /// Shows how far it is. The server is asked to say so.
    pub on_progress: Option<&'a dyn Fn(ToolProgress)>,
    /// Responds to the questions of a legacy server.
    pub on_question: Option<OnQuestion<'a>>,
}

impl<'a> Outgoing<'a> {
    /// Creates a request that changes nothing, and that no session makes.
    pub fn read(id: u64, method: &'static str, params: Map<String, Value>) -> Self {
        let max_bytes = MAX_LIST_BYTES;
        let (name, headers, is_sent) = (None, Vec::new(), Cell::default());
        Self {
            caller: "",
            id,
            method,
            params,
            name,
            headers,
            max_bytes,
            is_sent,
            on_progress: None,
            on_question: None,
        }
    }

    /// Creates a call of a tool.
    pub fn call(
        caller: &'a str,
        id: u64,
        name: &'a str,
        args: Map<String, Value>,
        headers: Vec<(String, String)>,
    ) -> Self {
        let params = Map::from_iter([("name".into(), name.into()), ("arguments".into(), args.into())]);
        let name = Some(name);
        Self { caller, name, headers, max_bytes: MAX_BYTES, ..Self::read(id, "tools/call", params) }
    }
}

impl Connection {
    pub(super) fn new(
        name: &str,
        (tenant, user): (&TenantId, &UserId),
        server: McpServer,
        ports: Rc<Ports>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            tenant: tenant.clone(),
            user: server.asks_for_consent().then(|| user.clone()),
            endpoint: Endpoint::parse(&server.url, &server.headers),
            server,
            ports,
            era: RefCell::default(),
            sessions: Expiring::new(MAX_SESSIONS),
            next_id: Cell::new(1),
            offers: Cell::default(),
            is_outdated: Cell::default(),
            no_stream_until: Cell::default(),
        }
    }

    /// Returns the name of the server in the definition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tenant whose agent names the server.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Returns the server as the definition describes it.
    pub fn server(&self) -> &McpServer {
        &self.server
    }

    /// Returns the hosts to which the connection leads, and to which a person may be sent.
    pub(super) fn hosts(&self) -> &AllowedHosts {
        &self.ports.hosts
    }

    /// Returns the id of a new request, which differs from that of an earlier one, perhaps of another process.
    pub(super) fn new_id(&self, earlier: u64) -> u64 {
        let id = self.next_id.replace(self.next_id.get() + 1);
        if id == earlier { self.next_id.replace(id + 2) } else { id }
    }

    /// Sends a request and returns its result.
    ///
    /// # Errors
    /// The server gave no result.
    pub(super) async fn ask(&self, outgoing: &Outgoing<'_>) -> Result<Value, McpError> {
        match self.era().await? {
            Era::Modern => {
                let result = self.ask_modern(outgoing).await;
                if result.as_ref().err().and_then(McpError::code) == Some(UNSUPPORTED_VERSION) {
                    // The server has changed. The next list finds out how it speaks now.
                    self.era.take();
                }
                result
            }
            Era::Legacy { version, has_sessions } => self.ask_legacy(outgoing, &version, has_sessions).await,
        }
    }

    /// Sends a request for a list of the server. A server that does not know the method has none.
    pub(super) async fn list(
        &self,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Option<Value>, McpError> {
        self.era().await?;
        match self.ask(&Outgoing::read(self.new_id(0), method, params)).await {
            Err(error) if error.code() == Some(UNKNOWN_METHOD) => Ok(None),
            Err(error) => {
                // The server may speak otherwise now. The next list finds it out.
                self.era.take();
                Err(error)
            }
            Ok(listed) => Ok(Some(listed)),
        }
    }

    /// Tells a legacy server that the result of a request is no longer wanted. A modern server sees that its stream closed.
    pub(super) async fn cancel(&self, caller: &str, id: u64) {
        let era = self.era.borrow().clone();
        let Some(Era::Legacy { version, .. }) = era else { return };
        let session = self.sessions.get(caller, self.ports.clock.now()).flatten();
        // The request ends with or without this message.
        let _ = self.send(legacy_headers(&version, session.as_deref()), &canceled(id)).await;
    }

    /// Returns what a server that refuses a request says about the consent that it needs.
    pub(super) fn needs_consent<'a>(&self, error: &'a McpError) -> Option<&'a Challenge> {
        match error {
            McpError::Unauthorized(status, challenge)
                if self.user.is_some() && (*status == 401 || challenge.lacks_scope) =>
            {
                Some(challenge)
            }
            _ => None,
        }
    }

    /// Makes a request for the consent of a user.
    ///
    /// # Errors
    /// The server or its authorization server does not allow it.
    pub(super) async fn ask_for_consent(
        &self,
        challenge: &Challenge,
        user: &UserId,
    ) -> Result<Asked, McpError> {
        oauth::begin(&self.ports, &self.subject(user)?, &self.server, challenge).await
    }

    /// Connects a user who has given consent. Returns whether this code confirms the request.
    ///
    /// # Errors
    /// The authorization server refuses it, or fails.
    pub(super) async fn confirm_consent(
        &self,
        request: &str,
        code: &str,
        user: &UserId,
    ) -> Result<bool, McpError> {
        oauth::confirm(&self.ports, &self.subject(user)?, request, code).await
    }

    /// Returns whether the calls of a caller share a session with the server, in which it may ask questions.
    pub(super) fn has_session(&self) -> bool {
        matches!(&*self.era.borrow(), Some(Era::Legacy { has_sessions: true, .. }))
    }

    /// Returns what the server offers besides tools.
    pub(super) fn offers(&self) -> Offers {
        self.offers.get()
    }

    /// Returns whether calls of a user may use this connection.
    pub(super) fn serves(&self, user: &UserId) -> bool {
        self.user.as_ref().is_none_or(|own| own == user)
    }

    /// Sets whether the list of the server has to be read before the next turn: the user has connected the server since then, or
    /// the server has changed its tools.
    pub(super) fn set_outdated(&self, is_outdated: bool) {
        self.is_outdated.set(is_outdated);
    }

    /// Returns whether the list of the server has to be read before the next turn.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.get()
    }

    fn subject(&self, user: &UserId) -> Result<Subject, McpError> {
        let (tenant, user) = (self.tenant.clone(), user.clone());
        Ok(Subject { tenant, user, resource: self.ports.hosts.receiver(&self.server.url)? })
    }

    async fn era(&self) -> Result<Era, McpError> {
        if let Some(era) = self.era.borrow().clone() {
            return Ok(era);
        }
        let mut discovered = self.discover().await;
        if discovered.as_ref().is_err_and(McpError::asks_to_repeat) {
            discovered = self.discover().await;
        }
        let era = match discovered {
            Ok(true) => Era::Modern,
            Err(error) if error.concerns_both_eras() => return Err(error),
            Ok(false) | Err(_) => self.initialize("").await?,
        };
        *self.era.borrow_mut() = Some(era.clone());
        Ok(era)
    }

    /// Returns whether the server supports the modern version.
    async fn discover(&self) -> Result<bool, McpError> {
        let outgoing = Outgoing::read(self.new_id(0), "server/discover", Map::new());
        let result = self.ask_modern(&outgoing).await?;
        let versions = result.get("supportedVersions").and_then(Value::as_array);
        let is_modern = versions.is_some_and(|versions| versions.iter().any(|version| version == MODERN));
        if is_modern {
            self.offers.set(Offers::of(&result));
        }
        Ok(is_modern)
    }

    async fn ask_modern(&self, outgoing: &Outgoing<'_>) -> Result<Value, McpError> {
        let mut headers = vec![
            (VERSION_HEADER.to_owned(), MODERN.to_owned()),
            (METHOD_HEADER.to_owned(), outgoing.method.to_owned()),
        ];
        headers.extend(outgoing.name.map(|name| (NAME_HEADER.to_owned(), encoded(name))));
        headers.extend(outgoing.headers.iter().cloned());
        let mut params = outgoing.params.clone();
        params.insert(
            "_meta".into(),
            json!({VERSION: MODERN, CAPABILITIES: elicitation::capabilities(), CLIENT_INFO: client_info()}),
        );
        self.exchange(headers, outgoing, params, None).await
    }

    async fn ask_legacy(
        &self,
        outgoing: &Outgoing<'_>,
        version: &str,
        has_sessions: bool,
    ) -> Result<Value, McpError> {
        let now = || self.ports.clock.now();
        let mut is_new = false;
        loop {
            let known = if has_sessions { self.sessions.get(outgoing.caller, now()) } else { Some(None) };
            let session = match known {
                Some(session) => session,
                None => {
                    self.initialize(outgoing.caller).await?;
                    is_new = true;
                    self.sessions.get(outgoing.caller, now()).flatten()
                }
            };
            let headers = legacy_headers(version, session.as_deref());
            let result = self.exchange_in_session(headers, outgoing).await;
            match result {
                // The server has not run the request, because it has ended the session.
                Err(error) if error.is_of_session() && session.is_some() && !is_new => {
                    outgoing.is_sent.set(false);
                    self.sessions.remove(outgoing.caller);
                }
                result => return result,
            }
        }
    }

    /// Begins a legacy session for a caller.
    async fn initialize(&self, caller: &str) -> Result<Era, McpError> {
        let capabilities = elicitation::legacy_capabilities();
        let params =
            json!({"protocolVersion": LEGACY[0], "capabilities": capabilities, "clientInfo": client_info()});
        let id = self.new_id(0);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params});
        let (target, response) = self.send(Vec::new(), &body).await?;
        let session = response.header(SESSION_HEADER).map(str::to_owned);
        if session.as_ref().is_some_and(|id| id.is_empty() || id.len() > MAX_SESSION_ID) {
            return Err(McpError::Malformed("the id of its session is empty or too long"));
        }
        let mut reader = Reader::new(response, &target.redaction, MAX_LIST_BYTES).await?;
        let result = self.result(&mut reader, id, None, None, &[]).await?;
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !LEGACY.contains(&&*version) && version != OLDEST {
            return Err(McpError::Malformed("it chose an unknown version of the protocol"));
        }
        self.offers.set(Offers::of(&result));
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(legacy_headers(&version, session.as_deref()), &body).await?;
        let (has_sessions, now) = (session.is_some(), self.ports.clock.now());
        self.sessions.put(caller.to_owned(), session, now + SESSION_TTL, now);
        Ok(Era::Legacy { version, has_sessions })
    }
}

fn legacy_headers(version: &str, session: Option<&str>) -> Vec<(String, String)> {
    let version = (VERSION_HEADER.to_owned(), version.to_owned());
    let session = session.map(|session| (SESSION_HEADER.to_owned(), session.to_owned()));
    std::iter::once(version).chain(session).collect()
}

fn client_info() -> Value {
    json!({"name": "edge-harness", "version": env!("CARGO_PKG_VERSION")})
}
