//! Requests to the server. A request that fails is repeated while that is harmless and may help.

use crate::{
    backoff::back_off,
    error::{Error, Problem, Result},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Body, Method, Response, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::time::Duration;
use url::Url;

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

    /// Sends the request, and repeats it while the failure is transient.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn send(self) -> Result<Response> {
        let mut failures = 0;
        loop {
            match self.once().await {
                Err(error) if error.is_transient() && failures + 1 < MAX_ATTEMPTS => {
                    failures += 1;
                    back_off(failures, &error).await;
                }
                result => return result,
            }
        }
    }

    /// Sends the request and returns the bytes of the response.
    ///
    /// # Errors
    /// Those of the last attempt.
    pub async fn bytes(self) -> Result<Vec<u8>> {
        let url = self.url.clone();
        let bytes = self.send().await?.bytes().await.map_err(|e| lost(&url, &e))?;
        Ok(bytes.to_vec())
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
    let request_id =
        response.headers().get("x-request-id").and_then(|id| id.to_str().ok().map(str::to_owned));
    let body = response.bytes().await.unwrap_or_default();
    // A proxy in between may respond with something else.
    let mut problem: Problem = serde_json::from_slice(&body).unwrap_or_else(|_| Problem {
        detail: format!("the server responded {status}"),
        ..Problem::default()
    });
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
    fn a_url_may_have_a_path_and_the_user_is_sent() {
        let api = Api::new("https://example.com/agents/", None, Some("ann".into())).unwrap();
        assert_eq!(api.get("/v1/sessions").url.as_str(), "https://example.com/agents/v1/sessions?user=ann");
        assert_eq!(api.get("/v1/admin/tenants").url.as_str(), "https://example.com/agents/v1/admin/tenants");
        assert!(matches!(Api::new("ftp://example.com", None, None), Err(Error::Usage(_))));
    }
}
