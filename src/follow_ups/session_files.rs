//! The `session_files` follow-up: erases the workspace of a subagent that has one of its own, with its session.

use crate::agent::{
    FollowUp, RuntimeContext,
    follow_up::{FollowUpContext, Progress},
};
use crate::types::{BoxError, SessionId, WorkspaceOwner};
use crate::workspace::Workspaces;
use std::rc::Rc;

/// Erases the files of isolated sessions. It never runs after a turn.
pub struct SessionFiles(pub Rc<Workspaces>);

#[async_trait::async_trait(?Send)]
impl FollowUp for SessionFiles {
    fn name(&self) -> &'static str {
        "session_files"
    }

    fn is_due(&self, _cx: &RuntimeContext) -> bool {
        false
    }

    fn runs_after_failure(&self) -> bool {
        false
    }

    async fn run(&self, _cx: &FollowUpContext) -> Result<Progress, BoxError> {
        Ok(Progress::Done(Vec::new()))
    }

    async fn erase(&self, workspace: &WorkspaceOwner, _session: &SessionId) -> Result<bool, BoxError> {
        Ok(match &workspace.session {
            Some(session) => self.0.erase_session(&workspace.owner, session).await?,
            None => false,
        })
    }
}
