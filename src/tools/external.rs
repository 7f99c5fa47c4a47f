//! Tools that clients run themselves: a call of one waits until its client brings the result.

use crate::agent::{DynTool, ToolContext};
use crate::turn::schema;
use crate::types::{Category, Effect, PendingKind, ToolOutcome, ToolSpec};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most misfits of arguments that the model is told.
const MAX_TOLD: usize = 8;

/// What is declared of such a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// One or two sentences for the model.
    pub description: String,
    /// JSON Schema of its arguments; none when absent.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The group that permission rules know it by.
    #[serde(default)]
    pub category: Category,
    /// What it may do. The strictest unless it is said.
    #[serde(default)]
    pub effect: Effect,
}

/// A tool that its client runs.
#[derive(Clone)]
pub struct ExternalTool(ToolSpec);

impl ExternalTool {
    /// A tool that is declared so.
    ///
    /// # Errors
    /// What its schema asks that cannot be checked, and where.
    pub fn new(declared: Declared) -> Result<Self, String> {
        let Declared { name, description, mut parameters, category, effect } = declared;
        // Providers demand an object.
        parameters.entry("type").or_insert_with(|| "object".into());
        parameters.entry("properties").or_insert_with(|| Map::new().into());
        if parameters.get("type").is_none_or(|kind| kind != "object") {
            return Err(format!("the `parameters` of {name:?} are no schema of an object"));
        }
        let parameters = Value::Object(parameters);
        schema::check(&parameters).map_err(|misfit| {
            format!("the `parameters` of {name:?} at `{}`: {}", misfit.pointer, misfit.detail)
        })?;
        Ok(Self(ToolSpec {
            name,
            description,
            parameters,
            effect,
            // What runs here only passes on what was brought. The same call may bring something else.
            idempotent: true,
            retry_on_timeout: false,
            varies: true,
            category,
            control: false,
            suspends: Some(PendingKind::External),
        }))
    }
}

impl DynTool for ExternalTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, String> {
        let misfits = schema::misfits(&self.0.parameters, args);
        if misfits.is_empty() {
            return Ok(vec![self.0.name.clone()]);
        }
        let told =
            misfits.iter().take(MAX_TOLD).map(|misfit| format!("`{}`: {}", misfit.pointer, misfit.detail));
        Err(format!("the arguments do not fit the schema at {}", told.collect::<Vec<_>>().join("; ")))
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        ready(match cx.answer {
            Some(result) => ToolOutcome::Result { result },
            None => ToolOutcome::failure("nobody has brought a result"),
        })
        .boxed_local()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::json;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn tool(declared: Value) -> Result<ExternalTool, String> {
        ExternalTool::new(json::from_value(declared).unwrap())
    }

    #[test]
    fn arguments_are_held_to_the_declared_schema() {
        let lookup = tool(json!({
            "name": "lookup", "description": "Looks up a customer.", "effect": "network_read", "category": "mcp",
            "parameters": {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
        }))
        .unwrap();
        let spec = lookup.spec();
        assert_eq!((spec.effect, spec.category), (Effect::NetworkRead, Category::Mcp));
        assert_eq!(
            (spec.suspends, &spec.parameters["type"]),
            (Some(PendingKind::External), &json!("object"))
        );
        assert_eq!(lookup.check(&json!({"id": 7})), Ok(vec!["lookup".into()]));
        let told = lookup.check(&json!({"id": "x"})).unwrap_err();
        assert_eq!(told, "the arguments do not fit the schema at `/id`: expected integer, found string");
    }

    #[test]
    fn what_is_not_declared_is_the_strictest() {
        let spec = tool(json!({"name": "do", "description": "Does."})).unwrap().spec();
        assert_eq!((spec.effect, spec.category), (Effect::Destructive, Category::Other));
        assert_eq!(spec.parameters, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn a_schema_that_cannot_be_checked_is_refused() {
        let refused = |parameters: Value| {
            tool(json!({"name": "do", "description": "", "parameters": parameters})).err().unwrap()
        };
        let told = refused(json!({"properties": {"a": {"pattern": "^a"}}}));
        assert!(told.starts_with("the `parameters` of \"do\" at `/properties/a"), "{told}");
        assert!(refused(json!({"type": "array"})).contains("no schema of an object"));
    }
}
