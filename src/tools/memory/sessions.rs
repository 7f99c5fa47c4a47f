//! The `session_search`, `session_list`, and `session_history` tools.

use super::{SearchArgs, Shared, joined, limit, line, owner};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::memory::search::Hit;
use crate::ports::directory::SessionKinds;
use crate::ports::memory::CollectionKind;
use crate::types::{Category, Effect, Owner, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `session_search` tool.
pub struct SessionSearch(pub(super) Shared);

impl Tool for SessionSearch {
    type Args = SearchArgs;
    type Output = String;
    const NAME: &'static str = "session_search";
    const DESCRIPTION: &'static str = "Searches the wording of all sessions with this user, best matches first. Returns day, session, speaker, and text.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &SearchArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: SearchArgs, cx: ToolContext) -> Result<String, ToolError> {
        self.0.find(CollectionKind::Turns, args, cx, "no matching messages").await
    }
}

/// The `session_list` tool.
pub struct SessionList(pub(super) Shared);

/// The arguments of `session_list`.
#[derive(Deserialize, JsonSchema)]
pub struct ListArgs {
    /// Maximum number of sessions: 10 by default, at most 50.
    limit: Option<usize>,
}

impl Tool for SessionList {
    type Args = ListArgs;
    type Output = String;
    const NAME: &'static str = "session_list";
    const DESCRIPTION: &'static str = "Lists the newest sessions with this user: id, day, and title.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &ListArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: ListArgs, cx: ToolContext) -> Result<String, ToolError> {
        let Owner { tenant, user, agent } = owner(&cx)?;
        let limit = limit(args.limit);
        let sessions = self.0.directory.sessions(
            SessionKinds::Conversations,
            &tenant,
            Some(&user),
            Some(&agent),
            None,
            limit,
        );
        let sessions = cx.unless_canceled(sessions).await?.map_err(|error| self.0.down(&cx, &error))?;
        let lines = sessions.iter().map(|entry| {
            let at = entry.updated_at.to_rfc3339();
            let title = entry.title.as_deref().unwrap_or_default();
            format!("{} [{}] {title}", entry.id, at.get(..10).unwrap_or_default())
        });
        Ok(joined(lines, "there are no other sessions"))
    }
}

/// The `session_history` tool.
pub struct SessionHistory(pub(super) Shared);

/// The arguments of `session_history`.
#[derive(Deserialize, JsonSchema)]
pub struct HistoryArgs {
    /// The session's id.
    session: String,
    /// Number of turns, counted from the last one: 20 by default, at most 50.
    last: Option<usize>,
}

impl Tool for SessionHistory {
    type Args = HistoryArgs;
    type Output = String;
    const NAME: &'static str = "session_history";
    const DESCRIPTION: &'static str = "Reads the last turns of another session with this user, oldest first.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &HistoryArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: HistoryArgs, cx: ToolContext) -> Result<String, ToolError> {
        let last = args.last.unwrap_or(20).clamp(1, super::MAX_HITS);
        let (owner, session) = (owner(&cx)?, SessionId::from(args.session));
        let said = self.0.memories.history(&owner, &session, last);
        let said = cx.unless_canceled(said).await?.map_err(|error| self.0.down(&cx, &error))?;
        let lines = said.into_iter().map(|entry| line(&Hit { entry, score: 0.0 }));
        Ok(joined(lines, "no turns of this session are known; use session_list to see the sessions"))
    }
}
