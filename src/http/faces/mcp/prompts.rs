//! The modes and skills of the agents as prompts: what a mode adds to the instructions of an agent, and the instructions of
//! a skill.

use super::fault::Fault;
use super::message::Asked;
use super::rpc::{Failure, cached};
use crate::http::gateway::TenantCall;
use crate::http::request::RequestExt;
use crate::http::{owner, page};
use crate::ports::FileError;
use crate::types::{AgentId, ErrorCode, Mode, Owner, Problem};
use crate::workspace::skills::{self, resolve};
use serde_json::{Value, json};

/// The start of the name of a skill's prompt, after the agent.
const SKILLS: &str = "skills/";

/// `prompts/list`: the modes with instructions and the skills of each agent in turn, a page for one agent at a time.
pub(super) async fn list(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let unknown = || Fault::invalid_params("not a cursor of this list");
    let at: usize = match asked.text("cursor") {
        None => 0,
        Some(cursor) => page::decode(cursor).ok_or_else(unknown)?,
    };
    let agents = call.gateway.agents.list(&call.caller.tenant).await?;
    let agent = &agents.get(at).ok_or_else(unknown)?.id;
    let owner = owner_with(call, agent)?;
    let mut prompts = Vec::new();
    if at == 0 {
        prompts.extend(call.gateway.config.modes.iter().filter_map(|mode| of_mode(mode.id.clone(), mode)));
    }
    if let Some(built) = call.gateway.agents.active_built(&owner.tenant, agent).await? {
        let own = built.agent.modes().all().iter();
        prompts.extend(own.filter_map(|mode| of_mode(format!("{agent}/{}", mode.id), mode)));
    }
    let (files, settings) = call.gateway.files_of(&owner).await?;
    if settings.enabled {
        let view = files.skills(&owner.clone().into()).await?;
        for skill in resolve(&view, |name| settings.admits(name)) {
            // A malformed skill has no instructions.
            let Ok(description) = &skill.description else { continue };
            prompts.push(prompt(format!("{agent}/{SKILLS}{}", skill.name), None, Some(description)));
        }
    }
    let mut list = json!({ "prompts": prompts });
    if at + 1 < agents.len() {
        list["nextCursor"] = page::encode(&(at + 1))?.into();
    }
    // Skills are files, which may change at any time.
    Ok(cached(asked, 0, list))
}

fn of_mode(name: String, mode: &Mode) -> Option<Value> {
    mode.instructions.as_ref().map(|_| prompt(name, mode.name.as_deref(), mode.description.as_deref()))
}

fn prompt(name: String, title: Option<&str>, description: Option<&str>) -> Value {
    let task =
        json!({"name": "task", "description": "What to do with these instructions.", "required": false});
    let mut prompt = json!({ "name": name, "arguments": [task] });
    for (field, value) in [("title", title), ("description", description)] {
        if let Some(value) = value {
            prompt[field] = value.into();
        }
    }
    prompt
}

/// `prompts/get`.
pub(super) async fn get(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let name =
        asked.text("name").ok_or_else(|| Fault::invalid_params("`name` must be the name of a prompt"))?;
    let found = find(call, name).await?;
    let (instructions, description) =
        found.ok_or_else(|| Fault::invalid_params(&format!("unknown prompt {name:?}")))?;
    let task = asked.params.get("arguments").and_then(|args| args.get("task")).and_then(Value::as_str);
    let text = task.map_or_else(|| instructions.clone(), |task| format!("{instructions}\n\n{task}"));
    let mut prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]});
    if let Some(description) = description {
        prompt["description"] = description.into();
    }
    Ok(prompt)
}

/// Returns the instructions and the description of a prompt.
async fn find(call: &TenantCall<'_>, name: &str) -> Result<Option<(String, Option<String>)>, Failure> {
    let of = |modes: &[Mode], id: &str| {
        let mode = modes.iter().find(|mode| mode.id == id)?;
        Some((mode.instructions.clone()?, mode.description.clone()))
    };
    let Some((agent, own)) = name.split_once('/') else { return Ok(of(&call.gateway.config.modes, name)) };
    let agent = AgentId::from(agent);
    match owner::check_agent(call.gateway, &call.caller.tenant, Some(&agent), "/").await {
        Ok(()) => {}
        Err(problem) if problem.code == ErrorCode::UnknownAgent => return Ok(None),
        Err(problem) => return Err(problem.into()),
    }
    let owner = owner_with(call, &agent)?;
    let Some(skill) = own.strip_prefix(SKILLS) else {
        let built = call.gateway.agents.active_built(&owner.tenant, &agent).await?;
        return Ok(built.and_then(|built| of(built.agent.modes().all(), own)));
    };
    let (files, settings) = call.gateway.files_of(&owner).await?;
    if !settings.enabled || !settings.admits(skill) {
        return Ok(None);
    }
    let workspace = files.open(&owner.tenant, &owner.agent, &owner.user, None);
    let (found, file) = match workspace.skill(skill).await {
        Ok(found) => found,
        Err(FileError::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&file.bytes);
    let instructions = found.description.is_ok().then(|| skills::instructions(&text).ok()).flatten();
    let description = found.description.ok().map(|text| text.to_string());
    Ok(instructions.map(|text| (text.to_owned(), description)))
}

/// Returns the caller's user with an agent.
fn owner_with(call: &TenantCall<'_>, agent: &AgentId) -> Result<Owner, Problem> {
    let user = owner::user_of(call.caller, call.request.query("user").as_deref(), "?")?;
    Ok(Owner { tenant: call.caller.tenant.clone(), agent: agent.clone(), user })
}
