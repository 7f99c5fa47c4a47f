//! The session object: one Durable Object per session. Its logic is in `http::session` and
//! `agent::SessionHost`.

#![allow(missing_docs, reason = "the platform's macros generate undocumented items")]

use super::{
    convert, messages,
    runtime::{ConsoleLog, ObjectSpawner},
    setup,
    socket::{self as platform_socket, ObjectSocket},
    sql::ObjectDatabase,
};
use crate::agent::{HostConfig, SessionHost, host::HostPorts};
use crate::http::{
    Body, Response as HttpResponse,
    faces::a2a::PushSender,
    request,
    response::ResponseExt,
    routes,
    session::{self, call::SessionRequest, socket, sockets::Sockets},
    upgrade::Upgrade,
};
use crate::platform::sql::SqlSessionStore;
use crate::ports::{Log, PeerError, PeerRequest, PeerResponse, Peers, SessionEraser};
use crate::types::{
    Acknowledgement, CallId, ChildStatus, ErrorCode, Imported, Principal, Problem, RequestId, SessionId,
    Snapshot, TenantId, json,
};
use async_trait::async_trait;
use js_sys::Uint8Array;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{panic::AssertUnwindSafe, rc::Rc, time::Duration};
use worker::{
    DurableObject, Env, Headers, Method, ObjectNamespace, Request, RequestInit, Response, Result, State,
    WebSocket, WebSocketIncomingMessage, WebSocketPair, durable_object,
};

/// The header by which the gateway passes an authenticated request on. The gateway always overwrites it.
pub const FORWARD: &str = "x-edge-harness-forward";
/// The header by which an object names the limit of the tenant that a request has reached. The gateway removes it.
pub const REACHED: &str = "x-edge-harness-reached";
/// The header of a request between objects. Ignored on requests that the gateway passed on.
const INTERNAL: &str = "x-edge-harness-internal";

/// When a failed alarm is repeated. The platform itself repeats it a few times only, and then drops it.
const RETRY: Duration = Duration::from_mins(1);

/// The value of [`FORWARD`].
#[derive(Serialize, Deserialize)]
pub struct ForwardHead {
    /// The caller.
    pub principal: Principal,
    /// The id of the session.
    pub session: SessionId,
    /// The id of the request.
    pub id: RequestId,
    /// Headers to add to the response, as lines of `name:value`.
    pub response_headers: String,
}

/// The value of [`INTERNAL`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Internal {
    Copy,
    Import,
    Cancel { session: SessionId, call_id: CallId },
    Notify,
    Erase { tenant: TenantId, session: SessionId },
    Consolidate { limit: usize },
}

/// The Durable Object.
#[durable_object]
pub struct SessionObject {
    inner: AssertUnwindSafe<Inner>,
}

struct Inner {
    state: Rc<State>,
    env: Env,
    /// The configuration error is reported at each request.
    session: Result<Parts>,
}

/// The session of the object.
struct Parts {
    host: Rc<SessionHost>,
    sockets: Rc<Sockets<ObjectSocket>>,
}

impl DurableObject for SessionObject {
    fn new(state: State, env: Env) -> Self {
        let state = Rc::new(state);
        let session = parts(&state, &env);
        Self { inner: AssertUnwindSafe(Inner { state, env, session }) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        let forward = request.headers().get(FORWARD)?;
        let internal = request.headers().get(INTERNAL)?;
        match (forward, internal) {
            (Some(forward), _) => self.inner.forwarded(request, &forward).await,
            (None, Some(internal)) => self.inner.internal(request, &internal).await,
            (None, None) => Response::error("not found", 404),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        match &self.inner.session {
            Ok(Parts { host, .. }) => {
                if let Err(problem) = host.wake().await {
                    ConsoleLog.error(&json!({ "event": "alarm.failed", "cause": problem.to_string() }));
                    self.inner.state.storage().set_alarm(RETRY).await?;
                }
            }
            Err(error) => {
                ConsoleLog.error(&json!({ "event": "not_configured", "cause": error.to_string() }));
                self.inner.state.storage().set_alarm(RETRY).await?;
            }
        }
        Response::empty()
    }

    async fn websocket_message(&self, ws: WebSocket, message: WebSocketIncomingMessage) -> Result<()> {
        let Parts { host, sockets } = self.inner.parts()?;
        let text = match message {
            WebSocketIncomingMessage::String(text) => text,
            WebSocketIncomingMessage::Binary(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        };
        if text == "ping" {
            return ws.send_with_str("pong");
        }
        let Some(open) = sockets.find(&ObjectSocket(ws.clone())) else {
            return ws.close(Some(1011), Some("the state of this socket was lost"));
        };
        let Some(state) = sockets.checked(&open).await else { return Ok(()) };
        let request_id = host.new_id::<RequestId>();
        match socket::command(host, &state, &text, &request_id).await {
            Some(frame) => ws.send_with_str(&frame),
            None => Ok(()),
        }
    }

    async fn websocket_close(&self, ws: WebSocket, code: usize, reason: String, _clean: bool) -> Result<()> {
        self.inner.parts()?.sockets.remove(&ObjectSocket(ws.clone()));
        // Completes the closing handshake; a code that must not be sent is replaced by 1000.
        let code = u16::try_from(code)
            .ok()
            .filter(|code| (1000..=4999).contains(code) && !(1004..=1006).contains(code));
        let _ = ws.close(Some(code.unwrap_or(1000)), Some(reason));
        Ok(())
    }

    async fn websocket_error(&self, ws: WebSocket, _error: worker::Error) -> Result<()> {
        self.inner.parts()?.sockets.remove(&ObjectSocket(ws));
        Ok(())
    }
}

fn parts(state: &Rc<State>, env: &Env) -> Result<Parts> {
    let agent = setup::agent(env)?;
    let (credentials, spawner) = (setup::credentials(env)?, Rc::new(ObjectSpawner(Rc::clone(state))));
    let sockets = Rc::new(Sockets::new(
        platform_socket::held(state),
        Rc::clone(&credentials),
        setup::clock(),
        spawner.clone(),
        Rc::new(ConsoleLog),
    ));
    let (limits, allowed) =
        setup::with_config(env, |config| (config.limits.clone(), config.push_allow.clone()));
    let ports = HostPorts {
        store: Rc::new(SqlSessionStore::new(ObjectDatabase(state.storage()))),
        directory: setup::directory(env)?,
        ledger: setup::ledger(env)?,
        inbox: setup::inbox(env)?,
        credentials,
        blobs: setup::blobs(env)?,
        clock: setup::clock(),
        entropy: setup::entropy(),
        spawner,
        peers: Rc::new(Objects(env.durable_object("SESSION")?)),
        agents: Some(setup::agents(env)?),
        webhooks: Some(Rc::new(PushSender { http: setup::http(), allowed })),
        broadcast: Some(sockets.clone()),
    };
    let context = agent.bounds();
    Ok(Parts { host: SessionHost::new(ports, agent, HostConfig { context, limits }), sockets })
}

impl Inner {
    fn parts(&self) -> Result<&Parts> {
        self.session.as_ref().map_err(|error| worker::Error::RustError(error.to_string()))
    }

    /// Handles a request that the gateway has forwarded.
    async fn forwarded(&self, request: Request, forward: &str) -> Result<Response> {
        #[cfg(feature = "fixtures")]
        super::fixtures::log_ticket(&request);
        let forward: ForwardHead = messages::of_json(forward)?;
        let inner = request.inner();
        let response = match self.respond(inner, &forward).await {
            Ok(response) => match response.into_parts() {
                (_, Body::WebSocket(upgrade)) => return self.open_socket(&upgrade),
                (parts, body) => http::Response::from_parts(parts, body),
            },
            Err(problem) => {
                if problem.code.status() >= 500 {
                    ConsoleLog.error(&json!({
                        "event": "request.failed", "request_id": forward.id, "cause": problem.to_string(),
                    }));
                }
                let response = routes::problem(&convert::head(inner), &problem, &forward.id);
                match &problem.reached {
                    Some(reached) => response.with(REACHED, &serde_json::to_string(reached)?),
                    None => response,
                }
            }
        };
        Ok(convert::response(response, &forward.response_headers)?.into())
    }

    async fn respond(
        &self,
        request: &web_sys::Request,
        forward: &ForwardHead,
    ) -> std::result::Result<HttpResponse, Problem> {
        let Parts { host, .. } = self.session.as_ref().map_err(|error| {
            let detail = "this deployment is not configured correctly; see its log";
            Problem { cause: Some(error.to_string()), ..Problem::new(ErrorCode::NotConfigured, detail) }
        })?;
        let mut head = convert::head(request);
        if request::has_body(head.method()) {
            let length = request::length(&head);
            *head.body_mut() = convert::body(request, length).await?.into();
        }
        let ForwardHead { principal, session, id, .. } = forward;
        let (principal, session, id) = (principal.clone(), session.clone(), id.clone());
        session::respond(host, &SessionRequest { principal, session, id, request: head }).await
    }

    /// Opens a WebSocket. There is no await since the handler read the missed frames, so no frame is lost or
    /// sent twice.
    fn open_socket(&self, upgrade: &Upgrade) -> Result<Response> {
        let (pair, Parts { host, sockets }) = (WebSocketPair::new()?, self.parts()?);
        platform_socket::hold(&self.state, &pair.server, &upgrade.state.stored())?;
        let open = sockets.add(ObjectSocket(pair.server.clone()), upgrade.state.clone());
        host.run_due();
        for frame in &upgrade.missed {
            pair.server.send_with_str(frame.json())?;
        }
        if upgrade.is_behind {
            sockets.close_behind(&open);
        }
        Response::from_websocket(pair.client)
    }

    /// Handles a request from another object, or from the gateway itself.
    async fn internal(&self, mut request: Request, internal: &str) -> Result<Response> {
        let Parts { host, .. } = self.parts()?;
        if let Err(problem) = host.load_agent().await {
            return Response::error(problem.to_string(), 500);
        }
        let done = match messages::of_json(internal)? {
            Internal::Copy => {
                read(&mut request).await.and_then(|snapshot| host.copy(&snapshot)).map(|()| String::new())
            }
            Internal::Import => match read(&mut request).await {
                Ok(snapshot) => host.import(snapshot).await.map(json_of),
                Err(problem) => Err(problem),
            },
            Internal::Cancel { session, call_id } => host.cancel_task(&session, &call_id).map(json_of),
            Internal::Notify => match read(&mut request).await {
                Ok(status) => host.child_status(status).await.map(json_of),
                Err(problem) => Err(problem),
            },
            Internal::Erase { tenant, session } => {
                host.erase(&tenant, &session).await.map(|()| String::new())
            }
            Internal::Consolidate { limit } => {
                let done = setup::memories(&self.env)?.consolidate_due(limit).await;
                done.map(|spaces| spaces.to_string()).map_err(|error| Problem::internal(error.to_string()))
            }
        };
        match done {
            Ok(body) => Response::ok(body),
            Err(problem) => Response::error(problem.to_string(), 500),
        }
    }
}

/// Returns the name of a session's object. It starts with its tenant.
pub fn object_name(tenant: &TenantId, session: &SessionId) -> String {
    format!("{tenant}/{session}")
}

/// The session objects.
pub struct Objects(pub ObjectNamespace);

impl Objects {
    /// Consolidates due memory spaces in an object that belongs to no session.
    pub async fn consolidate(&self, index: usize, limit: usize) -> std::result::Result<(), PeerError> {
        // Not a valid tenant name.
        let name = format!("!consolidation/{index}");
        self.ask(&name, &Internal::Consolidate { limit }, None).await.map(drop)
    }

    /// Sends a request to a session's object and reads its response.
    async fn exchange<T: serde::de::DeserializeOwned>(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        what: &Internal,
        body: Option<String>,
    ) -> std::result::Result<T, PeerError> {
        let response = self.ask(&object_name(tenant, session), what, body).await?;
        json::from_str(&response).map_err(|error| PeerError(error.to_string()))
    }

    async fn ask(
        &self,
        object: &str,
        what: &Internal,
        body: Option<String>,
    ) -> std::result::Result<String, PeerError> {
        let asked = async {
            let headers = Headers::new();
            headers.set(INTERNAL, &serde_json::to_string(what)?)?;
            let mut init = RequestInit::new();
            // Bytes, because the engine would keep a string, which may have two bytes a character, until it is collected.
            let body = body.map(|body| Uint8Array::from(body.as_bytes()).into());
            init.with_method(Method::Post).with_headers(headers).with_body(body);
            let request = Request::new_with_init("https://session.internal/", &init)?;
            let mut response = self.0.get_by_name(object)?.fetch_with_request(request).await?;
            Ok::<_, worker::Error>((response.status_code(), response.text().await?))
        };
        match asked.await {
            Ok((200, body)) => Ok(body),
            Ok((_, body)) => Err(PeerError(body)),
            Err(error) => Err(PeerError(error.to_string())),
        }
    }
}

#[async_trait(?Send)]
impl Peers for Objects {
    async fn copy(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> std::result::Result<(), PeerError> {
        let object = object_name(tenant, session);
        self.ask(&object, &Internal::Copy, Some(json_of(snapshot))).await.map(drop)
    }

    async fn import(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> std::result::Result<Imported, PeerError> {
        self.exchange(tenant, session, &Internal::Import, Some(json_of(snapshot))).await
    }

    async fn cancel(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> std::result::Result<ChildStatus, PeerError> {
        let what = Internal::Cancel { session: session.to_owned(), call_id: call_id.to_owned() };
        self.exchange(tenant, session, &what, None).await
    }

    async fn notify(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        status: ChildStatus,
    ) -> std::result::Result<Acknowledgement, PeerError> {
        self.exchange(tenant, session, &Internal::Notify, Some(json_of(status))).await
    }

    async fn post(
        &self,
        session: &SessionId,
        request: PeerRequest,
    ) -> std::result::Result<PeerResponse, PeerError> {
        let PeerRequest { principal, id, path, body } = request;
        let target = format!("/v1/sessions/{session}{path}");
        let headers = [("content-type", "application/json"), ("prefer", "respond-async")];
        let posted = async {
            let response = self.forward(&principal, session, id, &target, &headers, Some(body)).await?;
            let mut response = Response::from(response);
            let retry_after = response.headers().get("retry-after")?;
            Ok::<_, worker::Error>(PeerResponse {
                status: response.status_code(),
                retry_after_s: retry_after.and_then(|seconds| seconds.parse().ok()),
                body: response.bytes().await?.into(),
            })
        };
        posted.await.map_err(|error| PeerError(error.to_string()))
    }
}

#[async_trait(?Send)]
impl SessionEraser for Objects {
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> std::result::Result<(), PeerError> {
        let what = Internal::Erase { tenant: tenant.clone(), session: session.to_owned() };
        self.ask(&object_name(tenant, session), &what, None).await.map(drop)
    }
}

/// Reads the body of a request of another object.
async fn read<T: serde::de::DeserializeOwned>(request: &mut Request) -> std::result::Result<T, Problem> {
    let body = request.bytes().await.map_err(|error| Problem::internal(error.to_string()))?;
    json::from_slice(&body).map_err(|error| Problem::internal(error.to_string()))
}

/// Returns the JSON of a message between objects: plain data, which can always be written.
fn json_of(message: impl Serialize) -> String {
    serde_json::to_string(&message).unwrap_or_default()
}
