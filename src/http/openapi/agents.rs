//! Agents and the versions of their definitions.

use super::operation::Operation;
use crate::http::page::Page;
use crate::standard::definition::Definition;
use crate::types::ErrorCode::{
    AgentGone, AgentRequired, PayloadTooLarge, PreconditionFailed, QuotaExceeded, UnknownAgent,
};
use crate::types::{AgentId, AgentVersion, Approver, Timestamp};
use http::Method;
use schemars::JsonSchema;
use serde_json::json;

/// An agent, with the version of new sessions.
#[allow(dead_code, reason = "describes the form")]
#[derive(JsonSchema)]
struct Agent {
    id: AgentId,
    version: AgentVersion,
    /// The name; the id if the definition has none.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// A version of an agent.
#[allow(dead_code, reason = "describes the form")]
#[derive(JsonSchema)]
struct AgentDetails {
    id: AgentId,
    version: AgentVersion,
    /// When the version was stored; absent for the deployment's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    /// Who stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<Approver>,
    #[serde(flatten)]
    definition: Definition,
}

/// An entry of the list of versions.
#[allow(dead_code, reason = "describes the form")]
#[derive(JsonSchema)]
#[schemars(rename = "AgentVersion")]
struct Version {
    version: AgentVersion,
    /// Whether new sessions get it.
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<Approver>,
    /// Whether it has the settings of the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    deployment: Option<bool>,
}

pub(super) fn operations() -> Vec<Operation> {
    let one = "/v1/agents/{agent}";
    let example = json!({
        "name": "Support desk",
        "description": "Answers questions about orders.",
        "instructions": "You help customers. Be brief and kind.",
        "tools": { "deny": ["web_fetch"] },
        "permissions": { "tools": { "write_file": "ask" } },
        "files": { "knowledge/returns.md": "Returns are free for 30 days." },
    });
    vec![
        Operation::get("/v1/agents", "listAgents", "Lists the agents of the tenant, by id.")
            .returns::<Page<Agent>>(200, "All agents that are not deleted."),
        Operation::get(one, "getAgent", "Returns an agent.")
            .query_of::<u32>("version", "The version; the one of new sessions if absent.")
            .returns::<AgentDetails>(200, "The version.")
            .with("ETag", "The number of the version, in quotes.")
            .fails(&[UnknownAgent, AgentGone]),
        Operation::new(Method::PUT, one, "putAgent", "Stores a version of an agent, which new sessions get.")
            .text("If it equals the active version, nothing is stored. A definition has at most 1 MiB.")
            .header("If-Match", "The etag of the version that must be active.")
            .header("If-None-Match", "`*`: the agent must not exist.")
            .body::<Definition>(example)
            .returns::<AgentDetails>(201, "The first version of a new agent.")
            .with("ETag", "The number of the version, in quotes.")
            .returns::<AgentDetails>(200, "The active version.")
            .with("ETag", "The number of the version, in quotes.")
            .fails(&[PreconditionFailed, QuotaExceeded, PayloadTooLarge]),
        Operation::delete(one, "deleteAgent", "Deletes an agent.")
            .text("Its sessions refuse further messages, and can still be read.")
            .header("If-Match", "The etag of the version that must be active.")
            .returns_nothing(204, "It is deleted.")
            .fails(&[UnknownAgent, AgentRequired, PreconditionFailed]),
        Operation::get(
            "/v1/agents/{agent}/versions",
            "listAgentVersions",
            "Lists the versions of an agent, newest first.",
        )
        .list()
        .returns::<Page<Version>>(200, "A page of versions, without their definitions.")
        .fails(&[UnknownAgent]),
        Operation::post(
            "/v1/agents/{agent}/versions/{version}/activate",
            "activateAgentVersion",
            "Gives a version of an agent to new sessions.",
        )
        .returns::<AgentDetails>(200, "The version.")
        .with("ETag", "The number of the version, in quotes.")
        .fails(&[UnknownAgent, AgentGone]),
    ]
}
