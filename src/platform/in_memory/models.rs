//! A model that says what a test scripts.

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

/// What one call of the model streams.
pub type Answer = Vec<Result<ModelEvent, ModelError>>;
type Script = Rc<dyn Fn(&ModelRequest) -> Answer>;

/// One model, `scripted/model`, that answers as a function of the request.
pub struct ScriptedModels {
    script: Script,
    requests: Rc<RefCell<Vec<ModelRequest>>>,
}

struct Scripted {
    script: Script,
    requests: Rc<RefCell<Vec<ModelRequest>>>,
}

impl ScriptedModels {
    /// A model that answers so.
    pub fn new(script: impl Fn(&ModelRequest) -> Answer + 'static) -> Self {
        Self { script: Rc::new(script), requests: Rc::default() }
    }

    /// What it was asked, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.borrow().clone()
    }
}

/// A whole answer, its text streamed in one piece for each part.
pub fn answer(parts: Vec<Part>) -> Answer {
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

/// A call, as a part of an answer.
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
        let answer = (self.script)(&request);
        self.requests.borrow_mut().push(request);
        stream::iter(answer).boxed_local()
    }
}
