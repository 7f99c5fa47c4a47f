//! The model of a run. Its response is a function of the request, so that it is the same again after a crash; only its
//! errors are temporary.

use super::{Piece, pieces};
use crate::{
    dice::Dice,
    ledger::Ledger,
    scenario::{RunScenario, StepPlan},
};
use edge_harness::ports::Model;
use edge_harness::types::{
    FinishReason, ModelError, ModelErrorKind, ModelEvent, ModelRequest, Part, message::text_of,
};
use futures::{
    StreamExt,
    stream::{LocalBoxStream, unfold},
};
use serde_json::json;
use std::{collections::VecDeque, rc::Rc};

/// The text of each model step.
pub const TEXT: &str = "What the model wrote.";

/// Plans, repairs, and writes texts.
pub struct Planner(pub Rc<Ledger>);

impl Model for Planner {
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
        let ledger = Rc::clone(&self.0);
        let asked: String = request.messages.last().map(|last| text_of(&last.parts)).unwrap_or_default();
        let response = respond(&ledger, &asked);
        unfold((response, ledger), |(mut response, ledger)| async move {
            let (pause, piece) = response.pop_front()?;
            ledger.sched.sleep(pause).await;
            Some((piece, (response, ledger)))
        })
        .boxed_local()
    }
}

fn respond(ledger: &Ledger, asked: &str) -> VecDeque<Piece> {
    let Some(run) = &ledger.scenario.run else { return VecDeque::new() };
    let mut dice =
        Dice::new(asked.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(131) ^ u64::from(byte)));
    let mut tries = ledger.tries.borrow_mut();
    let tried = tries.entry((asked.to_owned(), 0, false)).or_default();
    *tried += 1;
    if *tried <= run.troubles {
        let kind =
            dice.pick(&[ModelErrorKind::Cut, ModelErrorKind::Unavailable, ModelErrorKind::RateLimited]);
        return [(3, Err(ModelError::new(kind, "as planned")))].into();
    }
    let text = text(run, asked, &mut dice);
    ledger.say("model", || format!("responds {text}"));
    let pace = dice.pick(&[0, 5, 200]);
    pieces(vec![Part::Text { text }], pace, FinishReason::Stop).into()
}

fn text(run: &RunScenario, asked: &str, dice: &mut Dice) -> String {
    if asked.starts_with("Plan how to reach this goal") {
        if run.is_prose {
            return "I would look first.".into();
        }
        return json!({ "steps": run.steps.iter().map(StepPlan::json).collect::<Vec<_>>() }).to_string();
    }
    let Some((_, taken)) = asked.rsplit_once("These ids are taken: ") else { return TEXT.into() };
    let taken: Vec<&str> = taken.split(", ").collect();
    let id = (1..).map(|n| format!("r{n}")).find(|id| !taken.contains(&id.as_str()));
    match dice.below(4) {
        0 => "I cannot see why.".into(),
        _ => json!({ "steps": [{ "id": id, "title": "repair", "type": "command", "command": "repair" }] })
            .to_string(),
    }
}
