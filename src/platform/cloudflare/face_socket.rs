//! The WebSockets of other protocols: the Worker itself holds them, because one socket carries requests to several
//! sessions.

use super::{body::BodyStream, convert, runtime::ConsoleLog};
use crate::http::anonymous_sockets::{AnonymousSocket, MAX_ANONYMITY};
use crate::http::body_budget::BodyPermit;
use crate::http::face_sockets::{self, FaceSocket};
use crate::http::faces::socket::{FrameHead, Frames, Incoming, MAX_REQUESTS, SocketFormat, SocketRequest};
use crate::http::{Gateway, Request as HttpRequest, RequestExt, response, routes};
use crate::ports::{Log, http::HttpError};
use crate::types::{ErrorCode, Problem};
use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, Either, LocalBoxFuture, abortable, pending, select},
};
use serde_json::json;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{AbortController, AbortSignal, Headers, Request, RequestInit, Response};
use worker::{Env, Result, WebSocket, WebSocketPair, WebsocketEvent};

/// Most bytes that a socket may still have to send before its responses pause (1 MiB). Their sessions then treat the client
/// as a slow reader.
const MAX_UNSENT: u32 = 1 << 20;
/// How long they pause before they look again.
const PAUSE: Duration = Duration::from_millis(20);

/// Code of a socket that is closed without a credential (RFC 6455, section 7.4.1).
const POLICY_VIOLATION: u16 = 1008;

/// Ends the response to a request when it is dropped. Its session would otherwise continue to send it.
struct Abort(AbortController);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Responds to a request.
pub type Respond = fn(Request, Env) -> LocalBoxFuture<'static, Result<Response>>;

/// What all requests of a socket share.
struct Shared {
    format: &'static dyn SocketFormat,
    socket: WebSocket,
    /// The request that opened the socket.
    handshake: HttpRequest,
    /// Scheme and host of its URL.
    origin: String,
    gateway: Rc<Gateway>,
    env: Env,
    respond: Respond,
    /// The requests whose responses have not ended.
    running: RefCell<HashMap<String, AbortHandle>>,
    /// The number of requests so far, which names those without an id.
    count: Cell<u64>,
}

/// Opens a socket.
pub fn open(
    handshake: &Request,
    FaceSocket { format, anonymous }: FaceSocket,
    gateway: Rc<Gateway>,
    env: &Env,
    respond: Respond,
) -> Result<Response> {
    let WebSocketPair { client, server } = WebSocketPair::new()?;
    server.accept()?;
    let shared = Shared {
        format,
        socket: server,
        handshake: convert::head(handshake),
        origin: handshake.url().split('/').take(3).collect::<Vec<_>>().join("/"),
        gateway,
        env: env.clone(),
        respond,
        running: RefCell::default(),
        count: Cell::default(),
    };
    spawn_local(serve(Rc::new(shared), anonymous));
    worker::Response::from_websocket(client).map(Into::into)
}

async fn serve(shared: Rc<Shared>, mut anonymous: Option<AnonymousSocket>) {
    if let Ok(mut events) = shared.socket.events() {
        let mut deadline = match &anonymous {
            Some(_) => shared.gateway.clock.sleep(MAX_ANONYMITY),
            None => pending().boxed_local(),
        };
        loop {
            let message = match select(events.next(), &mut deadline).await {
                Either::Left((Some(Ok(WebsocketEvent::Message(message))), _)) => message,
                Either::Left(_) => break,
                Either::Right(_) => {
                    // A socket that is closed already refuses it.
                    let _ = shared.socket.close(Some(POLICY_VIOLATION), Some("no valid credential was sent"));
                    break;
                }
            };
            let Some(text) = message.text() else { continue };
            if shared.receive(text).await && anonymous.take().is_some() {
                deadline = pending().boxed_local();
            }
        }
    }
    // The turns continue, as for a client that closes its connection.
    shared.running.take().into_values().for_each(|request| request.abort());
}

impl Shared {
    /// Starts the request in a frame. Returns whether it had a valid credential.
    async fn receive(self: &Rc<Self>, text: String) -> bool {
        let head = self.format.head(&text);
        let read = match convert::reserve(text.len()) {
            Ok(permit) => self.read(&head, text).await.map(|incoming| (incoming, permit)),
            Err(problem) => Err(problem),
        };
        match read {
            Ok((Incoming::Request(asked), permit)) => {
                self.start(asked, permit);
                true
            }
            Ok((Incoming::Stop(id), _)) => {
                if let Some(request) = self.running.borrow_mut().remove(&id) {
                    request.abort();
                }
                false
            }
            Err(problem) => {
                self.refuse(head.id.as_deref(), &problem);
                false
            }
        }
    }

    async fn read(&self, head: &FrameHead, text: String) -> std::result::Result<Incoming, Problem> {
        face_sockets::read(&self.gateway, &self.handshake, self.format, head, &text).await
    }

    /// Handles a request. `permit` is held as long as its body.
    fn start(self: &Rc<Self>, asked: SocketRequest, permit: BodyPermit) {
        if self.running.borrow().len() >= MAX_REQUESTS {
            let detail = format!("the socket has {MAX_REQUESTS} requests whose responses have not ended");
            return self.refuse(Some(&asked.id), &Problem::new(ErrorCode::RateLimited, detail));
        }
        let number = self.count.replace(self.count.get() + 1);
        let key = if asked.id.is_empty() { number.to_string() } else { asked.id.clone() };
        let (own, of) = (Rc::clone(self), key.clone());
        let (work, handle) = abortable(async move {
            let mut asked = asked;
            if let Err(error) = own.respond(&mut asked, permit).await {
                ConsoleLog.error(&json!({"event": "request.failed", "cause": error.to_string()}));
                own.refuse(Some(&asked.id), &Problem::internal(error.to_string()));
            }
            own.running.borrow_mut().remove(&of);
        });
        if let Some(replaced) = self.running.borrow_mut().insert(key, handle) {
            replaced.abort();
        }
        spawn_local(async move { work.await.unwrap_or_default() });
    }

    async fn respond(&self, asked: &mut SocketRequest, permit: BodyPermit) -> Result<()> {
        let abort = Abort(AbortController::new()?);
        let request = self.request(asked, &abort.0.signal())?;
        // The response may take as long as a turn.
        asked.body = String::new();
        drop(permit);
        let response = (self.respond)(request, self.env.clone()).await?;
        let status = response.status();
        if status == 204 {
            self.format.nothing(&asked.id).iter().for_each(|frame| self.send(frame));
            return Ok(());
        }
        if !response.ok() {
            let body = JsFuture::from(response.text()?).await?.as_string().unwrap_or_default();
            self.send(&self.format.failed(Some(&asked.id), status, &body));
            return Ok(());
        }
        self.format.begin(&asked.id).iter().for_each(|frame| self.send(frame));
        let mut frames = Frames::new(self.format, asked.id.clone());
        if let Some(body) = response.body() {
            let read = |error: HttpError| worker::Error::RustError(error.to_string());
            let mut stream = BodyStream::new(&body).map_err(read)?;
            while let Some(bytes) = stream.next().await {
                frames.add(&bytes.map_err(read)?).iter().for_each(|frame| self.send(frame));
                self.drain().await;
            }
        }
        self.format.end(&asked.id).iter().for_each(|frame| self.send(frame));
        Ok(())
    }

    /// Waits while the client has too much to read.
    async fn drain(&self) {
        let socket: &web_sys::WebSocket = self.socket.as_ref();
        // A closed socket keeps its count.
        while socket.buffered_amount() > MAX_UNSENT && socket.ready_state() == web_sys::WebSocket::OPEN {
            self.gateway.clock.sleep(PAUSE).await;
        }
    }

    /// Builds the request over HTTP, with the credentials of the frame or of the handshake.
    fn request(&self, asked: &SocketRequest, signal: &AbortSignal) -> Result<Request> {
        let headers = Headers::new()?;
        headers.set("content-type", "application/json")?;
        headers.set("accept", "text/event-stream")?;
        for name in ["authorization", "cf-connecting-ip", "host"] {
            if let Some(value) = self.handshake.header(name) {
                headers.set(name, value)?;
            }
        }
        if let Some(value) = &asked.authorization {
            headers.set("authorization", value)?;
        }
        let init = RequestInit::new();
        init.set_method(asked.method.as_str());
        init.set_headers(&headers);
        init.set_signal(Some(signal));
        if !asked.body.is_empty() {
            init.set_body(&JsValue::from_str(&asked.body));
        }
        Ok(Request::new_with_str_and_init(
            &format!("{}{}", self.origin, asked.target(self.handshake.uri().query())),
            &init,
        )?)
    }

    fn refuse(&self, id: Option<&str>, problem: &Problem) {
        let written = routes::problem(&self.handshake, problem, "");
        let status = written.status().as_u16();
        let body = match written.into_body() {
            response::Body::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        self.send(&self.format.failed(id, status, &body));
    }

    fn send(&self, frame: &str) {
        // A socket that is closed already refuses it.
        let _ = self.socket.send_with_str(frame);
    }
}
