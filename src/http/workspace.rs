//! The files of a user with an agent, and those that the agent's users share.

use super::etag::{matches, names, quoted};
use super::failure::Failure;
use super::front::Front;
use super::routes::{Found, WorkspaceRoute};
use super::{ApiRequest, ApiResponse, disposition, owner, page};
use crate::ports::{
    FileError,
    filesystem::{Entry, File, Precondition},
};
use crate::types::{ErrorCode, FilePath, Owner, PathError, PathPrefix, Principal, Problem, Scope};
use crate::workspace::{Layer, Workspace};
use serde_json::{Value, json};

impl Front {
    /// `/v1/workspace/files` and everything below it.
    pub(super) async fn workspace(
        &self,
        route: WorkspaceRoute,
        found: &Found,
        request: &ApiRequest,
        caller: &Principal,
    ) -> Result<ApiResponse, Failure> {
        let layer = asked_layer(request)?;
        if layer == Some(Layer::Shared)
            && matches!(route, WorkspaceRoute::Write | WorkspaceRoute::Delete)
            && !caller.scopes.allow(Scope::Admin)
        {
            let detail = "the files that all users of an agent share need the scope admin";
            return Err(Problem::new(ErrorCode::MissingScope, detail).into());
        }
        let Owner { tenant, agent, user } = owner::of_query(request, caller)?;
        let workspace = self.files.open(&tenant, &agent, &user, None);
        if route == WorkspaceRoute::List {
            return list(&workspace, layer, request).await;
        }
        let path = FilePath::parse(found.param("path")).map_err(|error| bad_path("path", error))?;
        match route {
            WorkspaceRoute::Write => write(&workspace, layer, &path, request).await,
            WorkspaceRoute::Delete => delete(&workspace, layer, &path, request).await,
            _ => show(&workspace, layer, &path, request).await,
        }
    }
}

/// The layer that is asked for; what a reader sees of both when there is none.
fn asked_layer(request: &ApiRequest) -> Result<Option<Layer>, Problem> {
    match request.query("layer").as_deref() {
        None => Ok(None),
        Some("user") => Ok(Some(Layer::User)),
        Some("shared") => Ok(Some(Layer::Shared)),
        Some(_) => Err(Problem::field("?layer", "expected `user` or `shared`")),
    }
}

fn bad_path(pointer: &str, error: PathError) -> Problem {
    Problem::field(pointer, error.to_string())
}

async fn list(
    workspace: &Workspace,
    layer: Option<Layer>,
    request: &ApiRequest,
) -> Result<ApiResponse, Failure> {
    let limit = page::limit(request)?;
    let after: Option<String> = page::cursor(request)?;
    let prefix = request.query("prefix").unwrap_or_default();
    let prefix = PathPrefix::parse(&prefix).map_err(|error| bad_path("?prefix", error))?;
    let entries = match layer {
        None => workspace.list(&prefix, after.as_deref(), limit + 1).await?,
        Some(layer) => {
            let entries = workspace.layer(layer).list(&prefix, after.as_deref(), limit + 1).await?;
            entries.into_iter().map(|entry| (entry, layer)).collect()
        }
    };
    Ok(page::answer(entries, limit, |(entry, _)| entry.path.clone(), |(entry, layer)| view(entry, *layer))?)
}

async fn show(
    workspace: &Workspace,
    layer: Option<Layer>,
    path: &FilePath,
    request: &ApiRequest,
) -> Result<ApiResponse, Failure> {
    let file = match layer {
        None => workspace.read(path).await?.0,
        Some(layer) => workspace.layer(layer).read(path).await?,
    };
    let etag = quoted(&file.entry.etag);
    if request.header("if-none-match").is_some_and(|tags| names(tags, &file.entry.etag)) {
        return Ok(with_head(ApiResponse::empty(304), &etag));
    }
    let response = ApiResponse::bytes(200, &content_type(&file), file.bytes)
        // Somebody's bytes under our name: never to be run as a page of ours.
        .with("content-disposition", &disposition::attachment(path.name()))
        .with("content-security-policy", "sandbox; default-src 'none'")
        .with("x-content-type-options", "nosniff");
    Ok(with_head(response, &etag))
}

async fn write(
    workspace: &Workspace,
    layer: Option<Layer>,
    path: &FilePath,
    request: &ApiRequest,
) -> Result<ApiResponse, Failure> {
    let condition = condition(workspace, layer, path, request).await?;
    let bytes = request.body.clone();
    // Only for the status: who creates and who replaces is settled by the write itself.
    let is_new = match condition {
        Precondition::IfMatch(_) => false,
        Precondition::CreateOnly => true,
        Precondition::Any => etag_of(workspace, Some(layer.unwrap_or(Layer::User)), path).await?.is_none(),
    };
    let entry = match layer {
        None => workspace.write(path, bytes, &condition).await?,
        Some(layer) => workspace.layer(layer).write(path, bytes, &condition).await?,
    };
    let status = if is_new { 201 } else { 200 };
    let response = ApiResponse::json(status, &view(&entry, layer.unwrap_or(Layer::User)))?;
    Ok(response.with("etag", &quoted(&entry.etag)))
}

async fn delete(
    workspace: &Workspace,
    layer: Option<Layer>,
    path: &FilePath,
    request: &ApiRequest,
) -> Result<ApiResponse, Failure> {
    let condition = condition(workspace, layer, path, request).await?;
    match layer {
        None => workspace.delete(path, &condition).await?,
        Some(layer) => workspace.layer(layer).delete(path, &condition).await?,
    }
    Ok(ApiResponse::empty(204))
}

/// What the request's headers demand of the file (RFC 9110, 13.1).
async fn condition(
    workspace: &Workspace,
    layer: Option<Layer>,
    path: &FilePath,
    request: &ApiRequest,
) -> Result<Precondition, Failure> {
    if let Some(tags) = request.header("if-match") {
        // Whatever else comes in between, this is the file that fits. Both headers at once cannot hold.
        let fits = |etag: &String| matches(tags, etag) && request.header("if-none-match").is_none();
        let etag = etag_of(workspace, layer, path).await?.filter(fits);
        return etag.map(Precondition::IfMatch).ok_or_else(|| FileError::Conflict.into());
    }
    match request.header("if-none-match").map(str::trim) {
        None => Ok(Precondition::Any),
        Some("*") => Ok(Precondition::CreateOnly),
        Some(_) => {
            let detail = "only `if-none-match: *` works here; to replace a file use `if-match`";
            Err(Problem::new(ErrorCode::InvalidRequest, detail).into())
        }
    }
}

/// The etag of the file that is there.
async fn etag_of(
    workspace: &Workspace,
    layer: Option<Layer>,
    path: &FilePath,
) -> Result<Option<String>, FileError> {
    let entry = match layer {
        None => workspace.find(path).await?.map(|(entry, _)| entry),
        Some(layer) => {
            let first =
                workspace.layer(layer).list(&PathPrefix::from(path), None, 1).await?.into_iter().next();
            first.filter(|entry| entry.path == *path)
        }
    };
    Ok(entry.map(|entry| entry.etag))
}

fn with_head(response: ApiResponse, etag: &str) -> ApiResponse {
    // A proxy that compresses would weaken the tag, and then nobody could write with it.
    response.with("cache-control", "private, no-cache, no-transform").with("etag", etag)
}

fn view(entry: &Entry, layer: Layer) -> Value {
    json!({
        "path": entry.path,
        "bytes": entry.bytes,
        "etag": quoted(&entry.etag),
        "updated_at": entry.updated_at,
        "layer": layer,
    })
}

/// What a file is, by its name; text is only called so if it is.
fn content_type(file: &File) -> String {
    let extension = file.entry.path.extension().unwrap_or_default().to_ascii_lowercase();
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
    if std::str::from_utf8(&file.bytes).is_err() {
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
