//! An HTTP client for the Worker.

use super::{PATIENCE, Response, Sse, http};
use serde_json::Value;
use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A WebSocket to the Worker; reads fail after [`PATIENCE`].
pub type WebSocket = tungstenite::WebSocket<TcpStream>;

/// A client for one server, with at most one key. Cloning is cheap; `with_*` return a modified clone.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

impl Client {
    /// Creates a client without a key.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new() }
    }

    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        client.headers.push((name.into(), value.into()));
        client
    }

    pub fn with_key(&self, key: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {key}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[])
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Response {
        self.send("DELETE", path, &[])
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Response {
        self.json().send("POST", path, body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn put(&self, path: &str, body: Value) -> Response {
        self.json().send("PUT", path, body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn patch(&self, path: &str, body: Value) -> Response {
        self.json().send("PATCH", path, body.to_string().as_bytes())
    }

    /// Sends any method with any bytes, without a content type.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Response {
        self.open(method, path, body).finish().unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    /// Sends any method with any bytes, and receives the body for at most `patience`. Fails if the server closes the
    /// connection instead of reading the request.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> io::Result<Response> {
        http::send(self.address, method, path, &self.headers, body)?.finish_within(patience)
    }

    /// Sends a GET whose response is an event stream.
    #[track_caller]
    pub fn stream(&self, path: &str) -> Sse {
        Sse::new(self.with_header("accept", "text/event-stream").open("GET", path, &[]))
    }

    /// Sends a POST whose response is an event stream.
    #[track_caller]
    pub fn post_stream(&self, path: &str, body: Value) -> Sse {
        let client = self.json().with_header("accept", "text/event-stream");
        Sse::new(client.open("POST", path, body.to_string().as_bytes()))
    }

    /// Opens a WebSocket. Unlike a browser, this client sends its key in a header.
    #[track_caller]
    pub fn websocket(&self, path: &str) -> WebSocket {
        use tungstenite::client::IntoClientRequest;
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        for (name, value) in &self.headers {
            let name: tungstenite::http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => socket,
            Err(e) => panic!("no WebSocket at {path}: {e}"),
        }
    }

    fn json(&self) -> Self {
        self.with_header("content-type", "application/json")
    }

    /// Sends any method with any bytes, and reads the head of the response. Dropping the rest closes the connection.
    #[track_caller]
    pub fn open(&self, method: &str, path: &str, body: &[u8]) -> http::Incoming {
        http::send(self.address, method, path, &self.headers, body)
            .unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }
}
