//! What the callers' own state of a session must be like, whoever changes it.

use crate::turn::schema;
use crate::types::{FieldError, json};
use serde_json::{Map, Value};

/// Most bytes of it, as JSON: it is written at each commit.
pub const MAX_STATE: usize = 64 << 10;

/// The rules, and what new sessions begin with.
pub struct StateRules {
    schema: Option<Value>,
    initial: Map<String, Value>,
}

/// What a change comes to.
pub struct Merged {
    /// The state with it.
    pub state: Map<String, Value>,
    /// The keys that it changes.
    pub changed_keys: Vec<String>,
}

impl StateRules {
    /// # Errors
    /// Which variable is malformed, and how: the schema asks for what we cannot check, or the beginning does not fit it.
    pub(super) fn new(
        schema: Option<Value>,
        initial: Map<String, Value>,
    ) -> Result<Self, (&'static str, String)> {
        if let Some(schema) = &schema {
            schema::check(schema)
                .map_err(|misfit| ("STATE_SCHEMA", format!("{} at {:?}", misfit.detail, misfit.pointer)))?;
        }
        let rules = Self { schema, initial };
        match rules.misfits(&rules.initial).into_iter().next() {
            None => Ok(rules),
            Some(FieldError { pointer, detail }) => Err(("INITIAL_STATE", format!("{pointer}: {detail}"))),
        }
    }

    /// What new sessions begin with.
    pub fn initial(&self) -> &Map<String, Value> {
        &self.initial
    }

    /// Merges a change key by key; null removes a key. All of it holds, or nothing.
    ///
    /// # Errors
    /// What would not be as it must, with pointers that begin with `/state`.
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

    fn misfits(&self, state: &Map<String, Value>) -> Vec<FieldError> {
        let state = Value::Object(state.clone());
        let whole = |detail: String| vec![FieldError { pointer: "/state".to_owned(), detail }];
        // What is nested deeper could be stored, but not read again.
        if json::too_deep(&state) {
            return whole(format!("nested deeper than {} levels", json::MAX_DEPTH));
        }
        if state.to_string().len() > MAX_STATE {
            return whole(format!("the whole state would be larger than {MAX_STATE} bytes of JSON"));
        }
        let misfits = self.schema.iter().flat_map(|schema| schema::misfits(schema, &state));
        let field = |misfit: schema::Misfit| FieldError {
            pointer: format!("/state{}", misfit.pointer),
            detail: misfit.detail,
        };
        misfits.map(field).collect()
    }
}
