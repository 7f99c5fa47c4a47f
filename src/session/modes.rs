//! Going over from one mode to another.

use super::Draft;
use crate::types::{EventKind, Mode, Modes};

impl Draft {
    /// Puts the session into the mode `to`, for a turn or from outside. The mode that it leaves remembers the
    /// session's model; then the one that `to` remembers comes back, or else its own, or nothing changes. All of it
    /// is one commit, so of two at once the last holds.
    pub fn switch_mode(&mut self, modes: &Modes, turn: Option<&str>, to: &Mode) {
        let state = &mut self.state;
        let previous = modes.current(state.meta.mode.as_deref()).map(|mode| mode.id.clone());
        state.meta.mode = Some(to.id.clone());
        if previous.as_ref() == Some(&to.id) {
            return;
        }
        if to.is_planning() {
            // A new one is to be made: the old one does not hold any more.
            state.plan = None;
        }
        let left = state.meta.model.clone();
        if let Some(mode) = &previous {
            state.mode_models.insert(mode.clone(), left.clone());
        }
        let own = || to.default_model.clone().map(Some);
        let model = state.mode_models.get(&to.id).cloned().or_else(own).unwrap_or_else(|| left.clone());
        state.meta.model.clone_from(&model);
        self.record(turn, EventKind::ModeChanged { mode: Some(to.id.clone()), previous });
        if model != left {
            self.record(turn, EventKind::ModelChanged { model, previous: left });
        }
    }
}
