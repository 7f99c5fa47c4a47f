//! External tools: tools that clients run. A call is suspended until the client sends its result.

use super::{DynTool, ToolContext, object_schema, toolkit::is_tool_name};
use crate::types::{Category, Effect, Invalid, ToolOutcome, ToolSpec, WaitKind};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The declaration of an external tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ClientTool")]
pub struct Declared {
    /// The tool's name.
    pub name: String,
    /// Description for the model, in one or two sentences.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments; no arguments if absent.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The category for permission rules.
    #[serde(default)]
    pub category: Category,
    /// The effect; the strictest one if absent.
    #[serde(default)]
    pub effect: Effect,
    /// Whether running a call twice is equivalent to running it once. If a client claims the call of another tool and does
    /// not answer in time, the outcome of the call is `unknown`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

/// A tool that the client runs.
#[derive(Clone)]
pub struct ExternalTool(ToolSpec);

impl ExternalTool {
    /// Creates a tool that the client brings with a message. It counts as a part of the conversation: it runs unless a
    /// rule names it, because the client decides what it does.
    ///
    /// # Errors
    /// As for [`ExternalTool::new`]; also for an invalid name.
    pub fn of_client(declared: Declared) -> Result<ToolSpec, Invalid> {
        if !is_tool_name(&declared.name) {
            let why = "is reserved, or not a name of 1 to 64 of A-Z a-z 0-9 _ -";
            return Err(Invalid(format!("{:?} {why}", declared.name)));
        }
        Self::new(declared).map(|Self(spec)| ToolSpec { control: true, effect: Effect::ReadOnly, ..spec })
    }

    /// Returns the declaration of the tool.
    pub fn declared(&self) -> Declared {
        let ToolSpec {
            name, description, parameters, category, effect, client_may_repeat: idempotent, ..
        } = self.0.clone();
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        Declared { name, description, parameters, category, effect, idempotent }
    }

    /// Creates a tool from its declaration.
    ///
    /// # Errors
    /// The schema uses something that cannot be checked.
    pub fn new(declared: Declared) -> Result<Self, Invalid> {
        let Declared { name, description, parameters, category, effect, idempotent } = declared;
        let parameters = object_schema::complete(parameters).map_err(|misfit| {
            format!("the `parameters` of {name:?} at `{}`: {}", misfit.pointer, misfit.detail)
        })?;
        Ok(Self(ToolSpec {
            name,
            description,
            parameters: parameters.into(),
            effect,
            // A call here only returns the client's result, which may differ between equal calls.
            idempotent: true,
            retry_on_timeout: false,
            varies: true,
            category,
            control: false,
            suspends: Some(WaitKind::External),
            client_may_repeat: idempotent,
        }))
    }
}

impl From<ToolSpec> for ExternalTool {
    /// Creates a tool from a specification that [`ExternalTool::new`] has checked.
    fn from(spec: ToolSpec) -> Self {
        Self(spec)
    }
}

impl DynTool for ExternalTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        object_schema::check(&self.0.parameters, args)?;
        Ok(vec![self.0.name.clone()])
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        ready(match cx.answer {
            Some(result) => ToolOutcome::Result { result },
            None => ToolOutcome::failure("the client sent no result"),
        })
        .boxed_local()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn tool(declared: Value) -> Result<ExternalTool, Invalid> {
        ExternalTool::new(serde_json::from_value(declared).unwrap())
    }

    #[test]
    fn arguments_are_checked_against_the_declared_schema() {
        let lookup = tool(json!({
            "name": "lookup", "description": "Looks up a customer.", "effect": "network_read", "category": "mcp",
            "parameters": {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
        }))
        .unwrap();
        let spec = lookup.spec();
        assert_eq!((spec.effect, spec.category), (Effect::NetworkRead, Category::Mcp));
        assert_eq!((spec.suspends, &spec.parameters["type"]), (Some(WaitKind::External), &json!("object")));
        assert_eq!(lookup.check(&json!({"id": 7})), Ok(vec!["lookup".into()]));
        let error = lookup.check(&json!({"id": "x"})).unwrap_err();
        assert_eq!(error.0, "the arguments do not match the schema at `/id`: expected integer, found string");
    }

    #[test]
    fn undeclared_properties_default_to_the_strictest() {
        let spec = tool(json!({"name": "do", "description": "Does."})).unwrap().spec();
        assert_eq!((spec.effect, spec.category), (Effect::Destructive, Category::Other));
        assert_eq!(*spec.parameters, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn a_schema_that_cannot_be_checked_is_rejected() {
        let refused = |parameters: Value| {
            tool(json!({"name": "do", "description": "", "parameters": parameters})).err().unwrap()
        };
        let error = refused(json!({"properties": {"a": {"pattern": "^a"}}}));
        assert!(error.0.starts_with("the `parameters` of \"do\" at `/properties/a"), "{error}");
        assert!(refused(json!({"type": "array"})).0.contains("must be an object schema"));
    }
}
