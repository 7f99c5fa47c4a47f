//! Artifacts and attachments: large things of the session, as bytes.

use super::{Handler, SessionRequest};
use crate::http::{
    ApiRequest, ApiResponse, disposition, etag, idempotency, multipart,
    range::{Wanted, wanted},
};
use crate::session::{
    Session,
    artifacts::{ArtifactError, Content, Pointer},
};
use crate::types::{ErrorCode, Part, Problem, id};
use serde_json::json;
use std::rc::Rc;

/// What bytes are that nobody says more about.
const BYTES: &str = "application/octet-stream";
/// The name of a file that was given none.
const UNNAMED: &str = "file";
/// Longest content type that is kept, in bytes.
const MAX_TYPE: usize = 255;

impl Handler {
    pub(super) async fn show_artifact(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let artifacts = self.host.artifacts(&self.session(call)?);
        let pointer = artifacts.find(&call.item).map_err(problem)?;
        // What a reference names never changes, so the reference says which bytes they are.
        let etag = etag::quoted(&pointer.r#ref);
        let header = |name| call.request.header(name);
        if header("if-none-match").is_some_and(|tags| etag::names(tags, &pointer.r#ref)) {
            return Ok(with_head(ApiResponse::empty(304), &etag));
        }
        let asked = header("range").filter(|_| header("if-range").is_none_or(|tag| tag == etag));
        let range = match wanted(asked, pointer.bytes) {
            Wanted::All => None,
            Wanted::Part(range) => Some(range),
            Wanted::Missing => return Ok(out_of_range(call, pointer.bytes)),
        };
        let bytes = artifacts.read(&pointer, range.clone()).await.map_err(problem)?;
        let status = if range.is_some() { 206 } else { 200 };
        let mut response = with_head(ApiResponse::bytes(status, &pointer.mime_type, bytes), &etag)
            // Somebody else's bytes under our name: never to be run as a page of ours.
            .with("content-disposition", &disposition::attachment(&file_name(&pointer)))
            .with("content-security-policy", "sandbox; default-src 'none'")
            .with("x-content-type-options", "nosniff");
        if let Some(range) = range {
            let place = format!("bytes {}-{}/{}", range.start, range.end - 1, pointer.bytes);
            response = response.with("content-range", &place);
        }
        Ok(response)
    }

    pub(super) async fn attach(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let content = content(&call.request)?;
        let id = self.attachment_id(call)?;
        let stored = self.host.artifacts(&session).attach(id, content).await.map_err(problem)?;
        let location = format!("/v1/sessions/{}/artifacts/{}", call.session, stored.r#ref);
        Ok(ApiResponse::json(201, &stored.as_file())?.with("location", &location))
    }

    /// The new reference: under an Idempotency-Key it follows from the key and the bytes, so that a
    /// repetition meets what the first request stored, even while that one still runs.
    fn attachment_id(&self, call: &SessionRequest) -> Result<String, Problem> {
        let Some(key) = idempotency::key(&call.request)? else { return Ok(self.host.new_id(id::ARTIFACT)) };
        let body = idempotency::body_hash(&call.request.body);
        let name = json!(["attachment", call.principal.tenant, call.session, key, body]).to_string();
        Ok(id::derive(id::ARTIFACT, &name))
    }

    /// The part of a message that names a file of the session.
    pub(super) fn file_part(
        &self,
        session: Option<&Rc<Session>>,
        index: usize,
        id: &str,
    ) -> Result<Part, Problem> {
        let fault = |detail: &str| Problem::field(format!("/parts/{index}/ref"), detail);
        // A session that is yet to be made has no files.
        let found = session.map_or(Err(ArtifactError::NotFound), |own| self.host.artifacts(own).find(id));
        match found {
            Ok(pointer) => Ok(Part::File(pointer.as_file())),
            Err(error @ ArtifactError::Store(_)) => Err(problem(error)),
            Err(error) => Err(fault(&error.to_string())),
        }
    }
}

/// What a request gives: its body, or the first file of its form.
fn content(request: &ApiRequest) -> Result<Content, Problem> {
    let content_type = request.header("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (name, mime_type, bytes) = if essence.eq_ignore_ascii_case("multipart/form-data") {
        let file = multipart::first_file(content_type, &request.body)?;
        let file = file.ok_or_else(|| Problem::field("", "expected a form with a file in it"))?;
        (Some(file.name), file.content_type.unwrap_or_default(), file.bytes)
    } else {
        let given = request.header("content-disposition").and_then(disposition::filename);
        (request.query("name").or(given), content_type.to_owned(), request.body.clone())
    };
    if bytes.is_empty() {
        return Err(Problem::field("", "the file is empty"));
    }
    let name = name.as_deref().and_then(disposition::plain).unwrap_or_else(|| UNNAMED.into());
    let mime_type = if is_type(&mime_type) { mime_type } else { BYTES.into() };
    Ok(Content { bytes, mime_type, name: Some(name) })
}

/// Whether this may stand in a header again as a content type.
fn is_type(text: &str) -> bool {
    let token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    let essence = text.split(';').next().and_then(|essence| essence.trim().split_once('/'));
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    printable && text.len() <= MAX_TYPE && essence.is_some_and(|(kind, sub)| token(kind) && token(sub))
}

/// The name that a browser keeps it under.
fn file_name(pointer: &Pointer) -> String {
    pointer.name.clone().unwrap_or_else(|| {
        let extension = if pointer.mime_type == "application/json" { "json" } else { "txt" };
        format!("{}.{extension}", pointer.r#ref)
    })
}

fn with_head(response: ApiResponse, etag: &str) -> ApiResponse {
    // Its time is ours to watch, so a cache asks each time.
    response.with("accept-ranges", "bytes").with("cache-control", "private, no-cache").with("etag", etag)
}

fn out_of_range(call: &SessionRequest, total: u64) -> ApiResponse {
    let problem = Problem::new(ErrorCode::RangeNotSatisfiable, format!("there are {total} bytes"));
    ApiResponse::problem(&problem, &call.request.id).with("content-range", &format!("bytes */{total}"))
}

fn problem(error: ArtifactError) -> Problem {
    match error {
        ArtifactError::NotFound => Problem::not_found("artifact"),
        ArtifactError::Expired(_) => Problem::new(ErrorCode::Gone, error.to_string()),
        ArtifactError::Range(_) => Problem::new(ErrorCode::RangeNotSatisfiable, error.to_string()),
        ArtifactError::Full => Problem::new(ErrorCode::QuotaExceeded, error.to_string()),
        ArtifactError::Busy(refused) => refused.into(),
        ArtifactError::Store(cause) => {
            Problem::unavailable("the artifact store does not answer; try again", cause)
        }
    }
}
