//! HTTP/1.1 with one request per connection: simple enough to control every byte and every close.

use super::PATIENCE;
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the body as JSON; an empty body is null.
    pub fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }

    /// Returns the body, and checks the status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "the response was: {}", self.text());
        self.json()
    }
}

pub fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A response whose body is being received. Dropping it closes the connection.
pub struct Incoming {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Body<BufReader<Deadline>>,
}

impl Incoming {
    pub fn finish(mut self) -> io::Result<Response> {
        let mut body = Vec::new();
        self.body.read_to_end(&mut body)?;
        Ok(Response { status: self.status, headers: self.headers, body })
    }

    /// Receives the body, or what arrives of it within `patience`.
    pub fn finish_within(mut self, patience: Duration) -> io::Result<Response> {
        self.patience(patience);
        let mut body = Vec::new();
        match self.body.read_to_end(&mut body) {
            Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error),
            _ => Ok(Response { status: self.status, headers: self.headers, body }),
        }
    }

    /// Sets the time the rest of the body may take.
    pub fn patience(&mut self, patience: Duration) {
        self.body.connection.get_mut().deadline = Instant::now() + patience;
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}

/// Sends a request and reads the head of the response.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<Incoming> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    // A test may announce more than it sends, to check that the request is refused early.
    let is_chunked = header(headers, "transfer-encoding").is_some();
    let announced = is_chunked || header(headers, "content-length").is_some();
    if !announced && (!body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH")) {
        request += &format!("content-length: {}\r\n", body.len());
    }
    // A single write, so that head and body are in one packet.
    let mut bytes = (request + "\r\n").into_bytes();
    if is_chunked {
        bytes.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(body);
    if is_chunked {
        bytes.extend_from_slice(b"\r\n0\r\n\r\n");
    }
    stream.write_all(&bytes)?;

    let mut connection = BufReader::new(Deadline { stream, deadline: Instant::now() + PATIENCE });
    let (first, headers) = read_head(&mut connection)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {first}")))?;
    let bare = if matches!(status, 204 | 304) { Length::Known { left: 0 } } else { Length::UntilClose };
    let body = Body::new(connection, &headers, bare)?;
    Ok(Incoming { status, headers, body })
}

/// A request that a server of the tests has read.
pub struct Request {
    pub first: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// For the response.
    pub stream: TcpStream,
}

/// Reads a request.
pub fn receive(stream: TcpStream) -> io::Result<Request> {
    let mut connection = BufReader::new(stream);
    let (first, headers) = read_head(&mut connection)?;
    let mut reader = Body::new(connection, &headers, Length::Known { left: 0 })?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    Ok(Request { first, headers, body, stream: reader.connection.into_inner() })
}

/// Sends a response with JSON.
pub fn respond(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &Value,
) -> io::Result<()> {
    let body = body.to_string();
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes())
}

/// Reads the first line and the headers of a request or response.
pub fn read_head(from: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let first = read_line(from)?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Ok((first, headers)),
        }
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A socket with one deadline for all reads.
struct Deadline {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        match self.stream.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            other => other,
        }
    }
}

/// How the length of a body is determined.
pub enum Length {
    Known { left: usize },
    Chunked { left: usize },
    UntilClose,
    Ended,
}

/// The body of a request or response.
pub struct Body<R> {
    pub connection: R,
    length: Length,
}

impl<R: BufRead> Body<R> {
    /// Creates a body of the length given by the headers, or `bare` if they give none.
    pub fn new(connection: R, headers: &[(String, String)], bare: Length) -> io::Result<Self> {
        let length = match header(headers, "content-length") {
            _ if header(headers, "transfer-encoding").is_some() => Length::Chunked { left: 0 },
            Some(length) => Length::Known { left: length.parse().map_err(io::Error::other)? },
            None => bare,
        };
        Ok(Self { connection, length })
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Length::Chunked { left: 0 } = self.length {
            let size = read_line(&mut self.connection)?;
            let size = size.split(';').next().unwrap_or_default();
            let left = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            self.length = if left == 0 { Length::Ended } else { Length::Chunked { left } };
            if left == 0 {
                read_line(&mut self.connection)?;
            }
        }
        let limit = match &self.length {
            Length::Ended => return Ok(0),
            Length::UntilClose => buffer.len(),
            Length::Known { left } | Length::Chunked { left } => buffer.len().min(*left),
        };
        if limit == 0 {
            return Ok(0);
        }
        let count = self.connection.read(&mut buffer[..limit])?;
        match &mut self.length {
            Length::Known { .. } | Length::Chunked { .. } if count == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Length::Known { left } => *left -= count,
            Length::Chunked { left } => {
                *left -= count;
                if *left == 0 {
                    read_line(&mut self.connection)?;
                }
            }
            Length::UntilClose | Length::Ended => {}
        }
        Ok(count)
    }
}
