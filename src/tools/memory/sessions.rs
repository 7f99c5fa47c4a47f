//! `session_search`, `session_list`, `session_history`.

use super::{SearchArgs, Shared, answer, limit, line, owner};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::memory::search::Hit;
use crate::ports::memory::CollectionKind;
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// `session_search`.
pub struct SessionSearch(pub(super) Shared);

impl Tool for SessionSearch {
    type Args = SearchArgs;
    type Output = String;
    const NAME: &'static str = "session_search";
    const DESCRIPTION: &'static str = "Finds what was said in any session with this user, word by word, best first: when, in which session, by whom.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &SearchArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: SearchArgs, cx: ToolContext) -> Result<String, ToolError> {
        self.0.find(CollectionKind::Turns, args, cx, "nothing like that was said").await
    }
}

/// `session_list`.
pub struct SessionList(pub(super) Shared);

/// How many.
#[derive(Deserialize, JsonSchema)]
pub struct ListArgs {
    /// How many sessions: 10 unless given, 50 at most.
    limit: Option<usize>,
}

impl Tool for SessionList {
    type Args = ListArgs;
    type Output = String;
    const NAME: &'static str = "session_list";
    const DESCRIPTION: &'static str = "Lists the newest sessions with this user: id, day and title.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &ListArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: ListArgs, cx: ToolContext) -> Result<String, ToolError> {
        let (user, agent, limit) = (Some(cx.user.as_str()), Some(cx.agent.as_str()), limit(args.limit));
        let sessions = self.0.directory.sessions(&cx.tenant, user, agent, None, limit, false);
        let sessions = cx.unless_canceled(sessions).await?.map_err(|error| self.0.down(&cx, &error))?;
        let lines = sessions.iter().map(|entry| {
            let at = entry.updated_at.to_rfc3339();
            let title = entry.title.as_deref().unwrap_or_default();
            format!("{} [{}] {title}", entry.id, at.get(..10).unwrap_or_default())
        });
        Ok(answer(lines, "there is no other session"))
    }
}

/// `session_history`.
pub struct SessionHistory(pub(super) Shared);

/// What to read.
#[derive(Deserialize, JsonSchema)]
pub struct HistoryArgs {
    /// The session's id.
    session: String,
    /// How many of its last turns: 20 unless given, 50 at most.
    last: Option<usize>,
}

impl Tool for SessionHistory {
    type Args = HistoryArgs;
    type Output = String;
    const NAME: &'static str = "session_history";
    const DESCRIPTION: &'static str =
        "Shows what was last said in another session with this user, oldest first.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, _args: &HistoryArgs) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: HistoryArgs, cx: ToolContext) -> Result<String, ToolError> {
        let last = args.last.unwrap_or(20).clamp(1, super::MAX_HITS);
        let owner = owner(&cx);
        let said = self.0.memories.history(&owner, &args.session, last);
        let said = cx.unless_canceled(said).await?.map_err(|error| self.0.down(&cx, &error))?;
        let lines = said.into_iter().map(|entry| line(&Hit { entry, score: 0.0 }));
        Ok(answer(lines, "nothing of such a session is known; session_list shows which there are"))
    }
}
