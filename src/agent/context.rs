//! The context of a turn. Never stored.

use super::{RuntimeState, StateRules};
use crate::ports::{Clock, Spawner, StoreError};
use crate::session::{Artifacts, Modes, Permit, Session};
use crate::types::{
    AgentId, Message, Owner, SessionId, SessionState, SubagentSkills, TenantId, TurnId, UserId,
    WorkspaceOwner,
};
use futures::future::LocalBoxFuture;
use std::rc::Rc;

/// Runs the follow-ups requested so far without waiting for more turns.
pub(super) type FinishFollowUps = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// The context of the current turn, for hooks.
#[derive(Clone)]
pub struct RuntimeContext {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The agent.
    pub agent: AgentId,
    /// Not public: a hook must change the session in no other commit than those of its turn.
    pub(crate) session: Rc<Session>,
    /// The permit of this start of the turn.
    pub(crate) permit: Permit,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// Runs tasks that outlive the turn.
    pub spawner: Rc<dyn Spawner>,
    /// The session's artifacts.
    pub(crate) artifacts: Rc<Artifacts>,
    /// The agent's modes.
    pub modes: Rc<Modes>,
    /// The rules for the session's state.
    pub state_rules: Rc<StateRules>,
    /// The volatile state of the turn.
    pub state: Rc<RuntimeState>,
    /// Which of the agent's skills the session has.
    pub skills: Rc<SubagentSkills>,
    pub(super) finish_follow_ups: FinishFollowUps,
}

impl RuntimeContext {
    /// Returns the tenant, the agent and the user.
    pub fn owner(&self) -> Owner {
        Owner { tenant: self.tenant.clone(), agent: self.agent.clone(), user: self.user.clone() }
    }

    /// Returns the workspace that the session works on.
    pub fn workspace(&self) -> WorkspaceOwner {
        self.session.state().meta.workspace()
    }

    /// Returns the session's id.
    pub fn session_id(&self) -> SessionId {
        self.session.state().meta.id.clone()
    }

    /// Returns the turn's id.
    pub fn turn(&self) -> &TurnId {
        &self.permit.turn
    }

    /// Returns whether this is a turn of a subagent.
    pub fn is_subagent(&self) -> bool {
        self.session.state().meta.parent.is_some()
    }

    /// Returns the session's state.
    pub fn session_state(&self) -> SessionState {
        self.session.state().clone()
    }

    /// Returns a document that a hook has written with [`HookDraft::put_document`](super::HookDraft::put_document).
    ///
    /// # Errors
    /// When the store fails.
    pub fn document(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.session.hook_document(name)
    }

    /// Returns the conversation as the model sees it: the context window, with the user's message as hooks
    /// changed it.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        let mut messages = self.session.messages();
        let Some(changed) = self.state.user_message() else { return messages };
        // In most turns no hook changes the message.
        let is_other = |own: &&mut Rc<Message>| own.id == changed.id && own.parts != changed.parts;
        if let Some(own) = messages.iter_mut().rev().find(is_other) {
            let changed = Rc::new(Message { seq: own.seq, ..Message::clone(&changed) });
            *own = self.session.context().shortened(own.seq, changed);
        }
        messages
    }
}
