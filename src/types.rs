//! Plain data shared by every part of the program: no I/O, no async, no platform.

pub mod agent_version;
pub mod audit;
pub mod background;
pub mod budget;
pub mod call;
pub mod call_usage;
pub mod consent;
pub mod context;
pub mod delta;
pub mod error;
pub mod event;
pub mod expiring;
pub mod glob;
pub mod header;
pub mod id;
pub mod inbox;
pub mod json;
pub mod media;
pub mod message;
pub mod mode;
pub mod model;
pub mod model_list;
pub mod observed;
pub mod path;
pub mod peer;
pub mod permission;
pub mod plan_review;
pub mod principal;
pub mod quota;
pub mod reached;
pub mod run;
pub mod secret;
pub mod session;
pub mod spec;
pub mod storage;
pub mod subagent;
pub mod suspension;
pub mod task;
pub mod task_details;
pub mod tenant;
pub mod text;
pub mod thinking;
pub mod time;
pub mod tool;
pub mod tool_schema;
pub mod turn;
pub mod turn_end;
pub mod usage;

pub use agent_version::{AgentEntry, AgentRef, AgentSummary, AgentVersion, StoredVersion};
pub use audit::{Actor, AuditAction, AuditEntry, AuditQuery};
pub use background::{BackgroundTask, BackgroundTasks, Promoted};
pub use budget::{Budget, BudgetPatch};
pub use call::{ArtifactRef, DenyReason, Source, ToolOutcome};
pub use call_usage::CallUsage;
pub use consent::{ConsentGiven, ConsentPage, ConsentReply};
pub use context::{CompactReason, Cut, Gauge, WindowUse};
pub use delta::{CallProgress, Cursor, Delta, ToolProgress};
pub use error::{BoxError, ErrorCode, FieldError, Invalid, Problem};
pub use event::{EventKind, Record, TaskEnd};
pub use id::{
    AgentId, ArtifactId, AuditId, BlobId, CallId, FactId, GeneratedId, KeyId, LeaseId, MessageId, MoveId,
    RequestId, SessionId, TenantId, TurnId, UserId,
};
pub use inbox::{
    InboxCall, InboxChange, InboxChanges, InboxFilter, InboxKind, InboxMark, InboxNotice, InboxPosition,
    ListedCall, RemovedCall,
};
pub use media::{LeftOut, Media, MediaKind, RequestMedia};
pub use message::{FileRef, Message, Part, Role, ToolCall};
pub use mode::Mode;
pub use model::{
    FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelLimits, ModelRequest, ModelResponse, Price,
    Tools, Usage,
};
pub use model_list::ModelList;
pub use observed::{Chunk, Trigger};
pub use path::{FilePath, PathError, PathPrefix};
pub use peer::{Acknowledgement, ChildStatus, Imported, Snapshot, SnapshotMeta};
pub use permission::{Category, Decider, Grants, PatternRule, Policy, Rules, SessionPermissions};
pub use plan_review::PlanReview;
pub use principal::{Owner, Principal, Scope, Scopes, WorkspaceKind, WorkspaceOwner};
pub use quota::{Admission, Admitted, Quota, Receipt, Report, RequestBlock, SlotUse, Standing};
pub use reached::{Reached, TimedLimit};
pub use run::{OnDecline, RunApprovals, RunSpec, RunTurn};
pub use secret::SecretEntry;
pub use session::{
    FollowUpProgress, IntervalState, PlanRef, QueuedTurn, RequestTimes, ReservedBytes, SessionMeta,
    SessionState, SessionStatus,
};
pub use spec::SpecName;
pub use storage::{StorageLimits, StorageQuota, StorageUse};
pub use subagent::{
    ChildKey, ChildSettings, ChildTask, FurtherTask, Parent, RemoteAgent, Spawned, SubagentKind,
    SubagentSkills, SubagentSource,
};
pub use suspension::{
    Approver, ChildWait, Claim, Decision, NO_ANSWER, Pending, Resolution, ResolvedBy, Suspension, Wait,
    WaitKind,
};
pub use task::{Task, TaskStatus};
pub use task_details::{TaskDetails, TaskView};
pub use tenant::{TenantLimits, TenantPolicy};
pub use thinking::Thinking;
pub use time::Timestamp;
pub use tool::{Effect, ToolSpec};
pub use tool_schema::ToolSchema;
pub use turn::{CallState, CallStatus, StopReason, TurnError, TurnOptions, TurnPhase, TurnState, TurnStatus};
pub use turn_end::{Reply, TurnEnd, Verification};
pub use usage::{Day, NanoUsd, UsageKey, UsagePage, UsageRow, UsageTotals};

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
