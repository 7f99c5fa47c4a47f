//! A model server on loopback with scripted responses in the formats of real providers.

use super::{
    PATIENCE,
    http::{Request, header, receive, respond},
    script::{Script, Step},
    wire::{Frame, Wire},
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

type Chooser = Box<dyn Fn(&Value) -> Option<Script> + Send + Sync>;

/// Responds to `…/chat/completions` and `…/messages` with the next script of the requested model, or with 400
/// if there is none.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    chooser: Option<Arc<Chooser>>,
    queues: HashMap<String, VecDeque<Script>>,
    received: Vec<Received>,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// Whether the client closed the connection before the end of the script.
    pub aborted: bool,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }
}

impl ModelServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let server = Self { address, shared: shared.clone() };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Only this thread still holds the state, so the test is over.
                if Arc::strong_count(&shared) == 1 {
                    return;
                }
                let shared = shared.clone();
                // Many tests disconnect during a response.
                thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value for `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`; both wires share it.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Appends a response to the script queue of this model.
    pub fn script(&self, model: &str, script: Script) {
        self.shared.state.lock().unwrap().queues.entry(model.into()).or_default().push_back(script);
    }

    /// Sets a function that chooses the response by the request. If it returns `None`, the model's queue is
    /// used.
    pub fn choose(&self, chooser: impl Fn(&Value) -> Option<Script> + Send + Sync + 'static) {
        self.shared.state.lock().unwrap().chooser = Some(Arc::new(Box::new(chooser)));
    }

    /// Returns all requests received so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.state.lock().unwrap().received.clone()
    }

    /// Waits until `count` requests were received, and returns them.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        self.wait(|received| received.len() >= count)
    }

    /// Waits until the client has closed the connection of request `index` before the end of its script.
    #[track_caller]
    pub fn wait_for_abort(&self, index: usize) {
        self.wait(|received| received.get(index).is_some_and(|r| r.aborted));
    }

    #[track_caller]
    fn wait(&self, done: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let state = self.shared.state.lock().unwrap();
        let waiting = |state: &mut State| !done(&state.received);
        let (state, timeout) = self.shared.changed.wait_timeout_while(state, PATIENCE, waiting).unwrap();
        assert!(!timeout.timed_out(), "timed out after {} requests", state.received.len());
        state.received.clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        // Unblocks the listening thread, which then ends.
        let address = self.address;
        self.shared = Arc::default();
        let _ = TcpStream::connect(address);
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let Request { first, headers, body, mut stream } = receive(stream)?;

    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    // Forms have files, and are kept as text.
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    let request: Value = serde_json::from_slice(&body).unwrap_or_else(|_| text());
    let model = request["model"].as_str().or_else(|| form_field(request.as_str()?, "model"));
    let model = model.unwrap_or_default().to_owned();
    let (wire, is_media) = (Wire::of(&path), path.contains("/images/") || path.contains("/audio/"));
    let (index, chooser) = {
        let mut state = shared.state.lock().unwrap();
        state.received.push(Received { path, headers, body: request.clone(), aborted: false });
        shared.changed.notify_all();
        (state.received.len() - 1, state.chooser.clone())
    };
    if is_media {
        let script = shared.state.lock().unwrap().queues.get_mut(&model).and_then(VecDeque::pop_front);
        let script = script.unwrap_or_else(|| Script::error(500, json!({"error": {"message": "no script"}})));
        return respond(&mut stream, script.status, &script.headers, &script.body.unwrap_or_default());
    }
    let Some(wire) = wire else { return respond(&mut stream, 404, &[], &json!({"error": "unknown path"})) };
    let queued = || shared.state.lock().unwrap().queues.get_mut(&model)?.pop_front();
    let Some(script) = chooser.and_then(|choose| choose(&request)).or_else(queued) else {
        let message = format!("the test has no script for model {model}");
        return respond(&mut stream, 400, &[], &json!({"error": {"message": message, "type": "no_script"}}));
    };
    let ended = play(&mut stream, wire, &script, &request);
    if ended.is_err() {
        shared.state.lock().unwrap().received[index].aborted = true;
        shared.changed.notify_all();
    }
    ended
}

/// Returns the text of a form's field.
fn form_field<'a>(form: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = form.split_once(&format!("name=\"{name}\"\r\n\r\n"))?;
    rest.split("\r\n").next()
}

/// Plays a script. An error means that the client disconnected.
fn play(stream: &mut TcpStream, wire: Wire, script: &Script, request: &Value) -> io::Result<()> {
    if let Some(body) = &script.body {
        return respond(stream, script.status, &script.headers, body);
    }
    if request["stream"] != true {
        for step in &script.steps {
            match step {
                Step::Hold(gate) if !gate.pass(|| gone(stream)) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Step::Cut => return Ok(()),
                _ => {}
            }
        }
        return respond(stream, script.status, &script.headers, &wire.whole(script, request));
    }
    let mut head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n".to_owned();
    for (name, value) in &script.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    for frame in wire.stream(script, request) {
        match frame {
            Frame::Event(text) => {
                let text = if script.crlf { text.replace('\n', "\r\n") } else { text };
                let size = if script.byte_by_byte { 1 } else { text.len() };
                for piece in text.as_bytes().chunks(size) {
                    chunk(stream, piece)?;
                }
            }
            Frame::Pause(time) => thread::sleep(time),
            Frame::Hold(gate) => {
                if !gate.pass(|| gone(stream)) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            // Closing without the last chunk simulates a broken connection.
            Frame::Cut => return Ok(()),
        }
    }
    stream.write_all(b"0\r\n\r\n")
}

fn chunk(stream: &mut TcpStream, piece: &[u8]) -> io::Result<()> {
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    stream.write_all(&bytes)
}

/// Returns whether the client has closed the connection.
fn gone(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = stream.peek(&mut [0]);
    let _ = stream.set_nonblocking(false);
    match peeked {
        Ok(count) => count == 0,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock,
    }
}
