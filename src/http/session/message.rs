//! Reads and checks the message that a client posts.

use super::call::Call;
use super::checks::{self, MAX_OBJECT_BYTES};
use crate::agent::{OnBusy, Post};
use crate::http::patch::object;
use crate::session::{Session, artifacts::ArtifactError};
use crate::turn::schema;
use crate::types::{ArtifactId, BudgetPatch, Part, Problem, Thinking, TurnId, TurnOptions, message::text_of};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// Most parts of a message.
const MAX_PARTS: usize = 100;
/// Maximum size of the text of a message, in bytes (1 MiB). A record with the text is read as a whole.
const MAX_TEXT: usize = 1 << 20;
/// Most parts of a message that are files.
const MAX_FILES: usize = 20;

#[derive(Deserialize)]
pub(super) struct MessageBody {
    content: Option<String>,
    parts: Option<Vec<Value>>,
    role: Option<String>,
    pub user: Option<String>,
    on_busy: Option<OnBusy>,
    #[serde(default, deserialize_with = "object")]
    budget: Option<BudgetPatch>,
    tools: Option<Vec<String>>,
    think: Option<Thinking>,
    show_citations: Option<bool>,
    output_schema: Option<Value>,
}

/// Checks a message for the session, or for a new session if there is none. `on_busy` overrides the body.
///
/// # Errors
/// `validation_failed`, or a failed store.
pub(super) fn checked_post(
    call: &Call<'_>,
    body: MessageBody,
    session: Option<&Rc<Session>>,
    turn: &TurnId,
    on_busy: Option<OnBusy>,
) -> Result<Post, Problem> {
    if body.role.is_some_and(|role| role != "user") {
        return Err(Problem::field("/role", "only messages of role `user` may be posted"));
    }
    let (parts, place) = match (body.content, body.parts) {
        (Some(text), None) => (vec![Part::Text { text }], "/content"),
        (None, Some(parts)) => (read_parts(call, session, &parts)?, "/parts"),
        (Some(_), Some(_)) => return Err(Problem::field("/parts", "send either `content` or `parts`")),
        (None, None) => return Err(Problem::field("/content", "missing: the text of the message")),
    };
    let is_file = |part: &Part| matches!(part, Part::File(_));
    let text = text_of(&parts);
    if text.len() > MAX_TEXT {
        let detail = format!("the text has {} bytes; expected at most {MAX_TEXT} (1 MiB)", text.len());
        return Err(Problem::field(place, detail));
    }
    if text.trim().is_empty() && !parts.iter().any(is_file) {
        return Err(Problem::field(place, "the message has no text and no file"));
    }
    let toolkit = call.host.agent().toolkit();
    let mut names = body.tools.iter().flatten().enumerate();
    if let Some((index, name)) = names.find(|(_, name)| toolkit.get(name).is_none()) {
        return Err(Problem::field(format!("/tools/{index}"), format!("no tool named {name:?}")));
    }
    let mut tools = body.tools;
    if let Some(names) = &mut tools {
        // They are part of the state, which each step stores.
        names.sort_unstable();
        names.dedup();
    }
    if let Some(schema) = &body.output_schema {
        check_schema(schema)?;
    }
    let budget = body.budget.unwrap_or_default();
    check_budget(call, session.map(Rc::as_ref), &budget)?;
    Ok(Post {
        turn: turn.clone(),
        parts,
        budget,
        options: TurnOptions {
            tools,
            think: body.think,
            show_citations: body.show_citations.unwrap_or(true),
            output_schema: body.output_schema,
        },
        on_busy: on_busy.or(body.on_busy).unwrap_or_default(),
        response: None,
        slot_until: None,
    })
}

/// Reads the parts of a message: text, and files of the session.
fn read_parts(call: &Call<'_>, session: Option<&Rc<Session>>, parts: &[Value]) -> Result<Vec<Part>, Problem> {
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
                    let file = file_part(call, session, index, &id.into())?;
                    files.entry(id).or_insert(file).clone()
                }
            },
            (Some("file"), _, None) => return fault("ref", "expected the `ref` of an attachment"),
            _ => return fault("type", "expected \"text\" or \"file\""),
        });
    }
    Ok(read)
}

/// Reads the part of a message that names a file of the session.
fn file_part(
    call: &Call<'_>,
    session: Option<&Rc<Session>>,
    index: usize,
    id: &ArtifactId,
) -> Result<Part, Problem> {
    // A session that does not exist yet has no files.
    let found = session.map_or(Err(ArtifactError::NotFound), |own| call.host.artifacts(own).find(id));
    match found {
        Ok(pointer) => Ok(Part::File(pointer.as_file())),
        Err(error @ ArtifactError::Store(_)) => Err(error.into()),
        Err(error) => Err(Problem::field(format!("/parts/{index}/ref"), error.to_string())),
    }
}

/// Checks the limit in money of a turn: the turn's own, or else the session's.
fn check_budget(call: &Call<'_>, session: Option<&Session>, budget: &BudgetPatch) -> Result<(), Problem> {
    let (limit, model) = match session.map(Session::state) {
        Some(state) => (state.meta.budget.patched(budget).max_cost_usd, state.meta.model.clone()),
        None => (budget.max_cost_usd, None),
    };
    checks::budget(call.host, budget)?;
    checks::priced(call.host, limit, model.as_deref(), "/budget/max_cost_usd")
}

/// Checks that replies can be validated against a client's schema.
fn check_schema(schema: &Value) -> Result<(), Problem> {
    if schema.to_string().len() > MAX_OBJECT_BYTES {
        return Err(Problem::field("/output_schema", format!("larger than {MAX_OBJECT_BYTES} bytes")));
    }
    schema::check(schema)
        .map_err(|misfit| Problem::field(format!("/output_schema{}", misfit.pointer), misfit.detail))
}
