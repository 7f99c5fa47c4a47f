//! Completion of the arguments of the template of resources: names of agents, and paths of files.

use super::fault::Fault;
use super::message::Asked;
use super::resources::{self, TEMPLATE};
use super::rpc::Failure;
use crate::http::gateway::TenantCall;
use crate::http::owner;
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, PathPrefix};
use serde_json::{Value, json};

/// Most values of a completion; the protocol allows no more.
const MAX_VALUES: usize = 100;

/// `completion/complete`. Arguments of prompts are free text, which nothing completes.
pub(super) async fn complete(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let of = |place: &str, name: &str| asked.params.get(place).and_then(|place| place[name].as_str());
    let (Some(argument), Some(value)) = (of("argument", "name"), of("argument", "value")) else {
        return Err(Fault::invalid_params("`argument` must have a `name` and a `value`").into());
    };
    let mut values: Vec<String> = match (of("ref", "uri"), argument) {
        (Some(TEMPLATE), "agent") => {
            let agents = call.gateway.agents.list(&call.caller.tenant).await?;
            let agents = agents.into_iter().map(|agent| agent.id.to_string());
            agents.filter(|agent| agent.starts_with(value)).collect()
        }
        (Some(TEMPLATE), "path") => {
            let chosen =
                asked.params.get("context").and_then(|context| context["arguments"]["agent"].as_str());
            let chosen = chosen.unwrap_or(DEFAULT_AGENT);
            let exists = owner::check_agent(call.gateway, &call.caller.tenant, Some(chosen), "/").await;
            match (exists, PathPrefix::parse(value)) {
                (Ok(()), Ok(prefix)) => {
                    let workspace = resources::open(call, &AgentId::from(chosen)).await?;
                    let files = workspace.list(&prefix, None, MAX_VALUES + 1).await?;
                    files.into_iter().map(|(entry, _)| entry.path.to_string()).collect()
                }
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    };
    let has_more = values.len() > MAX_VALUES;
    values.truncate(MAX_VALUES);
    Ok(json!({"completion": {"values": values, "hasMore": has_more}}))
}
