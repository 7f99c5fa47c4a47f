//! Changes of the turn, the queue and the totals of turns.

use super::Draft;
use crate::session::DocumentKey;
use crate::types::{EventKind, Gauge, Message, TurnId, TurnState, Usage, session::Totals};
use std::rc::Rc;

/// Maximum length of a title made from a message, in characters.
const TITLE_CHARS: usize = 80;

impl Draft {
    /// Starts a turn with the user's message. The first message sets the session's title.
    pub(crate) fn start_turn(&mut self, turn: TurnState, message: Rc<Message>) {
        self.activity().totals.turns += 1;
        if self.state.meta.title.is_none() && !self.state.meta.title_pinned {
            self.meta().title = Some(title_from(&message.text()));
            self.relist();
        }
        if self.state.subagents.wakes > 0 {
            self.subagents().wakes = 0;
        }
        self.record(Some(&turn.id), EventKind::TurnStarted { message });
        if let Some(run) = &turn.options.run {
            self.record(Some(&turn.id), EventKind::RunRequested(run.clone()));
        }
        self.activity().turn = Some(turn);
    }

    /// Returns the current turn, for the turn machine.
    pub(crate) fn turn_mut(&mut self) -> Option<&mut TurnState> {
        self.activity().turn.as_mut()
    }

    /// Removes the current turn, which is sealed.
    pub(crate) fn end_turn(&mut self) {
        self.activity().turn = None;
    }

    /// Adds the usage and cost of a turn to the session's totals.
    pub(crate) fn add_usage(&mut self, usage: Usage, cost_usd: Option<f64>) {
        let totals = &mut self.activity().totals;
        totals.usage += usage;
        if let Some(cost) = cost_usd {
            *totals.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// Sets the totals, of a copy of another session.
    pub(crate) fn set_totals(&mut self, totals: Totals) {
        self.activity().totals = totals;
    }

    /// Sets the correction of token estimates.
    pub(crate) fn set_gauge(&mut self, gauge: Gauge) {
        self.activity().gauge = gauge;
    }

    /// Appends a turn, which is stored as `json`, to the queue.
    pub(crate) fn enqueue(&mut self, turn: &TurnId, json: String) {
        self.activity().queue.push(turn.clone());
        self.activity().reserved.queued += json.len() as u64;
        self.put(DocumentKey::Queued(turn.clone()), json);
        let position = self.state.activity.queue.len();
        self.record(Some(turn), EventKind::TurnQueued { position });
    }

    /// Removes a turn, whose document has `bytes` bytes, from the queue.
    pub(crate) fn dequeue(&mut self, turn: &TurnId, bytes: usize) {
        self.activity().unqueue(turn, bytes);
        self.delete(DocumentKey::Queued(turn.clone()));
    }

    /// Records the number of queued messages.
    pub(crate) fn record_queue(&mut self) {
        let count = self.state.activity.queue.len();
        self.record(None, EventKind::FollowupQueued { count });
    }
}

/// Returns the first line of a message, shortened to a title.
fn title_from(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("New session");
    let mut title: String = line.chars().take(TITLE_CHARS).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}
