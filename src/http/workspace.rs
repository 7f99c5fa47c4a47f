//! The files of a user with an agent, and the files that the users of an agent share.

use super::etag::{matches, matches_weakly, quoted};
use super::gateway::TenantCall;
use super::request::{Request, RequestExt};
use super::response::{self, Response, ResponseExt};
use super::{disposition, owner, page, spec_name};
use crate::ports::filesystem::{Entry, File, FileError, FileResult, Precondition};
use crate::types::{ErrorCode, FilePath, PathError, PathPrefix, Problem, Scope};
use crate::workspace::{Layer, Workspace};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

/// The layers of a workspace that a request names.
struct Tree {
    workspace: Workspace,
    /// One layer; without it, reads see all layers and writes go to the user's own.
    layer: Option<Layer>,
}

/// `GET /v1/workspace/files`.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let tree = Tree::open(call).await?;
    let limit = page::limit(call.request)?;
    let after: Option<String> = page::cursor(call.request)?;
    let prefix = call.request.query("prefix").unwrap_or_default();
    let prefix = PathPrefix::parse(&prefix).map_err(|error| bad_path("?prefix", error))?;
    let entries = tree.list(&prefix, after.as_deref(), limit + 1).await?;
    page::respond(entries, limit, |(entry, _)| entry.path.clone(), |(entry, layer)| view(entry, *layer))
}

/// `GET /v1/workspace/files/{path*}`.
pub(super) async fn read(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let tree = Tree::open(call).await?;
    let path = path(call)?;
    let file = tree.read(&path).await?;
    let etag = quoted(&file.entry.etag);
    if call.request.header("if-none-match").is_some_and(|tags| matches_weakly(tags, &file.entry.etag)) {
        return Ok(with_cache_headers(response::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let response =
        response::bytes(StatusCode::OK, &media_type(&file.entry.path, &file.bytes), file.bytes.clone())
            // The content is untrusted: a browser must not run it as a page of this origin.
            .with("content-disposition", &disposition::attachment(path.name()))
            .with("content-security-policy", "sandbox; default-src 'none'")
            .with("x-content-type-options", "nosniff");
    Ok(with_cache_headers(response, &etag))
}

/// `PUT /v1/workspace/files/{path*}`.
pub(super) async fn write(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let tree = Tree::open_to_write(call).await?;
    let path = path(call)?;
    let condition = tree.condition(&path, call.request).await?;
    let layer = tree.layer.unwrap_or(Layer::User);
    // Only for the status: of two concurrent writers, the write itself decides which one creates the file.
    let is_new = match condition {
        Precondition::IfMatch(_) => false,
        Precondition::CreateOnly => true,
        Precondition::Any => tree.etag(Some(layer), &path).await?.is_none(),
    };
    let entry = tree.write(&path, call.request.body().bytes(), &condition).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(response::json(status, &view(&entry, layer))?.with("etag", &quoted(&entry.etag)))
}

/// `DELETE /v1/workspace/files/{path*}`.
pub(super) async fn delete(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let tree = Tree::open_to_write(call).await?;
    let path = path(call)?;
    let condition = tree.condition(&path, call.request).await?;
    tree.delete(&path, &condition).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

impl Tree {
    async fn open(call: &TenantCall<'_>) -> Result<Self, Problem> {
        let layer = asked_layer(call.request)?;
        let owner = owner::of_query(call.caller, call.request)?;
        Ok(Self { workspace: call.gateway.workspace(&owner).await?, layer })
    }

    async fn open_to_write(call: &TenantCall<'_>) -> Result<Self, Problem> {
        if asked_layer(call.request)? == Some(Layer::Shared) && !call.caller.scopes.allow(Scope::Admin) {
            let detail = "writing files that all users of an agent share needs the scope admin";
            return Err(Problem::new(ErrorCode::MissingScope, detail));
        }
        Self::open(call).await
    }

    async fn list(
        &self,
        prefix: &PathPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> FileResult<Vec<(Entry, Layer)>> {
        let Some(layer) = self.layer else { return self.workspace.list(prefix, after, limit).await };
        let entries = self.workspace.layer(layer).list(prefix, after, limit).await?;
        Ok(entries.into_iter().map(|entry| (entry, layer)).collect())
    }

    async fn read(&self, path: &FilePath) -> FileResult<File> {
        match self.layer {
            None => Ok(self.workspace.read(path).await?.0),
            Some(layer) => self.workspace.layer(layer).read(path).await,
        }
    }

    async fn write(&self, path: &FilePath, bytes: Bytes, condition: &Precondition) -> FileResult<Entry> {
        match self.layer {
            None => self.workspace.write(path, bytes, condition).await,
            Some(layer) => self.workspace.layer(layer).write(path, bytes, condition).await,
        }
    }

    async fn delete(&self, path: &FilePath, condition: &Precondition) -> FileResult<()> {
        match self.layer {
            None => self.workspace.delete(path, condition).await,
            Some(layer) => self.workspace.layer(layer).delete(path, condition).await,
        }
    }

    /// Returns the etag of a file in one layer, or of the topmost layer that has the file.
    async fn etag(&self, layer: Option<Layer>, path: &FilePath) -> FileResult<Option<String>> {
        let entry = match layer {
            None => self.workspace.find(path).await?.map(|(entry, _)| entry),
            Some(layer) => {
                let entries = self.workspace.layer(layer).list(&PathPrefix::from(path), None, 1).await?;
                entries.into_iter().next().filter(|entry| entry.path == *path)
            }
        };
        Ok(entry.map(|entry| entry.etag))
    }

    /// Reads the preconditions in the request's headers (RFC 9110, section 13.1).
    async fn condition(&self, path: &FilePath, request: &Request) -> Result<Precondition, Problem> {
        if let Some(tags) = request.header("if-match") {
            // The write then requires the etag found here. Both headers together cannot be satisfied.
            let fits = |etag: &String| matches(tags, etag) && request.header("if-none-match").is_none();
            let etag = self.etag(self.layer, path).await?.filter(fits);
            return etag.map(Precondition::IfMatch).ok_or_else(|| FileError::Conflict.into());
        }
        match request.header("if-none-match").map(str::trim) {
            None => Ok(Precondition::Any),
            Some("*") => Ok(Precondition::CreateOnly),
            Some(_) => {
                let detail = "only `if-none-match: *` works here; to replace a file use `if-match`";
                Err(Problem::new(ErrorCode::InvalidRequest, detail))
            }
        }
    }
}

fn asked_layer(request: &Request) -> Result<Option<Layer>, Problem> {
    match request.query("layer").as_deref() {
        None => Ok(None),
        Some("user") => Ok(Some(Layer::User)),
        Some("shared") => Ok(Some(Layer::Shared)),
        Some(_) => Err(Problem::field("?layer", "expected `user` or `shared`")),
    }
}

/// Returns the path that a request names, or that of the spec that it names.
fn path(call: &TenantCall<'_>) -> Result<FilePath, Problem> {
    if !call.params.get("spec").is_empty() {
        return spec_name::path(&spec_name::named(call)?);
    }
    FilePath::parse(call.params.get("path")).map_err(|error| bad_path("path", error))
}

fn bad_path(pointer: &str, error: PathError) -> Problem {
    Problem::field(pointer, error.to_string())
}

fn with_cache_headers(response: Response, etag: &str) -> Response {
    // A proxy that compresses would weaken the tag, and a weak tag does not satisfy `if-match`.
    response.with("cache-control", "private, no-cache, no-transform").with("etag", etag)
}

/// Returns a file as clients see it in a list.
pub(super) fn view(entry: &Entry, layer: Layer) -> Value {
    json!({
        "path": entry.path,
        "bytes": entry.bytes,
        "etag": quoted(&entry.etag),
        "updated_at": entry.updated_at,
        "layer": layer,
    })
}

/// Returns the media type for a file's extension; a text type only if the content is UTF-8.
pub(super) fn media_type(path: &FilePath, content: &[u8]) -> String {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let binary = match extension.as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        "pdf" => Some("application/pdf"),
        "zip" => Some("application/zip"),
        "wasm" => Some("application/wasm"),
        _ => None,
    };
    if let Some(binary) = binary {
        return binary.to_owned();
    }
    if std::str::from_utf8(content).is_err() {
        return "application/octet-stream".to_owned();
    }
    let text = match extension.as_str() {
        "json" => return "application/json".to_owned(),
        "md" | "markdown" => "text/markdown",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "svg" => "image/svg+xml",
        "xml" => "application/xml",
        _ => "text/plain",
    };
    format!("{text}; charset=utf-8")
}
