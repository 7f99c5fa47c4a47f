//! Workspace files, memory, usage, exports and models: what concerns a tenant and its users.

use super::operation::{ErrorForm, JSON, Operation};
use super::shapes::{
    Added, Consolidated, Erasing, File, Health, MemoryHits, Model, Models, Ready, Skill, UsageReport,
};
use crate::http::memory::{
    Search, Space,
    import::{Facts, Turns},
};
use crate::http::page::Page;
use crate::http::skills::Promotion;
use crate::types::ErrorCode::{
    InvalidRequest, MemoryBusy, NotConfigured, PreconditionFailed, QuotaExceeded, ReadOnly, Unavailable,
};
use http::Method;
use serde_json::json;

pub(super) fn general() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", "getHealth", "Returns 200 while the Worker runs.")
            .returns::<Health>(200, "It runs."),
        Operation::get(
            "/readyz",
            "getReadiness",
            "Returns 200 if the settings are valid, and the databases and the object store can be read.",
        )
        .returns::<Ready>(200, "The server can serve requests.")
        .fails(&[NotConfigured, Unavailable]),
        Operation::get("/openapi.json", "getOpenApi", "Returns this document.").returns_as(
            200,
            "An OpenAPI document.",
            JSON,
            |_| json!({ "type": "object" }),
        ),
    ]
}

pub(super) fn models() -> Vec<Operation> {
    let openai = |operation: Operation| operation.errors_as(ErrorForm::OpenAi);
    vec![
        openai(
            Operation::get(
                "/v1/models",
                "listModels",
                "Lists the agents, and the models that the tenant may use.",
            )
            .text("In the format of OpenAI's API.")
            .returns::<Models>(200, "All of them."),
        ),
        openai(
            Operation::get("/v1/models/{model}", "getModel", "Returns an agent or a model.")
                .returns::<Model>(200, "The agent or model."),
        ),
    ]
}

pub(super) fn files() -> Vec<Operation> {
    let file = |operation: Operation| {
        owned(operation).query_as("layer", LAYER, json!({ "enum": ["user", "shared"] }))
    };
    let list = "Lists the files of a user with an agent, by path.";
    let path = "/v1/workspace/files/{path}";
    vec![
        file(Operation::get("/v1/workspace/files", "listFiles", list))
            .query("prefix", "Only paths that start with this text.")
            .list()
            .returns::<Page<File>>(200, "A page of files."),
        file(Operation::get(path, "readFile", "Returns a file."))
            .header("If-None-Match", "The etag of what you have.")
            .returns_bytes(200, "The bytes.", "*/*")
            .with("ETag", "The etag.")
            .returns_nothing(304, "You have it."),
        file(Operation::new(Method::PUT, path, "writeFile", "Writes a file."))
            .text("`?layer=shared` needs the scope `admin`.")
            .header("If-Match", "The etag that the file must have.")
            .header("If-None-Match", "`*`: the file must not exist.")
            .bytes_body("*/*")
            .returns::<File>(201, "The new file.")
            .with("ETag", "The etag.")
            .returns::<File>(200, "The changed file.")
            .with("ETag", "The etag.")
            .fails(&[ReadOnly, PreconditionFailed, QuotaExceeded, InvalidRequest]),
        file(Operation::delete(path, "deleteFile", "Removes a file."))
            .text("`?layer=shared` needs the scope `admin`.")
            .header("If-Match", "The etag that the file must have.")
            .returns_nothing(204, "There is no such file now.")
            .fails(&[ReadOnly, PreconditionFailed, InvalidRequest]),
    ]
}

const LAYER: &str = "The user's own files, or those that all users of the agent share. Without it, a read finds both, and a \
                     write changes the user's own.";

pub(super) fn skills() -> Vec<Operation> {
    vec![
        owned(Operation::get(
            "/v1/skills",
            "listSkills",
            "Lists the skills of a user with an agent, by name.",
        ))
        .text("With the drafts that wait for a promotion, and the malformed ones.")
        .list()
        .returns::<Page<Skill>>(200, "A page of skills."),
        owned(Operation::post("/v1/skills/{name}/promote", "promoteSkill", "Makes a draft a skill."))
            .header("If-Match", "The version of the draft that you have reviewed.")
            .body::<Promotion>(json!({ "layer": "user" }))
            .optional()
            .returns::<Skill>(200, "The skill.")
            .with("ETag", "The version of the skill.")
            .fails(&[PreconditionFailed, QuotaExceeded, NotConfigured]),
    ]
}

pub(super) fn memory() -> Vec<Operation> {
    let search = "/v1/memory/search";
    let scope = json!({ "enum": ["facts", "sessions"], "default": "facts" });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 10 });
    let fact = json!({ "id": "fact-1", "text": "Ann likes tea.", "ts": "2026-11-20T12:00:00Z" });
    let turn =
        json!({ "id": "turn-1", "speaker": "Ann", "text": "I like tea.", "ts": "2026-11-20T12:00:00Z" });
    vec![
        owned(Operation::get(search, "searchMemory", "Searches what is known about a user."))
            .query("q", "The text to search for.")
            .required()
            .query_as("scope", "`facts`, or `sessions` for the turns of conversations.", scope)
            .query_as("limit", "Maximum number of hits. There are never more than 50.", limit)
            .returns::<MemoryHits>(200, "The best hits first."),
        owned(Operation::post(
            search,
            "searchMemoryByBody",
            "Searches what is known about a user, with a body.",
        ))
        .body::<Search>(json!({ "q": "tea", "user": "ann", "scope": "facts" }))
        .returns::<MemoryHits>(200, "The best hits first."),
        owned(Operation::post("/v1/memory", "addFacts", "Adds facts about a user."))
            .text("A fact whose id exists already is not added again.")
            .body::<Facts>(json!({ "user": "ann", "facts": [fact] }))
            .returns::<Added>(201, "The facts.")
            .fails(&[QuotaExceeded]),
        Operation::delete("/v1/memory", "eraseUser", "Erases all data of a user, with all agents.")
            .query("user", "The user. A token may leave it out.")
            .returns_nothing(204, "Everything is erased.")
            .returns::<Erasing>(202, "Something remains; repeat the request."),
        owned(Operation::post("/v1/memory/turns", "importTurns", "Imports turns of past conversations."))
            .text("A turn whose id exists already is not added again.")
            .body::<Turns>(json!({ "user": "ann", "session": "old-1", "turns": [turn] }))
            .returns::<Added>(201, "The turns.")
            .fails(&[QuotaExceeded]),
        owned(Operation::get(
            "/v1/memory/log/{date}",
            "getDailyLog",
            "Returns the facts of a day as Markdown.",
        ))
        .returns_as(200, "The log.", "text/markdown", |_| json!({ "type": "string" })),
        owned(Operation::post(
            "/v1/memory/consolidate",
            "consolidateMemory",
            "Merges new facts into `MEMORY.md` now.",
        ))
        .body::<Space>(json!({ "user": "ann" }))
        .optional()
        .returns::<Consolidated>(200, "The number of merged facts.")
        .fails(&[MemoryBusy, QuotaExceeded]),
    ]
}

pub(super) fn usage() -> Vec<Operation> {
    vec![
        days(Operation::get("/v1/usage", "getUsage", "Returns the usage of the tenant."))
            .text("With a token, that of its own user only.")
            .returns::<UsageReport>(200, "Sums."),
        part(Operation::get(
            "/v1/export",
            "exportTenant",
            "Returns a part of an export of the tenant, or of one user.",
        ))
        .text("A key needs the scope `admin`. A token exports its own user."),
    ]
}

/// Adds the parameters of a report of usage.
pub(super) fn days(operation: Operation) -> Operation {
    let day = || json!({ "type": "string", "format": "date" });
    let group = json!({ "enum": ["day", "agent", "model", "user"], "default": "day" });
    operation
        .query_as("from", "The first UTC day.", day())
        .query_as("to", "The last UTC day.", day())
        .query_as("group", "The field by which rows are grouped.", group)
        .query("user", "The only user. A token has its own.")
        .list()
}

/// Adds the parameters and the response of a part of an export.
pub(super) fn part(operation: Operation) -> Operation {
    operation
        .query("user", "Only the data of this user.")
        .query("cursor", "The `next_cursor` in `manifest.json` of the previous part.")
        .returns_bytes(200, "A zip archive.", "application/zip")
}

/// Adds the user and the agent whose files or memory a request concerns.
pub(super) fn owned(operation: Operation) -> Operation {
    operation
        .query("user", "The user, `default` if absent. A token has its own.")
        .query("agent", "The agent, `default` if absent.")
}
