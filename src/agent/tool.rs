//! What a tool is.

use super::ToolContext;
use crate::types::{Category, DenyReason, Effect, ToolOutcome, ToolSpec, WaitKind, json};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use thiserror::Error;

/// A failure that the model reads and may act upon.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ToolError {
    message: String,
    retryable: bool,
}

impl ToolError {
    /// A failure with words for the model, which may try again.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: true }
    }

    /// A failure that trying again cannot mend: the tool is closed for the rest of the turn.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false }
    }
}

/// A capability that the model may call.
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
    /// The arguments. Their JSON schema is what the model sees, and what calls are checked against.
    type Args: DeserializeOwned + JsonSchema;
    /// The answer.
    type Output: Serialize;

    /// The name: 1–64 of `A–Z a–z 0–9 _ -`.
    const NAME: &'static str;
    /// One or two sentences for the model.
    const DESCRIPTION: &'static str;
    /// What it may do. The strictest unless the tool says otherwise.
    const EFFECT: Effect = Effect::Destructive;
    /// Whether running it twice equals running it once.
    const IDEMPOTENT: bool = matches!(Self::EFFECT, Effect::ReadOnly | Effect::NetworkRead);
    /// Whether a call that did not answer in time may be tried again in the same turn.
    const RETRY_ON_TIMEOUT: bool = Self::IDEMPOTENT;
    /// Whether the same call may answer differently a moment later, such as a clock: it is not spared
    /// when an equal one has succeeded.
    const VARIES: bool = false;
    /// The group that permission rules know it by.
    const CATEGORY: Category = Category::Other;
    /// Whether it steers the session and touches nothing else; see [`ToolSpec::control`].
    const CONTROL: bool = false;
    /// What each of its calls waits for. It runs when the answer is there ([`ToolContext::answer`]), days later or
    /// in another machine.
    const SUSPENDS: Option<WaitKind> = None;

    /// What a call touches, such as a file or a host: reads with a key in common never overlap.
    /// Its name unless the tool says otherwise; nothing at all when empty.
    fn resource_keys(&self, _args: &Self::Args) -> Vec<String> {
        vec![Self::NAME.to_owned()]
    }

    /// What is shown to whoever is asked for the answer: the arguments, unless the tool says otherwise.
    ///
    /// # Errors
    /// Why nobody is asked; the model reads it.
    async fn suspension_payload(
        &self,
        _args: &Self::Args,
        _cx: &ToolContext,
    ) -> Result<Option<Value>, ToolError> {
        Ok(None)
    }

    /// Checks an answer before it is taken.
    ///
    /// # Errors
    /// What would fit, for whoever answers.
    fn check_answer(&self, _args: &Self::Args, _answer: &Value) -> Result<(), String> {
        Ok(())
    }

    /// Does it. When time is up or the turn is aborted, the future is let run for a while with its
    /// gate closed, then dropped.
    ///
    /// # Errors
    /// What the model should read about a failure.
    async fn run(&self, args: Self::Args, cx: ToolContext) -> Result<Self::Output, ToolError>;
}

/// A tool behind a pointer: JSON in, outcome out. Derived for every [`Tool`]; implemented by hand
/// only for tools that are not known at compile time.
pub trait DynTool {
    /// What it declares about itself.
    fn spec(&self) -> ToolSpec;

    /// Checks that `args` fit, and says what the call touches: reads with a key in common never
    /// overlap.
    ///
    /// # Errors
    /// What is wrong and where, for the model.
    fn check(&self, args: &Value) -> Result<Vec<String>, String>;

    /// What is shown to whoever is asked, where [`ToolSpec::suspends`] says that somebody is.
    ///
    /// # Errors
    /// The outcome, where nobody is asked.
    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        _cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        ready(Ok(args)).boxed_local()
    }

    /// Checks an answer before it is taken.
    ///
    /// # Errors
    /// What would fit, for whoever answers.
    fn check_answer(&self, _args: &Value, _answer: &Value) -> Result<(), String> {
        Ok(())
    }

    /// Runs a call whose arguments fit.
    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome>;
}

impl<T: Tool> DynTool for T {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: T::NAME.to_owned(),
            description: T::DESCRIPTION.to_owned(),
            parameters: parameters(T::Args::json_schema),
            effect: T::EFFECT,
            idempotent: T::IDEMPOTENT,
            retry_on_timeout: T::RETRY_ON_TIMEOUT,
            varies: T::VARIES,
            category: T::CATEGORY,
            control: T::CONTROL,
            suspends: T::SUSPENDS,
        }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, String> {
        read::<T::Args>(args.clone()).map(|args| self.resource_keys(&args))
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        // Known when this is compiled, so that the tools that nobody answers have no code for it.
        if T::SUSPENDS.is_none() {
            return ready(Ok(args)).boxed_local();
        }
        async move {
            let fit = read::<T::Args>(args.clone());
            let fit = fit.map_err(|reason| ToolOutcome::denied(DenyReason::Validation, reason))?;
            let posed = Tool::suspension_payload(self, &fit, &cx).await.map_err(failed)?;
            Ok(posed.unwrap_or(args))
        }
        .boxed_local()
    }

    fn check_answer(&self, args: &Value, answer: &Value) -> Result<(), String> {
        read::<T::Args>(args.clone()).and_then(|args| Tool::check_answer(self, &args, answer))
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        match read::<T::Args>(args) {
            Ok(args) => outcome_of(
                async move { self.run(args, cx).await.map(|answer| serde_json::to_string(&answer)) }
                    .boxed_local(),
            )
            .boxed_local(),
            Err(reason) => ready(ToolOutcome::denied(DenyReason::Validation, reason)).boxed_local(),
        }
    }
}

/// The outcome of a run that answers in JSON. Apart from the trait, of which each tool has a copy.
async fn outcome_of(
    run: LocalBoxFuture<'_, Result<Result<String, serde_json::Error>, ToolError>>,
) -> ToolOutcome {
    let text = match run.await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return ToolOutcome::failure(format!("the tool's answer is not JSON: {error}")),
        Err(error) => return failed(error),
    };
    match json::parse(text.as_bytes()) {
        Ok(result) if !json::too_deep(&result) => ToolOutcome::Result { result },
        // What is nested deeper could be stored, but not read again.
        _ => ToolOutcome::Result { result: Value::String(text) },
    }
}

fn failed(error: ToolError) -> ToolOutcome {
    ToolOutcome::Failure { reason: error.message, retryable: error.retryable }
}

/// The schema of a tool's arguments, for providers.
fn parameters(args: fn(&mut SchemaGenerator) -> Schema) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut parameters = args(&mut generator).to_value();
    if let Some(schema) = parameters.as_object_mut() {
        schema.remove("title");
        // Providers demand an object.
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| Map::new().into());
        // Of types that hold themselves, which cannot be inlined.
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema.insert("$defs".to_owned(), definitions.into());
        }
    }
    parameters
}

fn read<A: DeserializeOwned>(args: Value) -> Result<A, String> {
    json::from_value(args).map_err(|misfit| {
        format!("the arguments do not fit the schema at `{}`: {}", misfit.path(), misfit.detail())
    })
}
