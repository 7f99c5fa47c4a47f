//! The model of a run's session: responds with the calls that come next.

use super::call::{APPLY_PATCH, ARTIFACT, DIAGRAM, PLAN, Purpose, SHELL, SUBAGENT, WRITE};
use super::decision::Next;
use super::drawing::Drawing;
use super::fold::{Run, StepState};
use super::plan::{Plan, PlanSource, REPORT, Step, StepType};
use super::prompt;
use crate::ports::Model;
use crate::types::{
    FinishReason, Message, MessageId, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse,
    Part, Role, Timestamp, ToolCall, TurnId, Usage, message::text_of, subagent::GENERAL,
};
use futures::{
    FutureExt, StreamExt,
    stream::{self, LocalBoxStream},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, rc::Rc};

/// The model of one decision of a run. It asks the agent's model for plans, repairs and texts.
pub struct RunModel {
    /// The run, as of the decision.
    pub run: Rc<Run>,
    /// The agent's model.
    pub inner: Rc<dyn Model>,
    /// The tools that the session has.
    pub tools: Vec<String>,
    /// The tool that verifies changes, if the session has one.
    pub verify: Option<String>,
}

impl Model for RunModel {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let decision = Decision {
            run: Rc::clone(&self.run),
            inner: Rc::clone(&self.inner),
            tools: self.tools.clone(),
            verify: self.verify.clone(),
            request,
        };
        let events = decision.respond().map(|response| match response {
            Err(error) => vec![Err(error)],
            Ok(response) => {
                let is_text = |part: &Part| matches!(part, Part::Text { .. });
                let text = response.parts.iter().any(is_text).then(|| text_of(&response.parts));
                let text = text.map(|text| Ok(ModelEvent::Text(text)));
                text.into_iter().chain([Ok(ModelEvent::Done(response))]).collect()
            }
        });
        events.map(stream::iter).flatten_stream().boxed_local()
    }
}

/// A request to decide what comes next.
struct Decision {
    run: Rc<Run>,
    inner: Rc<dyn Model>,
    tools: Vec<String>,
    verify: Option<String>,
    request: ModelRequest,
}

impl Decision {
    async fn respond(self) -> Result<ModelResponse, ModelError> {
        let (run, mut usage) = (&self.run, Usage::default());
        if self.request.tools_off {
            // The last words of a turn that has reached a limit.
            return Ok(reply(run.report(), usage));
        }
        let has = |name: &str| self.tools.iter().any(|own| own == name);
        let calls: Vec<(Purpose, String, Value)> = match run.next(has, self.verify.is_some()) {
            Next::Context(tools) => {
                let args =
                    |tool: &str| if tool == "local_read" { json!({"path": "AGENTS.md"}) } else { json!({}) };
                tools.into_iter().map(|tool| (Purpose::Context, tool.to_owned(), args(tool))).collect()
            }
            Next::Plan => {
                let text = self.ask(prompt::plan(run, &self.tools), &mut usage).await?;
                let plan = Plan::find(&text, PlanSource::Model, &BTreeSet::new());
                vec![record(&plan.unwrap_or_else(Plan::fallback))]
            }
            Next::Repair(output) => {
                let text = self.ask(prompt::repair(run, output, &self.tools), &mut usage).await?;
                let taken = run.steps.iter().map(|own| own.step.id.as_str()).collect();
                let plan = Plan::find(&text, PlanSource::Repair, &taken);
                vec![record(&plan.unwrap_or(Plan { source: PlanSource::Repair, steps: Vec::new() }))]
            }
            Next::Steps(steps) => {
                let mut calls = Vec::with_capacity(steps.len());
                for step in steps {
                    calls.push(self.call_of(step, &mut usage).await?);
                }
                calls
            }
            Next::Draw(steps) => steps.into_iter().map(drawing).collect(),
            Next::Verify => {
                self.verify.clone().into_iter().map(|tool| (Purpose::Verify, tool, json!({}))).collect()
            }
            Next::Report => {
                vec![(Purpose::Report, ARTIFACT.to_owned(), json!({"name": REPORT, "content": run.report()}))]
            }
            Next::Finish => return Ok(reply(run.report(), usage)),
        };
        let numbered = (run.calls + 1..).zip(calls).map(|(n, (purpose, name, args))| {
            Part::ToolCall(ToolCall { call_id: purpose.call_id(&run.id, n), name, args, invalid: None })
        });
        Ok(ModelResponse { parts: numbered.collect(), usage, finish: FinishReason::ToolCalls })
    }

    /// Returns the call of a step.
    async fn call_of(&self, step: &Step, usage: &mut Usage) -> Result<(Purpose, String, Value), ModelError> {
        let (tool, args) = match step.kind {
            StepType::Command => (SHELL, json!({"command": step.command})),
            StepType::Patch if step.patch.is_some() => (APPLY_PATCH, json!({"patch": step.patch})),
            StepType::Patch => (WRITE, json!({"path": step.path, "content": step.content})),
            StepType::Agent => {
                let kind = step.agent.as_deref().unwrap_or(GENERAL);
                (SUBAGENT, json!({"agent": kind, "task": step.prompt}))
            }
            StepType::Note | StepType::Diagram | StepType::Model => {
                let content = match step.kind {
                    StepType::Model => self.ask(prompt::step(&self.run, step), usage).await?,
                    _ => step.content.clone().unwrap_or_default(),
                };
                (ARTIFACT, json!({"step": step.id, "name": step.file(), "content": content}))
            }
        };
        Ok((Purpose::Step(step.id.clone()), tool.to_owned(), args))
    }

    /// Asks the agent's model, and returns the text of its response.
    async fn ask(&self, text: String, usage: &mut Usage) -> Result<String, ModelError> {
        let message = Message {
            id: MessageId::from("run"),
            seq: 0,
            role: Role::User,
            parts: vec![Part::text(text)],
            created_at: Timestamp(0),
            turn: TurnId::none(),
            interrupted: false,
        };
        let request = ModelRequest {
            model: self.request.model.clone(),
            system: self.request.system.clone(),
            messages: vec![Rc::new(message)],
            max_output_tokens: self.request.max_output_tokens,
            thinking: self.request.thinking,
            tenant: self.request.tenant.clone(),
            tools_off: true,
            ..ModelRequest::default()
        };
        let mut events = self.inner.stream(request);
        while let Some(event) = events.next().await {
            if let ModelEvent::Done(response) = event? {
                *usage += response.usage;
                return Ok(text_of(&response.parts));
            }
        }
        Err(ModelError::new(ModelErrorKind::Cut, "the model's stream ended before the response was complete"))
    }
}

/// Returns the call that renders the diagram of a step, or stores what was rendered.
fn drawing(own: &StepState) -> (Purpose, String, Value) {
    let (tool, args) = match &own.drawing {
        Drawing::Rendered(svg) => {
            let mut args = svg.clone();
            args["name"] = json!(own.step.drawing());
            (ARTIFACT, args)
        }
        _ => (DIAGRAM, json!({ "diagram": own.step.content })),
    };
    (Purpose::Drawing(own.step.id.clone()), tool.to_owned(), args)
}

/// Returns the call that records a plan.
fn record(plan: &Plan) -> (Purpose, String, Value) {
    (Purpose::Plan, PLAN.to_owned(), json!(plan))
}

fn reply(text: String, usage: Usage) -> ModelResponse {
    ModelResponse { parts: vec![Part::text(text)], usage, finish: FinishReason::Stop }
}
