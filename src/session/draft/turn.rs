//! Changes of the turn, the queue and the totals of turns.

use super::Draft;
use crate::session::DocumentKey;
use crate::types::{EventKind, Gauge, Message, TurnId, TurnState, Usage};
use std::rc::Rc;

/// Maximum length of a title made from a message, in characters.
const TITLE_CHARS: usize = 80;

impl Draft {
    /// Starts a turn with the user's message. The first message sets the session's title.
    pub(crate) fn start_turn(&mut self, turn: TurnState, message: Rc<Message>) {
        let meta = &mut self.state.meta;
        meta.turns += 1;
        if meta.title.is_none() && !meta.title_pinned {
            meta.title = Some(title_from(&message.text()));
            self.relist();
        }
        self.record(Some(&turn.id), EventKind::TurnStarted { message });
        self.state.turn = Some(turn);
    }

    /// Returns the current turn, for the turn machine.
    pub(crate) fn turn_mut(&mut self) -> Option<&mut TurnState> {
        self.state.turn.as_mut()
    }

    /// Removes the current turn, which is sealed.
    pub(crate) fn end_turn(&mut self) {
        self.state.turn = None;
    }

    /// Adds the usage and cost of a turn to the session's totals.
    pub(crate) fn add_usage(&mut self, usage: Usage, cost_usd: Option<f64>) {
        let meta = &mut self.state.meta;
        meta.usage += usage;
        if let Some(cost) = cost_usd {
            *meta.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// Sets the correction of token estimates.
    pub(crate) fn set_gauge(&mut self, gauge: Gauge) {
        self.state.gauge = gauge;
    }

    /// Appends a turn, which is stored as `json`, to the queue.
    pub(crate) fn enqueue(&mut self, turn: &TurnId, json: String) {
        self.state.queue.push(turn.clone());
        self.state.reserved.queued += json.len() as u64;
        self.put(DocumentKey::Queued(turn.clone()), json);
        let position = self.state.queue.len();
        self.record(Some(turn), EventKind::TurnQueued { position });
    }

    /// Removes a turn, whose document has `bytes` bytes, from the queue.
    pub(crate) fn dequeue(&mut self, turn: &TurnId, bytes: usize) {
        self.state.unqueue(turn, bytes);
        self.delete(DocumentKey::Queued(turn.clone()));
    }

    /// Records the number of queued messages.
    pub(crate) fn record_queue(&mut self) {
        let count = self.state.queue.len();
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
