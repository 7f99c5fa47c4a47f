//! Turns: post a message, steer, abort, dequeue.

use super::{
    Handler, MAX_OBJECT_BYTES, SessionRequest, feed,
    follow::{self, Follow, Wants},
    idempotency_document, not_of_a_subagent, replayed,
    resource::named_user,
};
use crate::agent::{OnBusy, Post};
use crate::http::{ApiResponse, body, idempotency};
use crate::session::{
    Session,
    hub::Interest,
    idempotency::{Answer, FirstAnswer, document, find},
    view::TurnAnswer,
};
use crate::turn::schema;
use crate::types::{BudgetPatch, Cursor, Part, Problem, Thinking, TurnOptions, TurnStatus, id};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, rc::Rc};

/// Most parts of a message.
const MAX_PARTS: usize = 100;
/// Most of them that are files.
const MAX_FILES: usize = 20;

#[derive(Deserialize)]
pub(super) struct MessageBody {
    content: Option<String>,
    parts: Option<Vec<Value>>,
    role: Option<String>,
    pub(super) user: Option<String>,
    on_busy: Option<OnBusy>,
    budget: Option<BudgetPatch>,
    tools: Option<Vec<String>>,
    think: Option<Thinking>,
    show_citations: Option<bool>,
    output_schema: Option<Value>,
}

impl Handler {
    /// Accepts a message and answers in the way the caller wants. `on_busy` overrides the body's.
    pub(super) async fn post_message(
        &self,
        call: &SessionRequest,
        on_busy: Option<OnBusy>,
    ) -> Result<ApiResponse, Problem> {
        let body: MessageBody = body::json(&call.request)?;
        let named = named_user(&call.request, body.user.clone());
        let session = self.find(call, named.as_deref())?;
        let wants = Wants::of(&call.request);
        let key = idempotency::key(&call.request)?;
        let body_hash = key.map(|_| idempotency::body_hash(&call.request.body));
        if let (Some(key), Some(hash), Some(session)) = (key, &body_hash, &session)
            && let Some(first) = find(session, &idempotency_document(call, key), self.host.now())?
        {
            return self.again(session, wants, first, hash);
        }

        session.as_deref().map_or(Ok(()), not_of_a_subagent)?;
        let turn = self.host.new_id(id::TURN);
        let receipt = json!({"turn_id": turn, "status": TurnStatus::Running}).to_string();
        let mut post = self.checked_post(body, session.as_ref(), &turn, on_busy)?;
        if let (Some(key), Some(body_hash)) = (key, body_hash) {
            let answer = match wants {
                Wants::Receipt => Answer::Json(202, receipt.clone()),
                _ => Answer::Turn(turn.clone()),
            };
            let first = FirstAnswer { body_hash, at: self.host.now(), answer };
            post.document = Some((idempotency_document(call, key), document(&first)?));
        }
        // No await from here to the post: what was just looked up still holds. Whoever wants to
        // hear the turn listens before it starts, so that nothing needs to be read back.
        let session = match session {
            Some(session) => session,
            None => self.host.blank(self.new_meta(call, named)?),
        };
        let follow = Follow::new(&self.host, &session, &turn, wants);
        self.host.post(&session, post)?;
        if wants == Wants::Receipt {
            return Ok(follow::receipt(&call.session, &turn, receipt));
        }
        follow.answer(&session).await
    }

    /// Answers a repetition: the turn's own answer, or the receipt that was given.
    fn again(
        &self,
        session: &Rc<Session>,
        wants: Wants,
        first: FirstAnswer,
        body_hash: &str,
    ) -> Result<ApiResponse, Problem> {
        if first.body_hash != body_hash {
            return Err(idempotency::reused());
        }
        let turn = match first.answer {
            Answer::Json(status, body) => return Ok(replayed(status, body)),
            Answer::Turn(turn) => turn,
        };
        let stands = session.turn(&turn)?.filter(|turn| turn.status != TurnStatus::Running);
        let Some(stands) = stands else { return Err(idempotency::in_progress()) };
        let response = match wants {
            Wants::Stream => {
                let interest = Interest { turn: Some(turn), until_idle: false };
                feed::sse(&self.host, session, Cursor::default(), interest)?
            }
            _ => ApiResponse::json(200, &TurnAnswer::from(stands))?,
        };
        Ok(response.with("idempotent-replayed", "true"))
    }

    fn checked_post(
        &self,
        body: MessageBody,
        session: Option<&Rc<Session>>,
        turn: &str,
        on_busy: Option<OnBusy>,
    ) -> Result<Post, Problem> {
        if body.role.is_some_and(|role| role != "user") {
            return Err(Problem::field("/role", "only messages of role `user` may be posted"));
        }
        let (parts, place) = match (body.content, body.parts) {
            (Some(text), None) => (vec![Part::Text { text }], "/content"),
            (None, Some(parts)) => (self.parts(session, &parts)?, "/parts"),
            (Some(_), Some(_)) => return Err(Problem::field("/parts", "send either `content` or `parts`")),
            (None, None) => return Err(Problem::field("/content", "missing: say what the message says")),
        };
        let is_file = |part: &Part| matches!(part, Part::File(_));
        if crate::types::message::text_of(&parts).is_empty() && !parts.iter().any(is_file) {
            return Err(Problem::field(place, "empty: say what the message says"));
        }
        let toolkit = self.host.agent().toolkit();
        if let Some((index, name)) =
            body.tools.iter().flatten().enumerate().find(|(_, name)| toolkit.get(name).is_none())
        {
            return Err(Problem::field(format!("/tools/{index}"), format!("no tool named {name:?}")));
        }
        body.output_schema.as_ref().map_or(Ok(()), can_be_held)?;
        let budget = body.budget.unwrap_or_default();
        self.has_price(session.map(Rc::as_ref), &budget)?;
        Ok(Post {
            turn: turn.to_owned(),
            parts,
            budget,
            options: TurnOptions {
                tools: body.tools,
                think: body.think,
                show_citations: body.show_citations.unwrap_or(true),
                output_schema: body.output_schema,
            },
            on_busy: on_busy.or(body.on_busy).unwrap_or_default(),
            document: None,
        })
    }

    /// The parts of a message: words, and files of the session.
    fn parts(&self, session: Option<&Rc<Session>>, parts: &[Value]) -> Result<Vec<Part>, Problem> {
        if parts.len() > MAX_PARTS {
            return Err(Problem::field("/parts", format!("expected at most {MAX_PARTS} parts")));
        }
        let is = |part: &Value, kind: &str| part.get("type").and_then(Value::as_str) == Some(kind);
        if parts.iter().filter(|part| is(part, "file")).count() > MAX_FILES {
            return Err(Problem::field("/parts", format!("expected at most {MAX_FILES} files")));
        }
        let mut files: BTreeMap<&str, Part> = BTreeMap::new();
        let mut read = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let text = |name: &str| part.get(name).and_then(Value::as_str);
            let fault = |name: &str, detail| Err(Problem::field(format!("/parts/{index}/{name}"), detail));
            read.push(match (text("type"), text("text"), text("ref")) {
                (Some("text"), Some(text), _) => Part::text(text),
                (Some("text"), None, _) => return fault("text", "expected a string"),
                (Some("file"), _, Some(id)) => match files.get(id) {
                    Some(known) => known.clone(),
                    None => {
                        let file = self.file_part(session, index, id)?;
                        files.entry(id).or_insert(file).clone()
                    }
                },
                (Some("file"), _, None) => return fault("ref", "expected the `ref` of an attachment"),
                _ => return fault("type", "expected \"text\" or \"file\""),
            });
        }
        Ok(read)
    }

    /// A bound in money that a turn would have needs a price: without one it would cost what it likes.
    fn has_price(&self, session: Option<&Session>, budget: &BudgetPatch) -> Result<(), Problem> {
        let (bound, model) = match session.map(Session::state) {
            Some(state) => (state.meta.budget.patched(budget).max_cost_usd, state.meta.model.clone()),
            None => (budget.max_cost_usd, None),
        };
        not_negative(budget)?;
        self.is_priced(bound, model.as_deref(), "/budget/max_cost_usd")
    }

    /// Whether a bound in money, if there is one, can be held with this model.
    pub(super) fn is_priced(
        &self,
        bound: Option<f64>,
        model: Option<&str>,
        pointer: &str,
    ) -> Result<(), Problem> {
        let models = self.host.agent().models();
        let model = model.map_or_else(|| models.default_model(), str::to_owned);
        if bound.is_some() && models.price(&model).is_none() {
            let detail = format!("there is no price for model {model:?}; set MODEL_PRICES");
            return Err(Problem::field(pointer, detail));
        }
        Ok(())
    }

    pub(super) async fn abort(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let turn = session.state().turn.as_ref().map(|turn| turn.id.clone());
        let statuses = self.host.cancel_children(&session).await;
        // A turn that started during the wait is not the one to abort.
        let is_meant = turn.as_ref().is_none_or(|turn| session.is_at_hand(turn));
        let aborted = is_meant && self.host.abort(&session, statuses)?;
        ApiResponse::json(
            200,
            &json!({"aborted": aborted, "turn_id": turn, "status": session.state().status()}),
        )
    }

    pub(super) async fn compact(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        ApiResponse::json(200, &self.host.compact(&session).await?)
    }

    pub(super) fn dequeue(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        if self.host.remove_queued(&session, &call.item)? {
            Ok(ApiResponse::empty(204))
        } else {
            Err(Problem::not_found("queued message"))
        }
    }
}

/// Whether a caller's bound in money is one.
pub(super) fn not_negative(budget: &BudgetPatch) -> Result<(), Problem> {
    if budget.max_cost_usd.is_some_and(|max| max < 0.0) {
        return Err(Problem::field("/budget/max_cost_usd", "expected 0 or more"));
    }
    Ok(())
}

/// Whether answers can be held to a caller's schema.
fn can_be_held(schema: &Value) -> Result<(), Problem> {
    if schema.to_string().len() > MAX_OBJECT_BYTES {
        return Err(Problem::field("/output_schema", format!("larger than {MAX_OBJECT_BYTES} bytes")));
    }
    schema::check(schema)
        .map_err(|misfit| Problem::field(format!("/output_schema{}", misfit.pointer), misfit.detail))
}
