//! Runs one turn of an agent.

use super::{
    HarnessAgent, RuntimeContext,
    ending::Ending,
    finalizer,
    hook::{HookEvent, PreCall},
    preparer,
    react::ReactAgent,
};
use crate::ports::{StoreError, session_store::Select};
use crate::session::WriteError;
use crate::types::{Message, StopReason};
use futures::{
    FutureExt,
    future::{Either, select},
    pin_mut,
};
use std::rc::Rc;

impl HarnessAgent {
    /// Runs a turn from the state in its journal until it ends or is suspended, and stores its end.
    ///
    /// The turn must have been started or resumed in the session under the context's permit.
    ///
    /// # Errors
    /// If the turn was sealed or restarted in the meantime, or the store fails. The journal then holds what
    /// is needed to continue.
    pub async fn call(&self, message: Rc<Message>, cx: Rc<RuntimeContext>) -> Result<(), WriteError> {
        self.restore_state(&cx)?;
        let deadline = cx.session.state().activity.turn.as_ref().map_or(cx.clock.now(), |turn| turn.deadline);
        let left = deadline.since(cx.clock.now());
        let outcome = {
            let run = self.run(message, &cx).fuse();
            let timer = cx.clock.sleep(left).fuse();
            pin_mut!(run, timer);
            match select(run, timer).await {
                Either::Left((result, _)) => result?,
                Either::Right(((), _)) => Some(Ending::new(StopReason::Deadline)),
            }
        };
        match outcome {
            Some(ending) => finalizer::seal(self, &cx, ending),
            // Suspended: a decision or an answer resumes the turn.
            None => Ok(()),
        }
    }

    /// Rebuilds the runtime state of a restarted turn from its records. A first start has none.
    pub(super) fn restore_state(&self, cx: &RuntimeContext) -> Result<(), StoreError> {
        if cx.permit.epoch > 1 && cx.state.take_needs_restore() {
            // Older logs store `turn.reflected` as `reflection.completed`.
            let kinds = &[
                "tool.started",
                "tool.completed",
                "turn.reflected",
                "reflection.completed",
                "model.fallback",
            ];
            let own = Select { turn: Some(cx.turn()), kinds, ..Select::default() };
            let state = cx.session.state();
            for record in cx.session.records(own) {
                cx.state.observe(|name| self.spec(state.client_tools(), name), &record?.kind);
            }
        }
        Ok(())
    }

    async fn run(&self, message: Rc<Message>, cx: &Rc<RuntimeContext>) -> Result<Option<Ending>, WriteError> {
        let mut event = PreCall { message: Message::clone(&message) };
        for hook in self.hooks.at(HookEvent::PreCall) {
            if let Err(error) = hook.pre_call(&mut event, cx).await {
                return Ok(Some(Ending::failed(error)));
            }
        }
        let message = if event.message == *message { message } else { Rc::new(event.message) };
        cx.state.set_user_message(&message);
        preparer::show_tasks(cx, &message)?;
        if !self.context.is_empty() {
            preparer::load_context(self, cx, &message).await;
        }
        ReactAgent { agent: self, cx }.run().await
    }
}
