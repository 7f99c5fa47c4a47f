//! Validation of a session's state: the JSON object that callers, tools and intervals share.

use crate::turn::schema;
use crate::types::{FieldError, Invalid, json};
use serde_json::{Map, Value};

/// Maximum size of the state in bytes of JSON. It is rewritten at each commit.
pub const MAX_STATE: usize = 64 << 10;

/// The schema of the state, and its initial value.
pub struct StateRules {
    schema: Option<Value>,
    initial: Map<String, Value>,
}

/// The result of a change.
pub struct Merged {
    /// The state after the change.
    pub state: Map<String, Value>,
    /// The keys whose value changed.
    pub changed_keys: Vec<String>,
}

impl StateRules {
    /// Creates the rules from the deployment's settings.
    ///
    /// # Errors
    /// The malformed variable and the reason: the schema uses keywords that are not supported, or the initial
    /// state violates it.
    pub fn new(schema: Option<Value>, initial: Map<String, Value>) -> Result<Self, (&'static str, String)> {
        if let Some(schema) = &schema {
            schema::check(schema).map_err(|misfit| ("STATE_SCHEMA", misfit.to_string()))?;
        }
        let rules = Self { schema, initial };
        match rules.misfits(&rules.initial).into_iter().next() {
            None => Ok(rules),
            Some(misfit) => Err(("INITIAL_STATE", misfit.to_string())),
        }
    }

    /// Returns the state of a new session.
    pub fn initial(&self) -> &Map<String, Value> {
        &self.initial
    }

    /// Applies a change key by key; null removes a key. The change is applied completely or not at all.
    ///
    /// # Errors
    /// One entry for each violation, with pointers that start with `/state`.
    pub fn merge(
        &self,
        old: &Map<String, Value>,
        change: Map<String, Value>,
    ) -> Result<Merged, Vec<FieldError>> {
        let mut merged = Merged { state: old.clone(), changed_keys: Vec::new() };
        for (key, value) in change {
            let before = if value.is_null() {
                merged.state.remove(&key)
            } else {
                merged.state.insert(key.clone(), value.clone())
            };
            if before.unwrap_or_default() != value {
                merged.changed_keys.push(key);
            }
        }
        let misfits = self.misfits(&merged.state);
        if misfits.is_empty() || merged.changed_keys.is_empty() { Ok(merged) } else { Err(misfits) }
    }

    /// Sets one key; null removes it.
    ///
    /// # Errors
    /// All violations, in one line.
    pub fn set(&self, old: &Map<String, Value>, key: &str, value: Value) -> Result<Merged, Invalid> {
        self.merge(old, Map::from_iter([(key.to_owned(), value)])).map_err(|misfits| {
            let violations = misfits.iter().map(|field| format!("{}: {}", field.pointer, field.detail));
            Invalid(format!("invalid session state: {}", violations.collect::<Vec<_>>().join("; ")))
        })
    }

    fn misfits(&self, state: &Map<String, Value>) -> Vec<FieldError> {
        let state = Value::Object(state.clone());
        let whole = |detail: String| vec![FieldError { pointer: "/state".to_owned(), detail }];
        // Deeper values could be stored but not parsed again.
        if json::too_deep(&state) {
            return whole(format!("nested deeper than {} levels", json::MAX_DEPTH));
        }
        if state.to_string().len() > MAX_STATE {
            return whole(format!("the whole state would be larger than {MAX_STATE} bytes of JSON"));
        }
        let misfits = self.schema.iter().flat_map(|schema| schema::violations(schema, &state));
        misfits.map(|misfit| FieldError { pointer: format!("/state{}", misfit.pointer), ..misfit }).collect()
    }
}
