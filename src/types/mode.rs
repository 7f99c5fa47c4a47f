//! Modes: what an agent is set to do in a session at the moment, and how it goes over from one to another.

use super::{Rules, id};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// The mode that plans are made in, where there is one of this name.
pub const PLAN: &str = "plan";

/// A way for an agent to work: other instructions, tools, rules, and perhaps another model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mode {
    /// Unique among the agent's modes.
    pub id: String,
    /// What people see.
    pub name: Option<String>,
    /// What people read about it.
    pub description: Option<String>,
    /// What stands behind the agent's instructions.
    pub instructions: Option<String>,
    /// The model of sessions that come into it for the first time, as `provider/model`.
    pub default_model: Option<String>,
    /// Exactly these tools, in place of the agent's.
    pub tools: Option<Vec<String>>,
    /// These tools beside the agent's. What some mode names here no other mode has unless it names it too.
    pub additional_tools: Option<Vec<String>>,
    /// Of all these, the ones that there are; all when absent.
    pub available_tools: Option<Vec<String>>,
    /// Where it may go over to; everywhere when absent.
    pub transitions_to: Option<Vec<String>>,
    /// Whether only what reads may run, and what steers the session.
    pub read_only: bool,
    /// Its rules.
    pub permissions: Rules,
    /// The deployment's own data.
    pub metadata: Map<String, Value>,
    /// Whether sessions start in it.
    pub default: bool,
}

impl Mode {
    /// Whether plans are made in it, and nothing is done.
    pub fn is_planning(&self) -> bool {
        self.read_only || self.id == PLAN
    }
}

/// Why modes do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the mode {mode:?}: {why}")]
pub struct ModeError {
    /// The mode.
    pub mode: String,
    /// What is wrong with it.
    pub why: String,
}

/// Why a session does not change its mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SwitchError {
    /// There is no such mode.
    #[error("there is no mode {to:?}; {}", there_are(known))]
    Unknown {
        /// What was asked for.
        to: String,
        /// The modes that there are.
        known: Vec<String>,
    },
    /// The mode that the session is in does not lead there.
    #[error("mode {from:?} does not go over to {to:?}; from it {}", there_are(allowed))]
    NotAllowed {
        /// Where the session is.
        from: String,
        /// What was asked for.
        to: String,
        /// Where it could go.
        allowed: Vec<String>,
    },
}

fn there_are(modes: &[String]) -> String {
    if modes.is_empty() { "there are none".into() } else { format!("there are {}", modes.join(", ")) }
}

/// The modes of an agent, which may have none.
#[derive(Clone, Debug, Default)]
pub struct Modes(Vec<Mode>);

impl Modes {
    /// Modes that fit together.
    ///
    /// # Errors
    /// Which one does not, and why.
    pub fn new(modes: Vec<Mode>) -> Result<Self, ModeError> {
        let modes = Self(modes);
        for (index, mode) in modes.0.iter().enumerate() {
            let wrong = |why: &str| Err(ModeError { mode: mode.id.clone(), why: why.to_owned() });
            if !id::is_valid(&mode.id) {
                return wrong("its id is not 1-128 of A-Z a-z 0-9 _ - . ~ : @");
            }
            if modes.0.iter().skip(index + 1).any(|other| other.id == mode.id) {
                return wrong("two have this id");
            }
            if mode.default && modes.0.iter().skip(index + 1).any(|other| other.default) {
                return wrong("it is the default, and another one is too");
            }
            if mode.tools.is_some() && mode.additional_tools.is_some() {
                return wrong("it has both `tools` and `additional_tools`");
            }
            if let Err((pointer, fault)) = mode.permissions.check() {
                return wrong(&format!("its permissions at {pointer:?}: {fault}"));
            }
            for to in mode.transitions_to.iter().flatten() {
                if *to == mode.id {
                    return wrong("`transitions_to` names itself");
                }
                if modes.get(to).is_none() {
                    return wrong(&format!("`transitions_to` names {to:?}, which is none"));
                }
            }
        }
        Ok(modes)
    }

    /// All of them, in the order in which they were given.
    pub fn all(&self) -> &[Mode] {
        &self.0
    }

    /// Finds one by its id.
    pub fn get(&self, id: &str) -> Option<&Mode> {
        self.0.iter().find(|mode| mode.id == id)
    }

    /// The same, for somebody who asks for it.
    ///
    /// # Errors
    /// That it is none, and which there are.
    pub fn find(&self, id: &str) -> Result<&Mode, SwitchError> {
        let known = || self.0.iter().map(|mode| mode.id.clone()).collect();
        self.get(id).ok_or_else(|| SwitchError::Unknown { to: id.to_owned(), known: known() })
    }

    /// The one that sessions start in: the one that says so, or the first.
    pub fn first(&self) -> Option<&Mode> {
        self.0.iter().find(|mode| mode.default).or(self.0.first())
    }

    /// The one that a session is in which has stored this. One that is not there any more counts as the first.
    pub fn current<'a>(&'a self, stored: Option<&str>) -> Option<&'a Mode> {
        stored.and_then(|id| self.get(id)).or_else(|| self.first())
    }

    /// The mode `to`, if a session that has stored `from` may go over to it. Staying is always allowed.
    ///
    /// # Errors
    /// Why it may not.
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

    /// Where a plan is carried out that was approved in `from`: where that leads to; or else, if `from` plans only,
    /// where sessions start, or the first that does not plan. `None` is `from` itself.
    pub fn after_plan(&self, from: &Mode) -> Option<&Mode> {
        match &from.transitions_to {
            Some(ids) => ids.first().and_then(|id| self.get(id)),
            None if from.is_planning() => {
                self.first().into_iter().chain(&self.0).find(|mode| !mode.is_planning())
            }
            None => None,
        }
    }

    /// The tools that a session in `mode` has of an agent's; `None` is all.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::json;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn modes(list: Value) -> Result<Modes, String> {
        Modes::new(json::from_value(list).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_that_do_not_fit_together_are_told() {
        for (list, told) in [
            (json!([{"id": "a"}, {"id": "a"}]), "\"a\": two have this id"),
            (json!([{"id": "a b"}]), "\"a b\": its id is not"),
            (json!([{"name": "a"}]), "\"\": its id is not"),
            (json!([{"id": "a", "tools": [], "additional_tools": []}]), "\"a\": it has both `tools` and"),
            (json!([{"id": "a", "transitions_to": ["a"]}]), "\"a\": `transitions_to` names itself"),
            (json!([{"id": "a", "transitions_to": ["b"]}]), "\"a\": `transitions_to` names \"b\", which is"),
            (json!([{"id": "a", "default": true}, {"id": "b", "default": true}]), "\"a\": it is the default"),
        ] {
            let error = modes(list).unwrap_err();
            assert!(error.starts_with(&format!("the mode {told}")), "{error}");
        }
        assert!(modes(json!([])).unwrap().first().is_none(), "an agent may have none");
    }

    #[test]
    fn sessions_start_where_it_is_said_or_in_the_first() {
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
    fn a_mode_leads_where_it_says() {
        let modes = modes(json!([
            {"id": "a", "transitions_to": ["b"]}, {"id": "b"}, {"id": "c", "transitions_to": []},
        ]))
        .unwrap();
        let goes = |from: &str, to: &str| modes.transition(Some(from), to).map(|mode| mode.id.clone());
        assert_eq!(goes("a", "b"), Ok("b".into()));
        assert_eq!(goes("a", "a"), Ok("a".into()));
        assert_eq!(goes("b", "c"), Ok("c".into()));
        let told = |from, to| goes(from, to).unwrap_err().to_string();
        assert_eq!(told("a", "c"), "mode \"a\" does not go over to \"c\"; from it there are b");
        assert_eq!(told("c", "a"), "mode \"c\" does not go over to \"a\"; from it there are none");
        assert_eq!(told("a", "d"), "there is no mode \"d\"; there are a, b, c");
    }

    #[test]
    fn a_plan_is_carried_out_where_its_mode_leads() {
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
    fn a_mode_has_the_tools_that_it_says() {
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
