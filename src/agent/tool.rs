//! The traits that define a tool.

use super::{ToolContext, ToolError};
use crate::types::{
    BoxError, Category, DenyReason, Effect, Invalid, Owner, Spawned, ToolOutcome, ToolSpec, WaitKind,
    WorkspaceOwner, json,
};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::time::Duration;

/// A capability that the model can call.
///
/// ```
/// use edge_harness::agent::{Tool, ToolContext, ToolError};
/// use edge_harness::types::{Category, Effect};
///
/// /// Rolls dice.
/// struct Dice;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Roll {
///     /// How many sides each die has.
///     sides: u32,
/// }
///
/// impl Tool for Dice {
///     type Args = Roll;
///     type Output = u32;
///     const NAME: &'static str = "dice";
///     const DESCRIPTION: &'static str = "Rolls one die.";
///     const EFFECT: Effect = Effect::ReadOnly;
///     const CATEGORY: Category = Category::Read;
///
///     async fn run(&self, args: Roll, cx: ToolContext) -> Result<u32, ToolError> {
///         if args.sides == 0 {
///             return Err(ToolError::new("a die has at least one side"));
///         }
///         Ok((cx.clock.now().0 % u64::from(args.sides)) as u32 + 1)
///     }
/// }
/// ```
#[allow(async_fn_in_trait, reason = "futures never leave their thread here")]
pub trait Tool: 'static {
    /// The arguments. The model sees their JSON schema, and calls are validated against it.
    type Args: DeserializeOwned + JsonSchema;
    /// The result.
    type Output: Serialize;

    /// The name: 1–64 characters of `A–Z a–z 0–9 _ -`.
    const NAME: &'static str;
    /// One or two sentences for the model.
    const DESCRIPTION: &'static str;
    /// The effect of a call. Defaults to the strictest kind.
    const EFFECT: Effect = Effect::Destructive;
    /// Whether running a call twice has the same effect as running it once.
    const IDEMPOTENT: bool = matches!(Self::EFFECT, Effect::ReadOnly | Effect::NetworkRead);
    /// Whether a call that timed out may be retried in the same turn.
    const RETRY_ON_TIMEOUT: bool = Self::IDEMPOTENT;
    /// Whether the same call may return a different result a moment later, as a clock does. Such a call is
    /// run again even after an equal one succeeded.
    const VARIES: bool = false;
    /// How long a call may take, within the deadline of the turn; `None` for the turn's limit of a tool call.
    const MAX_DURATION: Option<Duration> = None;
    /// The category for permission rules.
    const CATEGORY: Category = Category::Other;
    /// Whether the tool only controls the session; see [`ToolSpec::control`].
    const CONTROL: bool = false;
    /// What each call waits for before it runs. The call runs once the answer is available
    /// ([`ToolContext::answer`]), possibly days later and after an eviction.
    const SUSPENDS: Option<WaitKind> = None;

    /// Returns the resources that a call uses, such as a file or a host. Reads that share a key never run
    /// concurrently. Defaults to the tool's name; an empty list conflicts with no read.
    fn resource_keys(&self, _args: &Self::Args) -> Vec<String> {
        vec![Self::NAME.to_owned()]
    }

    /// Builds the payload shown to the person or client that answers the call. `None` shows the arguments.
    ///
    /// # Errors
    /// Ends the call without suspending it; the model reads the error.
    async fn suspension_payload(
        &self,
        _args: &Self::Args,
        _cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        Ok(None)
    }

    /// Validates an answer before it is accepted.
    ///
    /// # Errors
    /// What a valid answer looks like, for the sender.
    fn check_answer(&self, _args: &Self::Args, _answer: &Value) -> Result<(), Invalid> {
        Ok(())
    }

    /// Returns the payload of a suspended call as it is now, if it differs from `shown`, so that a person
    /// approves only what they have seen. The call then keeps waiting, with the new payload.
    ///
    /// # Errors
    /// The payload cannot be read at the moment.
    async fn changed_payload(
        &self,
        _answer: &Value,
        _shown: &Value,
        _owner: &Owner,
    ) -> Result<Option<Value>, BoxError> {
        Ok(None)
    }

    /// Runs the call. After a timeout or an abort the future keeps running for a limited time with its write
    /// gate closed, and is then dropped.
    ///
    /// # Errors
    /// A failure that the model reads.
    async fn run(&self, args: Self::Args, cx: ToolContext) -> Result<Self::Output, ToolError>;
}

/// A type-erased [`Tool`]: JSON in, outcome out. Implemented for every [`Tool`]; implement it directly only
/// for tools that are not known at compile time.
///
/// ```
/// use edge_harness::agent::{DynTool, ToolContext};
/// use edge_harness::testkit::TestSession;
/// use edge_harness::types::{Category, Effect, Invalid, ToolOutcome, ToolSpec};
/// use futures::future::LocalBoxFuture;
/// use serde_json::{Value, json};
/// use std::rc::Rc;
///
/// /// Returns the same result for each call.
/// struct Fixed(ToolSpec, Value);
///
/// impl DynTool for Fixed {
///     fn spec(&self) -> ToolSpec { self.0.clone() }
///     fn check(&self, _args: &Value) -> Result<Vec<String>, Invalid> { Ok(vec![self.0.name.clone()]) }
///
///     fn call<'a>(&'a self, _args: Value, _cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
///         Box::pin(async move { ToolOutcome::Result { result: self.1.clone() } })
///     }
/// }
///
/// let spec = ToolSpec {
///     name: "answer".into(), description: "Returns the answer.".into(), parameters: json!({"type": "object"}).into(),
///     effect: Effect::ReadOnly, category: Category::Read, idempotent: true,
///     client_may_repeat: false, retry_on_timeout: true, varies: false, control: false, suspends: None,
/// };
/// let session = TestSession::new(|agent| agent.dyn_tool(Rc::new(Fixed(spec, json!(42)))));
/// assert_eq!(session.ask("/tool answer {}"), "answer → 42");
/// ```
pub trait DynTool {
    /// Returns the specification of the tool.
    fn spec(&self) -> ToolSpec;

    /// Validates `args` and returns the call's resource keys; see [`Tool::resource_keys`].
    ///
    /// # Errors
    /// What is wrong and where, for the model.
    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid>;

    /// Returns how long a call may take; see [`Tool::MAX_DURATION`].
    fn max_duration(&self) -> Option<Duration> {
        None
    }

    /// Returns whether a call runs here, on the server, although the calls of the tool are suspended
    /// ([`ToolSpec::suspends`]). It then runs like a call of a tool that never suspends.
    fn runs_here(&self, _args: &Value, _workspace: &WorkspaceOwner) -> bool {
        false
    }

    /// Returns whether an answered call does nothing but return the answer, so that it may run again after a crash.
    fn only_returns_answers(&self) -> bool {
        false
    }

    /// Returns the kind of subagent to which a call gives a task; `None` for all other tools, and for a copy of the session.
    /// `spawned` are the subagents that can be sent further tasks.
    fn subagent_kind(&self, _args: &Value, _spawned: &[Spawned]) -> Option<String> {
        None
    }

    /// Builds the payload of a suspended call; see [`Tool::suspension_payload`].
    ///
    /// # Errors
    /// The outcome of the call, which is then not suspended.
    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        _cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        ready(Ok(args)).boxed_local()
    }

    /// Validates an answer before it is accepted. `shown` is the payload of the suspension.
    ///
    /// # Errors
    /// What a valid answer looks like, for the sender.
    fn check_answer(&self, _args: &Value, _shown: &Value, _answer: &Value) -> Result<(), Invalid> {
        Ok(())
    }

    /// Returns the payload of a suspended call as it is now; see [`Tool::changed_payload`].
    fn changed_payload<'a>(
        &'a self,
        _answer: &'a Value,
        _shown: &'a Value,
        _owner: &'a Owner,
    ) -> LocalBoxFuture<'a, Result<Option<Value>, BoxError>> {
        ready(Ok(None)).boxed_local()
    }

    /// Runs a call with valid arguments.
    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome>;
}

impl<T: Tool> DynTool for T {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: T::NAME.to_owned(),
            description: T::DESCRIPTION.to_owned(),
            parameters: parameters(T::Args::json_schema).into(),
            effect: T::EFFECT,
            idempotent: T::IDEMPOTENT,
            retry_on_timeout: T::RETRY_ON_TIMEOUT,
            varies: T::VARIES,
            category: T::CATEGORY,
            control: T::CONTROL,
            suspends: T::SUSPENDS,
            client_may_repeat: false,
        }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        read::<T::Args>(args.clone()).map(|args| self.resource_keys(&args))
    }

    fn max_duration(&self) -> Option<Duration> {
        T::MAX_DURATION
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        // A compile-time constant, so that no code is generated for tools that never suspend.
        if T::SUSPENDS.is_none() {
            return ready(Ok(args)).boxed_local();
        }
        async move {
            let fit = read::<T::Args>(args.clone());
            let fit = fit.map_err(|reason| ToolOutcome::denied(DenyReason::Validation, reason))?;
            let payload = Tool::suspension_payload(self, &fit, &cx).await.map_err(failed)?;
            Ok(payload.unwrap_or(args))
        }
        .boxed_local()
    }

    fn check_answer(&self, args: &Value, _shown: &Value, answer: &Value) -> Result<(), Invalid> {
        read::<T::Args>(args.clone()).and_then(|args| Tool::check_answer(self, &args, answer))
    }

    fn changed_payload<'a>(
        &'a self,
        answer: &'a Value,
        shown: &'a Value,
        owner: &'a Owner,
    ) -> LocalBoxFuture<'a, Result<Option<Value>, BoxError>> {
        // As in `suspension_payload`.
        if T::SUSPENDS.is_none() {
            return ready(Ok(None)).boxed_local();
        }
        Tool::changed_payload(self, answer, shown, owner).boxed_local()
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        match read::<T::Args>(args) {
            Ok(args) => outcome_of(
                async move {
                    let output = self.run(args, cx).await.map_err(failed)?;
                    serde_json::to_string(&output).map_err(|error| {
                        ToolOutcome::failure(format!("the tool's result cannot be written as JSON: {error}"))
                    })
                }
                .boxed_local(),
            )
            .boxed_local(),
            Err(reason) => ready(ToolOutcome::denied(DenyReason::Validation, reason)).boxed_local(),
        }
    }
}

/// Converts a tool's JSON to an outcome. Outside the generic impl, so that it is compiled once.
async fn outcome_of(run: LocalBoxFuture<'_, Result<String, ToolOutcome>>) -> ToolOutcome {
    let text = match run.await {
        Ok(text) => text,
        Err(outcome) => return outcome,
    };
    match serde_json::from_str(&text) {
        Ok(result) if !json::too_deep(&result) => ToolOutcome::Result { result },
        // Deeper values could be stored but not parsed again.
        _ => ToolOutcome::Result { result: Value::String(text) },
    }
}

fn failed(error: ToolError) -> ToolOutcome {
    ToolOutcome::Failure { reason: error.message, retryable: error.retryable }
}

/// Returns the JSON schema of a tool's arguments, for providers.
fn parameters(args: fn(&mut SchemaGenerator) -> Schema) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut parameters = args(&mut generator).to_value();
    if let Some(schema) = parameters.as_object_mut() {
        schema.remove("title");
        // Providers require an object.
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| Map::new().into());
        // Recursive types cannot be inlined.
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema.insert("$defs".to_owned(), definitions.into());
        }
    }
    parameters
}

fn read<A: DeserializeOwned>(args: Value) -> Result<A, Invalid> {
    json::from_value(args).map_err(|error| Invalid(format!("the arguments do not match the schema: {error}")))
}
