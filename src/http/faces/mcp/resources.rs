//! The files of a workspace as resources: `workspace://AGENT/PATH`.

use super::fault::Fault;
use super::message::Asked;
use super::rpc::{Failure, cached};
use crate::http::disposition::RESERVED;
use crate::http::gateway::TenantCall;
use crate::http::owner;
use crate::http::page;
use crate::http::request::RequestExt;
use crate::http::workspace::media_type;
use crate::ports::filesystem::{Entry, FileError};
use crate::types::{AgentId, FilePath, Owner, PathPrefix, Problem};
use crate::workspace::Workspace;
use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

const SCHEME: &str = "workspace://";
/// The template of the URIs.
pub(super) const TEMPLATE: &str = "workspace://{agent}/{+path}";
/// Files of one page.
const PAGE: usize = 100;
/// How long a client may cache the templates, in milliseconds. Files may change at any time.
const TEMPLATES_TTL_MS: u64 = 3_600_000;

/// `resources/list`: the files of each agent in turn, a page for one agent at a time.
pub(super) async fn list(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let (at, after): (usize, Option<String>) = match asked.text("cursor") {
        None => (0, None),
        Some(cursor) => {
            page::decode(cursor).ok_or_else(|| Fault::invalid_params("not a cursor of this list"))?
        }
    };
    let agents = call.gateway.agents.list(&call.caller.tenant).await?;
    let agent = agents.get(at).ok_or_else(|| Fault::invalid_params("not a cursor of this list"))?;
    let agent = &agent.id;
    let workspace = open(call, agent).await?;
    let mut entries = workspace.list(&PathPrefix::default(), after.as_deref(), PAGE + 1).await?;
    let has_more = entries.len() > PAGE;
    entries.truncate(PAGE);
    let next = match entries.last() {
        Some((last, _)) if has_more => Some(page::encode(&(at, Some(&last.path)))?),
        _ if at + 1 < agents.len() => Some(page::encode(&(at + 1, None::<String>))?),
        _ => None,
    };
    let resources: Vec<_> = entries.iter().map(|(entry, _)| view(agent, entry)).collect();
    let mut list = json!({ "resources": resources });
    if let Some(next) = next {
        list["nextCursor"] = next.into();
    }
    Ok(cached(asked, 0, list))
}

/// `resources/templates/list`.
pub(super) fn templates(asked: &Asked) -> Value {
    let template = json!({
        "uriTemplate": TEMPLATE,
        "name": "workspace_file",
        "title": "File of a workspace",
        "description": "A file that an agent and its user share.",
    });
    cached(asked, TEMPLATES_TTL_MS, json!({ "resourceTemplates": [template] }))
}

/// `resources/read`.
pub(super) async fn read(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let uri =
        asked.text("uri").ok_or_else(|| Fault::invalid_params("`uri` must be the URI of a resource"))?;
    let unknown = || Fault::unknown_resource(uri, asked.is_modern());
    let (agent, path) = find(call, uri).await.ok_or_else(unknown)?;
    let file = match open(call, &agent).await?.read(&path).await {
        Ok((file, _)) => file,
        Err(FileError::NotFound) => return Err(unknown().into()),
        Err(error) => return Err(error.into()),
    };
    let mut content = json!({"uri": uri, "mimeType": media_type(&path, &file.bytes)});
    match std::str::from_utf8(&file.bytes) {
        Ok(text) => content["text"] = text.into(),
        Err(_) => content["blob"] = STANDARD.encode(&file.bytes).into(),
    }
    Ok(cached(asked, 0, json!({ "contents": [content] })))
}

/// Returns the agent and the path of a URI; `None` for one that no file can have.
pub(super) async fn find(call: &TenantCall<'_>, uri: &str) -> Option<(AgentId, FilePath)> {
    let (agent, path) = parse(uri)?;
    owner::check_agent(call.gateway, &call.caller.tenant, Some(&agent), "/").await.ok()?;
    Some((agent, path))
}

/// Returns the workspace of the caller's user with an agent.
pub(super) async fn open(call: &TenantCall<'_>, agent: &AgentId) -> Result<Workspace, Problem> {
    let user = owner::user_of(call.caller, call.request.query("user").as_deref(), "?")?;
    let owner = Owner { tenant: call.caller.tenant.clone(), agent: agent.clone(), user };
    call.gateway.workspace(&owner).await
}

fn view(agent: &AgentId, entry: &Entry) -> Value {
    json!({
        "uri": uri(agent, &entry.path),
        "name": entry.path,
        "mimeType": media_type(&entry.path, &[]),
        "size": entry.bytes,
        "annotations": {"lastModified": entry.updated_at},
    })
}

fn uri(agent: &AgentId, path: &FilePath) -> String {
    let segments = std::iter::once(&**agent).chain(path.as_str().split('/'));
    let encoded = segments.map(|segment| utf8_percent_encode(segment, RESERVED).to_string());
    format!("{SCHEME}{}", encoded.collect::<Vec<_>>().join("/"))
}

fn parse(uri: &str) -> Option<(AgentId, FilePath)> {
    let (agent, path) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((AgentId::parse(&decoded(agent)?)?, FilePath::parse(&decoded(path)?).ok()?))
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn uris_are_read_as_they_are_written() {
        for (agent, path, expected) in [
            ("default", "AGENTS.md", "workspace://default/AGENTS.md"),
            ("a:b", "notes/über uns?.md", "workspace://a%3Ab/notes/%C3%BCber%20uns%3F.md"),
        ] {
            let (agent, path) = (AgentId::from(agent), FilePath::parse(path).expect("a path"));
            assert_eq!(uri(&agent, &path), expected);
            assert_eq!(parse(expected), Some((agent, path)));
        }
        for text in
            ["file:///etc/passwd", "workspace://default", "workspace://default/../x", "workspace:///a"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
