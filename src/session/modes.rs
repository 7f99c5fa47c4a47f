//! The modes of an agent, and the rules for switching between them.

use super::Draft;
use crate::types::{EventKind, FieldError, Mode, TurnId, id};
use thiserror::Error;

/// Why a list of modes is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("mode {mode:?}: {why}")]
pub struct ModeError {
    /// The id of the invalid mode.
    pub mode: String,
    /// What is wrong with it.
    pub why: String,
}

/// Why a session cannot switch to a mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SwitchError {
    /// The requested mode does not exist.
    #[error("unknown mode {to:?}; available: {}", list(known))]
    Unknown {
        /// The requested mode.
        to: String,
        /// The existing modes.
        known: Vec<String>,
    },
    /// The current mode does not allow the transition.
    #[error("cannot switch from mode {from:?} to {to:?}; allowed: {}", list(allowed))]
    NotAllowed {
        /// The current mode.
        from: String,
        /// The requested mode.
        to: String,
        /// The modes that the session may switch to.
        allowed: Vec<String>,
    },
}

fn list(modes: &[String]) -> String {
    if modes.is_empty() { "none".into() } else { modes.join(", ") }
}

/// The modes of an agent, possibly none.
#[derive(Clone, Debug, Default)]
pub struct Modes(Vec<Mode>);

impl Modes {
    /// Creates the set after checking that the modes are consistent.
    ///
    /// # Errors
    /// The first invalid mode, and why it is invalid.
    pub fn new(modes: Vec<Mode>) -> Result<Self, ModeError> {
        let modes = Self(modes);
        for (index, mode) in modes.0.iter().enumerate() {
            let wrong = |why: &str| Err(ModeError { mode: mode.id.clone(), why: why.to_owned() });
            if !id::is_valid(&mode.id) {
                return wrong("the id must be 1-128 characters of A-Z a-z 0-9 _ - . ~ : @");
            }
            if modes.0.iter().skip(index + 1).any(|other| other.id == mode.id) {
                return wrong("another mode has the same id");
            }
            if mode.default && modes.0.iter().skip(index + 1).any(|other| other.default) {
                return wrong("more than one mode is marked as the default");
            }
            if mode.tools.is_some() && mode.additional_tools.is_some() {
                return wrong("`tools` and `additional_tools` exclude each other");
            }
            if let Err(FieldError { pointer, detail: fault }) = mode.permissions.check() {
                return wrong(&format!("permissions at {pointer:?}: {fault}"));
            }
            for to in mode.transitions_to.iter().flatten() {
                if *to == mode.id {
                    return wrong("`transitions_to` names the mode itself");
                }
                if modes.get(to).is_none() {
                    return wrong(&format!("`transitions_to` names {to:?}, which does not exist"));
                }
            }
        }
        Ok(modes)
    }

    /// Returns all modes, in the order of their definition.
    pub fn all(&self) -> &[Mode] {
        &self.0
    }

    /// Returns the mode with this id.
    pub fn get(&self, id: &str) -> Option<&Mode> {
        self.0.iter().find(|mode| mode.id == id)
    }

    /// Returns the mode with this id, or an error for the caller.
    ///
    /// # Errors
    /// The mode does not exist.
    pub fn find(&self, id: &str) -> Result<&Mode, SwitchError> {
        let known = || self.0.iter().map(|mode| mode.id.clone()).collect();
        self.get(id).ok_or_else(|| SwitchError::Unknown { to: id.to_owned(), known: known() })
    }

    /// Returns the mode that sessions start in: the one marked as default, or the first.
    pub fn first(&self) -> Option<&Mode> {
        self.0.iter().find(|mode| mode.default).or(self.0.first())
    }

    /// Returns the mode of a session that stored the id `stored`. A mode that no longer exists is replaced by
    /// the one that sessions start in.
    pub fn current<'a>(&'a self, stored: Option<&str>) -> Option<&'a Mode> {
        stored.and_then(|id| self.get(id)).or_else(|| self.first())
    }

    /// Returns mode `to` if a session that stored mode `from` may switch to it. Staying in a mode is always
    /// allowed.
    ///
    /// # Errors
    /// The mode does not exist, or the current mode does not allow the transition.
    pub fn transition<'a>(&'a self, from: Option<&str>, to: &str) -> Result<&'a Mode, SwitchError> {
        let (target, from) = (self.find(to)?, self.current(from));
        match from.and_then(|from| from.transitions_to.as_ref().map(|allowed| (from, allowed))) {
            Some((from, allowed)) if from.id != to && !allowed.iter().any(|id| id == to) => {
                let (from, to) = (from.id.clone(), to.to_owned());
                Err(SwitchError::NotAllowed { from, to, allowed: allowed.clone() })
            }
            _ => Ok(target),
        }
    }

    /// Returns the mode in which a plan approved in `from` is carried out; `None` for `from` itself. That is
    /// the first of its `transitions_to`; if it has none and is for planning only, the first mode that is
    /// not.
    pub fn after_plan(&self, from: &Mode) -> Option<&Mode> {
        match &from.transitions_to {
            Some(ids) => ids.first().and_then(|id| self.get(id)),
            None if from.is_planning() => {
                self.first().into_iter().chain(&self.0).find(|mode| !mode.is_planning())
            }
            None => None,
        }
    }

    /// Returns which tools of `toolkit` a session in `mode` has; `None` for all.
    pub fn tools<'a>(
        &self,
        mode: Option<&Mode>,
        toolkit: impl Iterator<Item = &'a str>,
    ) -> Option<Vec<String>> {
        let mode = mode?;
        let named = |list: &Option<Vec<String>>, tool: &str| list.iter().flatten().any(|name| name == tool);
        let is_extra = |tool: &str| self.0.iter().any(|mode| named(&mode.additional_tools, tool));
        let has_extras = self.0.iter().any(|mode| mode.additional_tools.is_some());
        if mode.tools.is_none() && mode.available_tools.is_none() && !has_extras {
            return None;
        }
        let has = |tool: &&str| {
            let own = match &mode.tools {
                Some(_) => named(&mode.tools, tool),
                None => !is_extra(tool) || named(&mode.additional_tools, tool),
            };
            own && (mode.available_tools.is_none() || named(&mode.available_tools, tool))
        };
        Some(toolkit.filter(has).map(str::to_owned).collect())
    }
}

impl Draft {
    /// Switches the session to the mode `to`, within a turn or from outside. The previous mode remembers the
    /// session's model. The new model is the one that `to` remembers, else the mode's default, else the
    /// current one.
    pub fn switch_mode(&mut self, modes: &Modes, turn: Option<&TurnId>, to: &Mode) {
        let previous = modes.current(self.state.meta.mode.as_deref()).map(|mode| mode.id.clone());
        self.meta().mode = Some(to.id.clone());
        if previous.as_ref() == Some(&to.id) {
            return;
        }
        if to.is_planning() {
            // A new plan is to be written, so the approved one no longer applies.
            self.set_plan(None);
        }
        let left = self.state.meta.model.clone();
        if let Some(mode) = &previous {
            self.remember_model(mode, left.clone());
        }
        let limits = &self.state.guidance.tenant_policy.limits;
        let may_use = |model: &Option<String>| model.as_ref().is_none_or(|model| limits.allow_model(model));
        let own = || to.default_model.clone().map(Some).filter(may_use);
        let remembered = self.state.guidance.mode_models.get(&to.id).cloned().filter(may_use);
        let model = remembered.or_else(own).unwrap_or_else(|| left.clone());
        self.meta().model.clone_from(&model);
        self.record(turn, EventKind::ModeChanged { mode: Some(to.id.clone()), previous });
        if model != left {
            self.record(turn, EventKind::ModelChanged { model, previous: left });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    fn modes(list: Value) -> Result<Modes, String> {
        Modes::new(serde_json::from_value(list).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn inconsistent_modes_are_rejected() {
        for (list, expected) in [
            (json!([{"id": "a"}, {"id": "a"}]), "\"a\": another mode has the same id"),
            (json!([{"id": "a b"}]), "\"a b\": the id must be"),
            (json!([{"name": "a"}]), "\"\": the id must be"),
            (
                json!([{"id": "a", "tools": [], "additional_tools": []}]),
                "\"a\": `tools` and `additional_tools`",
            ),
            (json!([{"id": "a", "transitions_to": ["a"]}]), "\"a\": `transitions_to` names the mode itself"),
            (json!([{"id": "a", "transitions_to": ["b"]}]), "\"a\": `transitions_to` names \"b\", which"),
            (
                json!([{"id": "a", "default": true}, {"id": "b", "default": true}]),
                "\"a\": more than one mode",
            ),
        ] {
            let error = modes(list).unwrap_err();
            assert!(error.starts_with(&format!("mode {expected}")), "{error}");
        }
        assert!(modes(json!([])).unwrap().first().is_none(), "an agent may have none");
    }

    #[test]
    fn sessions_start_in_the_default_mode_or_the_first() {
        let first = |list| modes(list).unwrap().first().unwrap().id.clone();
        assert_eq!(first(json!([{"id": "a"}, {"id": "b"}])), "a");
        assert_eq!(first(json!([{"id": "a"}, {"id": "b", "default": true}])), "b");
        let modes = modes(json!([{"id": "a"}, {"id": "b"}])).unwrap();
        let current = |stored| modes.current(stored).unwrap().id.clone();
        assert_eq!(
            (current(None), current(Some("b")), current(Some("gone"))),
            ("a".into(), "b".into(), "a".into())
        );
    }

    #[test]
    fn a_mode_restricts_transitions() {
        let modes = modes(json!([
            {"id": "a", "transitions_to": ["b"]}, {"id": "b"}, {"id": "c", "transitions_to": []},
        ]))
        .unwrap();
        let goes = |from: &str, to: &str| modes.transition(Some(from), to).map(|mode| mode.id.clone());
        assert_eq!(goes("a", "b"), Ok("b".into()));
        assert_eq!(goes("a", "a"), Ok("a".into()));
        assert_eq!(goes("b", "c"), Ok("c".into()));
        let error = |from, to| goes(from, to).unwrap_err().to_string();
        assert_eq!(error("a", "c"), "cannot switch from mode \"a\" to \"c\"; allowed: b");
        assert_eq!(error("c", "a"), "cannot switch from mode \"c\" to \"a\"; allowed: none");
        assert_eq!(error("a", "d"), "unknown mode \"d\"; available: a, b, c");
    }

    #[test]
    fn a_plan_is_carried_out_in_the_mode_after_planning() {
        let after = |list, from: &str| {
            let modes = modes(list).unwrap();
            modes.after_plan(modes.get(from).unwrap()).map(|mode| mode.id.clone())
        };
        assert_eq!(after(json!([{"id": "a"}, {"id": "plan"}]), "plan"), Some("a".into()));
        assert_eq!(after(json!([{"id": "plan"}, {"id": "b"}]), "plan"), Some("b".into()));
        assert_eq!(after(json!([{"id": "a"}, {"id": "b"}]), "b"), None);
        let review = json!([{"id": "plan"}, {"id": "review", "read_only": true}, {"id": "build"}]);
        assert_eq!(after(review, "plan"), Some("build".into()));
        assert_eq!(after(json!([{"id": "plan"}]), "plan"), None);
        let led = json!([{"id": "a"}, {"id": "b"}, {"id": "plan", "transitions_to": ["b"]}]);
        assert_eq!(after(led, "plan"), Some("b".into()));
        assert_eq!(after(json!([{"id": "a"}, {"id": "plan", "transitions_to": []}]), "plan"), None);
    }

    #[test]
    fn a_mode_determines_its_tools() {
        let tools = |mode: Value, other: Value| {
            let modes = modes(json!([mode, other])).unwrap();
            modes.tools(modes.first(), ["read", "write", "shell"].into_iter())
        };
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let other = json!({"id": "o"});
        assert_eq!(tools(json!({"id": "a"}), other.clone()), None);
        assert_eq!(tools(json!({"id": "a", "tools": ["read"]}), other.clone()), list(&["read"]));
        assert_eq!(tools(json!({"id": "a", "available_tools": []}), other.clone()), list(&[]));
        assert_eq!(
            tools(
                json!({"id": "a", "tools": ["write", "read"], "available_tools": ["read", "shell"]}),
                other
            ),
            list(&["read"])
        );
        let other = json!({"id": "o", "additional_tools": ["shell"]});
        assert_eq!(tools(json!({"id": "a"}), other.clone()), list(&["read", "write"]));
        assert_eq!(tools(json!({"id": "a", "tools": ["shell"]}), other.clone()), list(&["shell"]));
        assert_eq!(
            tools(json!({"id": "a", "additional_tools": ["shell"]}), other),
            list(&["read", "write", "shell"])
        );
    }
}
