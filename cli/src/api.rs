//! Requests to the server. A request that fails is repeated while that is harmless and may help.

use crate::{
    backoff::back_off,
    error::{Error, Problem, Result},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Body, Method, Response, StatusCode, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{fs::File, io::Write as _, time::Duration};
use url::{Host, Url};

/// Attempts of one request before its error is returned.
const MAX_ATTEMPTS: u32 = 6;
/// Time to connect to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a connection counts as lost. The server sends a comment into each stream every 15 seconds; a
/// response that is no stream may take as long as a memory consolidation.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Characters that a segment of a path may have unencoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes an id for a path.
pub fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}

/// Encodes a path with slashes, such as that of a file.
pub fn path(path: &str) -> String {
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// The server, and the caller's credential.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    url: Url,
    key: Option<String>,
    user: Option<String>,
}

impl Api {
    /// Creates a client. `user` is sent with each request, so that the server checks whose data it is.
    ///
    /// # Errors
    /// A URL that is not an `http` or `https` one, and TLS that does not start.
    pub fn new(url: &str, key: Option<String>, user: Option<String>) -> Result<Self> {
        let url = Url::parse(url).map_err(|e| Error::Usage(format!("the URL {url:?} is wrong: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Usage(format!(
                "the URL must begin with http:// or https://, not {}:",
                url.scheme()
            )));
        }
        // A second call, by another client in this process, has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(concat!("agentctl/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            // A redirect could send the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| Error::Response(innermost(&e)))?;
        Ok(Self { http, url, key, user })
    }

    /// Returns the server's URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns a client without a credential.
    pub fn without_key(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    /// Returns whether the key crosses a network without encryption.
    pub fn is_exposed(&self) -> bool {
        let is_local = match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.url.scheme() == "http" && self.key.is_some() && !is_local
    }

    /// Begins a GET of a path, whose ids must be encoded.
    pub fn get(&self, path: &str) -> Request<'_> {
        self.request(Method::GET, path)
    }

    /// Begins a POST. It has an `Idempotency-Key`, so that it can be repeated.
    pub fn post(&self, path: &str) -> Request<'_> {
        let request = self.request(Method::POST, path);
        request.header("idempotency-key", &uuid::Uuid::new_v4().to_string())
    }

    /// Begins a PUT.
    pub fn put(&self, path: &str) -> Request<'_> {
        self.request(Method::PUT, path)
    }

    /// Begins a PATCH.
    pub fn patch(&self, path: &str) -> Request<'_> {
        self.request(Method::PATCH, path)
    }

    /// Begins a DELETE.
    pub fn delete(&self, path: &str) -> Request<'_> {
        self.request(Method::DELETE, path)
    }

    /// Reads all pages of a list, up to `limit` entries.
    ///
    /// # Errors
    /// Those of the requests.
    pub async fn list(&self, path: &str, query: &[(&str, &str)], limit: usize) -> Result<Vec<Value>> {
        let (mut entries, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let size = (limit - entries.len()).min(200).to_string();
            let request = self.get(path).queries(query).query("limit", &size);
            let mut page: Value = request.maybe("cursor", cursor.as_deref()).json().await?;
            if let Some(Value::Array(data)) = page.get_mut("data").map(Value::take) {
                entries.extend(data);
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || entries.len() >= limit {
                entries.truncate(limit);
                return Ok(entries);
            }
        }
    }

    fn request(&self, method: Method, path: &str) -> Request<'_> {
        let mut url = self.url.clone();
        let wanted = format!("{}{path}", self.url.path().trim_end_matches('/'));
        url.set_path(&wanted);
        let is_route = has_names(path) && url.path() == wanted;
        if let Some(user) = &self.user
            && !path.starts_with("/v1/admin/")
        {
            url.query_pairs_mut().append_pair("user", user);
        }
        Request { api: self, method, url, is_route, headers: Vec::new(), body: Vec::new() }
    }
}

/// Returns whether all segments of a path are names. `.`, `..` and an empty segment, which an argument can be, make it the
/// path of another route.
fn has_names(path: &str) -> bool {
    path.split('/').skip(1).all(|segment| !matches!(segment, "" | "." | ".."))
}

/// A request that is being prepared.
pub struct Request<'a> {
    api: &'a Api,
    method: Method,
    url: Url,
    /// Whether the URL has the path that the caller meant.
    is_route: bool,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request<'_> {
    /// Adds a parameter to the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    /// Adds a parameter to the query if there is a value.
    #[must_use]
    pub fn maybe(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Adds parameters to the query.
    #[must_use]
    pub fn queries(self, pairs: &[(&str, &str)]) -> Self {
        pairs.iter().fold(self, |request, (name, value)| request.query(name, value))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sets the body to JSON.
    #[must_use]
    pub fn body_json(mut self, body: &impl Serialize) -> Self {
        // Bodies are values and maps with text as keys, which always serialize.
        self.body = serde_json::to_vec(body).unwrap_or_default();
        self.header("content-type", "application/json")
    }

    /// Sets the body to bytes.
    #[must_use]
    pub fn body(mut self, bytes: Vec<u8>) -> Self {
        self.body = bytes;
        self
    }

    /// Sends the request once.
    ///
    /// # Errors
    /// `Usage` for an argument that leads to another route, `Refused` for a response that is an error, `Connection` without
    /// a response.
    pub async fn once(&self) -> Result<Response> {
        if !self.is_route {
            let detail = "an id, and each name in a path, must not be empty, \".\" or \"..\"";
            return Err(Error::Usage(detail.into()));
        }
        let mut request = self.api.http.request(self.method.clone(), self.url.clone());
        if let Some(key) = &self.api.key {
            request = request.bearer_auth(key);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if !self.body.is_empty() {
            request = request.body(Body::from(self.body.clone()));
        }
        let response = request.send().await.map_err(|e| lost(&self.url, &e))?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    /// Sends the request, and repeats it while the failure is transient. Returns the status of the response.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn send(self) -> Result<StatusCode> {
        self.complete().await.map(|(status, _)| status)
    }

    /// Sends the request as [`Request::send`] does, and returns the bytes of the response.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn bytes(self) -> Result<Vec<u8>> {
        self.complete().await.map(|(_, bytes)| bytes)
    }

    /// Sends the request as [`Request::send`] does, and writes the body of the response to a file as it arrives. `seen` gets
    /// the number of bytes so far. It is not repeated once the response has begun: the body can be large, and whatever broke it
    /// off may do so again.
    ///
    /// # Errors
    /// Those of the last attempt, and `Io` if the file cannot be written.
    pub async fn write_to(self, mut file: &File, seen: impl Fn(u64)) -> Result<u64> {
        let (mut failures, mut length) = (0, 0);
        let mut response = loop {
            match self.once().await {
                Ok(response) => break response,
                Err(error) => self.before_repetition(&mut failures, error).await?,
            }
        };
        while let Some(bytes) = response.chunk().await.map_err(|e| lost(&self.url, &e))? {
            file.write_all(&bytes)?;
            length += bytes.len() as u64;
            seen(length);
        }
        Ok(length)
    }

    /// Repeats the request until it has a response and all of its body.
    async fn complete(self) -> Result<(StatusCode, Vec<u8>)> {
        let mut failures = 0;
        loop {
            match self.attempt().await {
                Ok(completed) => return Ok(completed),
                // An earlier attempt has succeeded, although its response was lost.
                Err(Error::Refused(problem))
                    if failures > 0 && self.method == Method::DELETE && problem.status == 404 =>
                {
                    return Ok((StatusCode::NO_CONTENT, Vec::new()));
                }
                Err(error) => self.before_repetition(&mut failures, error).await?,
            }
        }
    }

    /// Waits before a repetition of the request.
    ///
    /// # Errors
    /// The error of the attempt, if the request is not repeated.
    async fn before_repetition(&self, failures: &mut u32, error: Error) -> Result<()> {
        if self.may_pass(&error) && *failures + 1 < MAX_ATTEMPTS {
            *failures += 1;
            back_off(*failures, &error).await;
            return Ok(());
        }
        Err(match error {
            Error::Refused(problem) => {
                Error::Refused(Box::new(Problem { is_repeated: *failures > 0, ..*problem }))
            }
            error => error,
        })
    }

    async fn attempt(&self) -> Result<(StatusCode, Vec<u8>)> {
        let response = self.once().await?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|e| lost(&self.url, &e))?;
        Ok((status, bytes.to_vec()))
    }

    /// Returns whether a repetition is harmless and may help.
    fn may_pass(&self, error: &Error) -> bool {
        error.is_transient() || self.method == Method::GET && error.is_failure_of_server()
    }

    /// Sends the request and parses the JSON of the response; an empty one is `null`.
    ///
    /// # Errors
    /// Those of the last attempt, and a response that does not have this form.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let bytes = self.bytes().await?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|e| Error::Response(e.to_string()))
    }
}

/// Reads the problem in a response.
async fn refusal(response: Response) -> Error {
    let status = response.status();
    let seconds =
        response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok().map(str::to_owned));
    let (request_id, location) = (header("x-request-id"), header("location"));
    let body = response.bytes().await.unwrap_or_default();
    // A proxy in between may respond with something else.
    let mut problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    if problem.detail.is_empty() && problem.title.is_empty() {
        problem.detail = match location.filter(|_| status.is_redirection()) {
            Some(location) => format!("the server responded {status}, and names another URL: {location}"),
            None => format!("the server responded {status}"),
        };
    }
    problem.status = status.as_u16();
    problem.request_id = problem.request_id.or(request_id);
    problem.retry_after = seconds.map(Duration::from_secs);
    Error::Refused(Box::new(problem))
}

/// Returns the error for a connection that could not be made, or that was lost.
pub(crate) fn lost(url: &Url, error: &reqwest::Error) -> Error {
    let host = match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => url.to_string(),
    };
    Error::Connection { host, cause: innermost(error) }
}

/// Returns the message of the innermost cause. Those around it repeat the URL, which may have a secret.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() { "it timed out".into() } else { cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn ids_and_paths_are_encoded() {
        assert_eq!(segment("a/b c:ü"), "a%2Fb%20c%3A%C3%BC");
        assert_eq!(path("notes/a b.md"), "notes/a%20b.md");
    }

    #[tokio::test]
    async fn an_argument_cannot_lead_to_another_route() {
        let api = Api::new("http://127.0.0.1:1/agents", None, None).unwrap();
        for name in ["../../memory", "a/./b", "..", "a//b", "a/", ""] {
            let sent = api.delete(&format!("/v1/workspace/files/{}", path(name))).once().await;
            assert!(matches!(sent, Err(Error::Usage(_))), "{name:?}: {sent:?}");
        }
        for name in ["a/b", "..a", "%2e%2e", "a\\..\\b"] {
            let sent = api.delete(&format!("/v1/workspace/files/{}", path(name))).once().await;
            assert!(matches!(sent, Err(Error::Connection { .. })), "{name:?}: {sent:?}");
        }
    }

    #[test]
    fn only_http_to_another_machine_exposes_the_key() {
        let is_exposed = |url| Api::new(url, Some("k".into()), None).unwrap().is_exposed();
        assert!(is_exposed("http://example.com") && is_exposed("http://10.0.0.1:8787"));
        for url in ["https://example.com", "http://localhost:8787", "http://127.0.0.1", "http://[::1]:1"] {
            assert!(!is_exposed(url), "{url}");
        }
    }

    /// Serves these responses, one to each connection, and then none.
    async fn server(responses: Vec<&'static str>) -> Api {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        Api::new(&url, None, None).unwrap()
    }

    #[tokio::test]
    async fn a_response_that_breaks_off_is_requested_again() {
        let half = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{\"a\"";
        let whole = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{\"a\": 10}";
        let api = server(vec![half, whole]).await;
        assert_eq!(api.get("/a").json::<Value>().await.unwrap()["a"], 10);
        let api = server(vec!["HTTP/1.1 520 Unknown\r\nconnection: close\r\n\r\n", whole]).await;
        assert_eq!(api.get("/a").json::<Value>().await.unwrap()["a"], 10);
    }

    #[tokio::test]
    async fn an_object_that_an_earlier_attempt_removed_is_removed() {
        const GONE: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let api = server(vec!["", GONE]).await;
        assert_eq!(api.delete("/a").send().await.unwrap(), StatusCode::NO_CONTENT);
        let api = server(vec![GONE]).await;
        assert!(api.delete("/a").send().await.unwrap_err().is_not_found());
    }

    #[tokio::test]
    async fn a_refusal_without_an_explanation_names_the_status_and_the_other_url() {
        let moved = "HTTP/1.1 308 Permanent Redirect\r\nconnection: close\r\nlocation: https://a.example/\r\ncontent-length: 2\r\n\r\n{}";
        let error = server(vec![moved]).await.get("/a").send().await.unwrap_err().to_string();
        assert!(error.contains("308") && error.contains("https://a.example/"), "{error}");
    }

    #[test]
    fn a_url_may_have_a_path_and_the_user_is_sent() {
        let api = Api::new("https://example.com/agents/", None, Some("ann".into())).unwrap();
        assert_eq!(api.get("/v1/sessions").url.as_str(), "https://example.com/agents/v1/sessions?user=ann");
        assert_eq!(api.get("/v1/admin/tenants").url.as_str(), "https://example.com/agents/v1/admin/tenants");
        assert!(matches!(Api::new("ftp://example.com", None, None), Err(Error::Usage(_))));
    }
}
