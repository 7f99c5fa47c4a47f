//! Adds facts, and turns of past conversations, to the memory of a user with an agent.

use crate::http::gateway::TenantCall;
use crate::http::response::{self, Response};
use crate::http::{body, idempotency, owner};
use crate::memory::{
    NewTurn,
    facts::{self, MAX_FACT, NewFact},
};
use crate::types::{FactId, FieldError, Problem, SessionId, Timestamp};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// Facts or turns of one request.
const MAX_ITEMS: usize = 1_000;
/// Longest id that a caller may choose, in bytes.
const MAX_ID: usize = 256;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewFacts")]
pub(in crate::http) struct Facts {
    /// The user, if you authenticate with a key.
    user: Option<String>,
    /// The agent.
    agent: Option<String>,
    /// The facts.
    #[schemars(length(min = 1, max = 1000))]
    facts: Vec<Fact>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewFact")]
struct Fact {
    /// The id; a new one if absent.
    id: Option<String>,
    /// The fact, on one line.
    text: String,
    /// When it was said; now if absent.
    ts: Option<Timestamp>,
    /// The session in which it was said.
    session: Option<String>,
    /// Who said it.
    speaker: Option<String>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ImportedTurns")]
pub(in crate::http) struct Turns {
    /// The user, if you authenticate with a key.
    user: Option<String>,
    /// The agent.
    agent: Option<String>,
    /// The conversation.
    session: String,
    /// Its turns.
    #[schemars(length(min = 1, max = 1000))]
    turns: Vec<Turn>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ImportedTurn")]
struct Turn {
    /// The id.
    id: String,
    /// When it was said; now if absent.
    ts: Option<Timestamp>,
    /// Who said it.
    speaker: String,
    /// What was said.
    text: String,
}

/// `POST /v1/memory`.
pub(in crate::http) async fn facts(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let body: Facts = body::json(call.request)?;
    let owner = owner::of_body(call, body.user, body.agent).await?;
    check_count("/facts", body.facts.len())?;
    let key = idempotency::key(call.request)?;
    let mut faults = Vec::new();
    let now = call.gateway.clock.now();
    let mut facts = Vec::with_capacity(body.facts.len());
    for (index, fact) in body.facts.into_iter().enumerate() {
        let place = format!("/facts/{index}");
        let text = facts::line(&fact.text);
        if text.is_empty() || fact.text.trim().chars().count() > MAX_FACT {
            faults.push(fault(&place, "text", format!("expected 1 to {MAX_FACT} characters")));
        }
        for (name, value) in [("id", &fact.id), ("session", &fact.session), ("speaker", &fact.speaker)] {
            check_id(&place, name, value.as_deref(), &mut faults);
        }
        if fact.id.as_ref().is_some_and(|id| id.starts_with(facts::LINE)) {
            faults.push(fault(&place, "id", format!("{} is reserved for lines of that file", facts::LINE)));
        }
        let at = fact.ts.unwrap_or(now);
        facts.push(NewFact {
            id: fact.id.unwrap_or_else(|| match key {
                // A repeated request gives the same ids, even if its first response was not stored.
                Some(key) => facts::id_of(&[key, &index.to_string()], &text),
                None => call.gateway.make_id::<FactId>().to_string(),
            }),
            text,
            at,
            session: fact.session.map(SessionId::from),
            speaker: fact.speaker,
        });
    }
    refuse(faults)?;
    let ids: Vec<String> = facts.iter().map(|fact| fact.id.clone()).collect();
    let added = call.gateway.memories.learn(&owner, facts).await?;
    response::json(StatusCode::CREATED, &json!({ "ids": ids, "added": added }))
}

/// `POST /v1/memory/turns`.
pub(in crate::http) async fn turns(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let body: Turns = body::json(call.request)?;
    let owner = owner::of_body(call, body.user, body.agent).await?;
    check_count("/turns", body.turns.len())?;
    let mut faults = Vec::new();
    check_id("", "session", Some(&body.session), &mut faults);
    let now = call.gateway.clock.now();
    let mut turns = Vec::with_capacity(body.turns.len());
    for (index, turn) in body.turns.into_iter().enumerate() {
        let place = format!("/turns/{index}");
        check_id(&place, "id", Some(&turn.id), &mut faults);
        check_id(&place, "speaker", Some(&turn.speaker), &mut faults);
        let Turn { id, ts, speaker, text } = turn;
        turns.push(NewTurn { id, speaker: Some(speaker), at: ts.unwrap_or(now), text });
    }
    refuse(faults)?;
    let ids: Vec<String> = turns.iter().map(|turn| turn.id.clone()).collect();
    let added = call.gateway.memories.import(&owner, &body.session.into(), turns).await?;
    response::json(StatusCode::CREATED, &json!({ "ids": ids, "added": added }))
}

fn check_count(pointer: &str, items: usize) -> Result<(), Problem> {
    if (1..=MAX_ITEMS).contains(&items) {
        return Ok(());
    }
    Err(Problem::field(pointer, format!("expected 1 to {MAX_ITEMS} items, found {items}")))
}

fn check_id(place: &str, name: &str, value: Option<&str>, faults: &mut Vec<FieldError>) {
    let fits = |value: &str| (1..=MAX_ID).contains(&value.len()) && !value.chars().any(char::is_control);
    if !value.is_none_or(fits) {
        faults.push(fault(place, name, format!("expected 1 to {MAX_ID} bytes without control characters")));
    }
}

fn fault(place: &str, name: &str, detail: String) -> FieldError {
    FieldError { pointer: format!("{place}/{name}"), detail }
}

/// Refuses the request if there are faults; its detail is the first of them.
fn refuse(faults: Vec<FieldError>) -> Result<(), Problem> {
    let Some(first) = faults.first() else { return Ok(()) };
    Err(Problem { errors: faults.clone(), ..Problem::field(first.pointer.clone(), first.detail.clone()) })
}
