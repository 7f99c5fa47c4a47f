//! A model scripted by a test.

use crate::ports::{Model, Models};
use crate::types::{
    FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, Part, ToolCall, Usage,
    message::text_of,
};
use futures::{
    StreamExt,
    stream::{self, LocalBoxStream},
};
use std::{cell::RefCell, rc::Rc};

/// The events of one model call.
pub type ScriptedResponse = Vec<Result<ModelEvent, ModelError>>;
type Script = Rc<dyn Fn(&ModelRequest) -> ScriptedResponse>;

/// A single model, `scripted/model`, whose response is a function of the request.
pub struct ScriptedModels {
    script: Script,
    requests: Rc<RefCell<Vec<ModelRequest>>>,
}

struct Scripted {
    script: Script,
    requests: Rc<RefCell<Vec<ModelRequest>>>,
}

impl ScriptedModels {
    /// Creates a model with this script.
    pub fn new(script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static) -> Self {
        Self { script: Rc::new(script), requests: Rc::default() }
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.borrow().clone()
    }
}

/// Returns a complete response. The text of each part is streamed as one event.
pub fn answer(parts: Vec<Part>) -> ScriptedResponse {
    let mut events = Vec::new();
    for part in &parts {
        if let Part::Text { text } = part {
            events.push(Ok(ModelEvent::Text(text.clone())));
        }
    }
    let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let finish = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
    let output_tokens = 1 + text_of(&parts).len() as u64;
    let usage = Usage { input_tokens: 1, output_tokens, total_tokens: output_tokens + 1, ..Usage::default() };
    events.push(Ok(ModelEvent::Done(ModelResponse { parts, usage, finish })));
    events
}

/// Returns a tool call, as a part of a response.
pub fn call(id: &str, name: &str, args: serde_json::Value) -> Part {
    Part::ToolCall(ToolCall { call_id: id.into(), name: name.into(), args, invalid: None })
}

impl Models for ScriptedModels {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        match id.split_once('/') {
            Some(("scripted", name)) => {
                let model = Scripted { script: self.script.clone(), requests: self.requests.clone() };
                Ok((Rc::new(model), name.to_owned()))
            }
            _ => Err(ModelError::new(ModelErrorKind::Invalid, format!("no model {id:?}"))),
        }
    }

    fn default_model(&self) -> String {
        "scripted/model".into()
    }
}

impl Model for Scripted {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let response = (self.script)(&request);
        self.requests.borrow_mut().push(request);
        stream::iter(response).boxed_local()
    }
}
