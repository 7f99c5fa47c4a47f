//! The forms of responses that handlers build as JSON values. Nothing builds these types; tests compare real responses
//! with them.

#![allow(dead_code, reason = "only describes")]

use crate::ports::{directory::JwtConfig, memory::Source, moves::MovePhase};
use crate::session::view::{QueuedView, SessionView};
use crate::types::{
    AgentId, CallId, ErrorCode, FieldError, KeyId, MessageId, MoveId, Pending, Rules, Scopes, SessionId,
    SessionStatus, StorageUse, Task, TenantId, TenantLimits, TimedLimit, Timestamp, TurnError, TurnId,
    TurnStatus, Usage, UserId,
};
use crate::workspace::{Layer, skills::SkillState};
use schemars::JsonSchema;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is wrong with a request (RFC 9457).
#[derive(JsonSchema)]
pub(super) struct Problem {
    /// A URN that ends with the code.
    r#type: String,
    /// The title of the code.
    title: String,
    /// The status of the response.
    status: u16,
    /// What is wrong with this request, for people.
    detail: String,
    /// The stable code.
    code: ErrorCode,
    /// The id of the request, for the operator.
    request_id: String,
    /// The wrong fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
    /// The limit of the tenant that the request has reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<TimedLimit>,
    /// When that limit resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<Timestamp>,
}

/// An error in the form of OpenAI's API.
#[derive(JsonSchema)]
pub(super) struct OpenAiError {
    error: OpenAiErrorDetails,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct OpenAiErrorDetails {
    /// What is wrong, for people.
    message: String,
    /// The kind of error.
    r#type: String,
    /// The wrong field.
    param: Option<String>,
    /// The code of the problem, or the one that OpenAI has for it.
    code: String,
}

/// An error of JSON-RPC.
#[derive(JsonSchema)]
pub(super) struct JsonRpcError {
    jsonrpc: String,
    /// The id of the request, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
    error: JsonRpcErrorDetails,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct JsonRpcErrorDetails {
    code: i32,
    /// What is wrong, for people.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

/// The server can serve requests.
#[derive(JsonSchema)]
pub(super) struct Ready {
    status: HealthStatus,
    /// The version of the server.
    version: String,
    /// The version of the stored shapes that it writes.
    schema: u32,
}

/// The server runs.
#[derive(JsonSchema)]
pub(super) struct Health {
    status: HealthStatus,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "snake_case")]
enum HealthStatus {
    Ok,
}

/// An entry of the list of sessions.
#[derive(JsonSchema)]
pub(super) struct ListedSession {
    /// The session.
    id: SessionId,
    /// The user.
    user: UserId,
    /// The agent.
    agent: AgentId,
    /// The title.
    title: Option<String>,
    /// The status. A session is listed as `running` when its turn has been running for ten seconds.
    status: SessionStatus,
    /// Number of calls that wait.
    pending: u32,
    /// When the session was created.
    created_at: Timestamp,
    /// When the session last changed.
    updated_at: Timestamp,
}

/// A model or an agent, as in OpenAI's API.
#[derive(JsonSchema)]
pub(super) struct Model {
    /// The name of an agent, or `provider/model`.
    id: String,
    object: String,
    created: u64,
    /// `edge-harness` for an agent, the provider for a model.
    owned_by: String,
}

/// The agents, and the models that the tenant may use.
#[derive(JsonSchema)]
pub(super) struct Models {
    object: String,
    data: Vec<Model>,
    next_cursor: Option<String>,
}

/// The session at one moment, as a user interface shows it.
#[derive(JsonSchema)]
pub(super) struct View {
    session: SessionView,
    /// Number of the last record.
    seq: u64,
    /// The event id of this moment, for `?after=` of the event stream.
    cursor: String,
    /// Whether a turn runs.
    running: bool,
    /// The message that is being written.
    current_message: Option<CurrentMessage>,
    /// The calls of the current step that have not ended.
    active_tools: Vec<ActiveTool>,
    /// The calls that wait.
    pending: Vec<Pending>,
    /// The queued messages.
    queue: Vec<QueuedView>,
    /// The agent's task list.
    tasks: Vec<Task>,
    /// What all ended turns of the session have used.
    usage: Usage,
    cost_usd: Option<f64>,
    /// What the model is shown.
    window: ShownWindow,
    /// What a summary or notes replace.
    memory: Replaced,
    /// The turn that runs or waits.
    current_turn: Option<CurrentTurn>,
    /// The error of the last turn, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<TurnError>,
}

/// The message that is being written.
#[derive(JsonSchema)]
struct CurrentMessage {
    id: MessageId,
    turn: TurnId,
    /// The text so far.
    text: String,
}

/// A call that has not ended.
#[derive(JsonSchema)]
struct ActiveTool {
    call_id: CallId,
    name: String,
    args: Value,
    status: ActiveStatus,
    started_at: Timestamp,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "snake_case")]
enum ActiveStatus {
    /// Not started.
    Pending,
    Running,
    Waiting,
}

/// The turn that runs or waits.
#[derive(JsonSchema)]
struct CurrentTurn {
    id: TurnId,
    status: TurnStatus,
    started_at: Timestamp,
    /// When the turn must end.
    deadline: Timestamp,
    /// Number of model calls.
    steps: u32,
    usage: Usage,
}

/// What the model is shown; with observation, also the progress of the notes.
#[derive(JsonSchema)]
struct ShownWindow {
    messages: u64,
    /// Their estimated tokens.
    tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffered_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
}

/// What a summary or notes replace.
#[derive(JsonSchema)]
struct Replaced {
    /// Number of the last record that a summary replaces.
    summarized_to: u64,
    /// Number of the last record that notes replace.
    observed_to: u64,
    /// Number of chunks of notes in the prompt.
    chunks: u64,
    /// Number of chunks that are not in the prompt yet.
    buffered: u64,
    generation: u64,
}

/// An aborted turn.
#[derive(JsonSchema)]
pub(in crate::http) struct Aborted {
    /// Whether there was a turn or a background task.
    aborted: bool,
    turn_id: Option<TurnId>,
    /// The status of the session.
    status: SessionStatus,
}

/// A message, decision or answer that the server has accepted.
#[derive(JsonSchema)]
pub(super) struct Accepted {
    turn_id: TurnId,
    status: TurnStatus,
}

/// The result of a compaction. Numbers of tokens are estimates.
#[derive(JsonSchema)]
pub(super) struct Compacted {
    /// Whether anything changed.
    compacted: bool,
    /// Number of messages that a summary or notes replace.
    dropped: u64,
    summary_tokens: u64,
    tokens_before: u64,
    tokens_after: u64,
}

/// A ticket.
#[derive(JsonSchema)]
pub(super) struct Ticket {
    /// The value of `?ticket=`.
    ticket: String,
    expires_at: Timestamp,
}

/// A file of a workspace.
#[derive(JsonSchema)]
pub(super) struct File {
    path: String,
    /// Size in bytes.
    bytes: u64,
    etag: String,
    updated_at: Timestamp,
    layer: Layer,
}

/// A spec.
#[derive(JsonSchema)]
pub(super) struct Spec {
    name: String,
    #[serde(flatten)]
    file: File,
}

/// Whether a spec is valid.
#[derive(JsonSchema)]
pub(super) struct SpecCheck {
    ok: bool,
    /// What is wrong, in sentences.
    problems: Vec<String>,
}

/// A spec that a model has written.
#[derive(JsonSchema)]
pub(super) struct GeneratedSpec {
    name: String,
    path: String,
    /// The text.
    content: String,
    #[serde(flatten)]
    check: SpecCheck,
}

/// A skill, a draft of one, or a malformed one.
#[derive(JsonSchema)]
pub(super) struct Skill {
    name: String,
    layer: Layer,
    /// The etag of its `SKILL.md`. That of a draft changes with any of its files.
    version: String,
    /// Whether it waits for a promotion.
    draft: bool,
    /// What the skill is for and when to use it. Absent if the skill is malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Why the skill is malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How recently it was used. Skills that people write are always `active`. Absent for drafts and malformed skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<SkillState>,
    /// Number of turns that have loaded it. Learned skills only.
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<u64>,
    /// When it was last loaded. Learned skills only.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<Timestamp>,
}

/// The best hits first.
#[derive(JsonSchema)]
pub(super) struct MemoryHits {
    hits: Vec<MemoryHit>,
}

/// A fact, or a turn of a conversation.
#[derive(JsonSchema)]
struct MemoryHit {
    id: String,
    source: Source,
    /// When it was stored or said.
    ts: Timestamp,
    text: String,
    score: f64,
    /// The file with the fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speaker: Option<String>,
}

/// What was added to the memory.
#[derive(JsonSchema)]
pub(super) struct Added {
    /// The ids of all facts or turns of the request.
    ids: Vec<String>,
    /// Number of those that are new.
    added: u64,
}

/// What a consolidation has merged.
#[derive(JsonSchema)]
pub(super) struct Consolidated {
    /// Number of facts.
    facts: u64,
}

/// An erasure that is not complete: repeat the request.
#[derive(JsonSchema)]
pub(super) struct Erasing {
    /// `erasing`.
    status: String,
    /// Number of remaining sessions.
    left: u64,
    detail: String,
}

/// A tenant.
#[derive(JsonSchema)]
pub(super) struct Tenant {
    id: TenantId,
    name: String,
    created_at: Timestamp,
    /// The shard with the rows of the tenant.
    shard: Option<String>,
    /// The number of shards over which the users are spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<Rules>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<TenantLimits>,
    /// The identity provider, with its public keys only.
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<JwtConfig>,
    /// What the tenant stores. Only in the response about one tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<StorageUse>,
    /// The shards of users that have moved. Only in the response about one tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_shards: Option<BTreeMap<String, String>>,
}

/// A deleted tenant that is being erased.
#[derive(JsonSchema)]
pub(super) struct DeletedTenant {
    id: TenantId,
    deleted_at: Timestamp,
    sessions_left: u64,
    storage: StorageUse,
}

/// A tenant, or a deleted one.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum ShownTenant {
    Tenant(Box<Tenant>),
    DeletedTenant(DeletedTenant),
}

/// What turns consumed.
#[derive(JsonSchema)]
struct UsageSums {
    turns: u64,
    steps: u64,
    tool_calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
    total_tokens: u64,
    cost_usd: f64,
}

/// The sums of one group. It has the field that `group` names.
#[derive(JsonSchema)]
struct UsageGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentId>,
    /// `provider/model`; empty for turns to which no model responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserId>,
    #[serde(flatten)]
    sums: UsageSums,
    /// What the tenant stored at the start of the day, if it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<StorageUse>,
}

/// The usage of a tenant.
#[derive(JsonSchema)]
pub(super) struct UsageReport {
    /// The first day.
    from: String,
    /// The last day.
    to: String,
    /// The field by which rows are grouped.
    group: String,
    data: Vec<UsageGroup>,
    total: UsageSums,
    next_cursor: Option<String>,
    /// What is stored now.
    storage: StorageUse,
}

/// A key, without the key itself.
#[derive(JsonSchema)]
pub(super) struct Key {
    id: KeyId,
    tenant: TenantId,
    name: String,
    scopes: Scopes,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// A new key.
#[derive(JsonSchema)]
pub(super) struct CreatedKey {
    #[serde(flatten)]
    about: Key,
    /// The key. It is shown only once.
    key: String,
}

/// A move of a tenant, or of one of its users, to another shard.
#[derive(JsonSchema)]
pub(super) struct Move {
    id: MoveId,
    from: String,
    to: String,
    phase: MovePhase,
    /// When the phase began.
    since: Timestamp,
    copied_rows: u64,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserId>,
}

/// A body of another protocol, whose own documentation describes it.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(in crate::http) struct Foreign(Map<String, Value>);
