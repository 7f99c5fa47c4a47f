//! Artifacts and attachments of a session, as bytes.

use super::call::Call;
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{
    disposition, etag, multipart,
    range::{self, Selection},
};
use crate::session::artifacts::{Content, Pointer};
use crate::types::{ArtifactId, ErrorCode, GeneratedId, Problem};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::json;

/// The content type of bytes for which none is given.
const BYTES: &str = "application/octet-stream";
/// The name of a file for which none is given.
const UNNAMED: &str = "file";
/// Longest content type that is stored, in bytes.
const MAX_TYPE: usize = 255;

/// `GET /v1/sessions/{id}/artifacts/{ref}`.
pub async fn download(call: &Call<'_>) -> Result<Response, Problem> {
    let artifacts = call.host.artifacts(call.session()?);
    let pointer = artifacts.find(&call.params.id("ref"))?;
    // The content of an artifact never changes, so its reference serves as the etag.
    let etag = etag::quoted(&pointer.r#ref);
    let header = |name| call.request.header(name);
    if header("if-none-match").is_some_and(|tags| etag::matches_weakly(tags, &pointer.r#ref)) {
        return Ok(with_cache_headers(response::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let asked = header("range").filter(|_| header("if-range").is_none_or(|tag| tag == etag));
    let range = match range::select(asked, pointer.bytes) {
        Selection::All => None,
        Selection::Part(range) => Some(range),
        Selection::Unsatisfiable => return Ok(unsatisfiable(call, pointer.bytes)),
    };
    let length = range.as_ref().map_or(pointer.bytes, |range| range.end - range.start);
    let bytes = match *call.request.method() {
        Method::HEAD => Bytes::new(),
        _ => artifacts.read(&pointer, range.clone()).await?,
    };
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = with_cache_headers(response::bytes(status, &pointer.mime_type, bytes), &etag)
        // The content is untrusted: a browser must not run it as a page of this origin.
        .with("content-disposition", &disposition::attachment(&file_name(&pointer)))
        .with("content-security-policy", "sandbox; default-src 'none'")
        .with("x-content-type-options", "nosniff")
        .with("content-length", &length.to_string());
    if let Some(range) = range {
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, pointer.bytes);
        response = response.with("content-range", &place);
    }
    Ok(response)
}

/// `POST /v1/sessions/{id}/attachments`.
pub async fn attach(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    let content = content(call.request)?;
    let stored = call.host.artifacts(session).attach(attachment_id(call), content).await?;
    let location = format!("/v1/sessions/{}/artifacts/{}", call.session_id, stored.r#ref);
    Ok(response::json(StatusCode::CREATED, &stored.as_file())?.with("location", &location))
}

/// Returns the reference of a new attachment. With an Idempotency-Key it is derived from the key and the bytes,
/// so that a repeated request finds the first attachment, even while the first request still runs.
fn attachment_id(call: &Call<'_>) -> ArtifactId {
    let Some(key) = &call.key else { return call.host.new_id() };
    let name = json!(["attachment", call.principal.tenant, call.session_id, key.key, key.body_hash]);
    ArtifactId::derive(&name.to_string())
}

/// Reads the content of a new attachment: the body, or the first file of a form.
fn content(request: &Request) -> Result<Content, Problem> {
    let content_type = request.header("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (name, mime_type, bytes) = if essence.eq_ignore_ascii_case("multipart/form-data") {
        let file = multipart::first_file(content_type, &request.body().bytes())?;
        let file = file.ok_or_else(|| Problem::field("", "expected a form that contains a file"))?;
        (Some(file.name), file.content_type.unwrap_or_default(), file.bytes)
    } else {
        let given = request.header("content-disposition").and_then(disposition::filename);
        (request.query("name").or(given), content_type.to_owned(), request.body().bytes())
    };
    if bytes.is_empty() {
        return Err(Problem::field("", "the file is empty"));
    }
    let name = name.as_deref().and_then(disposition::plain).unwrap_or_else(|| UNNAMED.into());
    let mime_type = if is_content_type(&mime_type) { mime_type } else { BYTES.into() };
    Ok(Content { bytes, mime_type, name: Some(name) })
}

/// Returns whether a client's content type can be a header of a later response.
fn is_content_type(text: &str) -> bool {
    let token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    let essence = text.split(';').next().and_then(|essence| essence.trim().split_once('/'));
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    printable && text.len() <= MAX_TYPE && essence.is_some_and(|(kind, sub)| token(kind) && token(sub))
}

/// Returns the name under which a browser saves an artifact.
fn file_name(pointer: &Pointer) -> String {
    pointer.name.clone().unwrap_or_else(|| {
        let extension = if pointer.mime_type == "application/json" { "json" } else { "txt" };
        format!("{}.{extension}", pointer.r#ref)
    })
}

fn with_cache_headers(response: Response, etag: &str) -> Response {
    // An artifact can expire, so a cache has to ask each time.
    response.with("accept-ranges", "bytes").with("cache-control", "private, no-cache").with("etag", etag)
}

fn unsatisfiable(call: &Call<'_>, total: u64) -> Response {
    let problem = Problem::new(ErrorCode::RangeNotSatisfiable, format!("there are {total} bytes"));
    response::problem(&problem, call.request_id).with("content-range", &format!("bytes */{total}"))
}
