//! What agents remember of a user: found, added to, read, consolidated and forgotten.

use super::failure::Failure;
use super::front::Front;
use super::routes::{Found, MemoryRoute};
use super::{
    ApiRequest, ApiResponse, body, idempotency,
    owner::{self, owner},
};
use crate::memory::{
    NewTurn,
    consolidation::Consolidated,
    daily,
    facts::{self, MAX_FACT, NewFact},
    search::Hit,
};
use crate::ports::memory::{CollectionKind, Source};
use crate::types::{ErrorCode, FieldError, Owner, Principal, Problem, Timestamp, id};
use crate::workspace::layout::{DAILY, MEMORY};
use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

/// Facts or turns of one request.
const MAX_ITEMS: usize = 1_000;
/// Longest id that a caller may choose, in bytes.
const MAX_ID: usize = 256;
/// Longest query, in characters.
const MAX_QUERY: usize = 8_000;
/// Hits where nobody says how many.
const HITS: usize = 10;
const MAX_HITS: usize = 200;
/// Sessions that one request erases at most: each wakes an object.
const ERASED_AT_ONCE: usize = 100;

#[derive(Deserialize)]
struct SearchBody {
    q: String,
    user: Option<String>,
    agent: Option<String>,
    limit: Option<usize>,
    scope: Option<String>,
}

#[derive(Deserialize)]
struct FactsBody {
    user: Option<String>,
    agent: Option<String>,
    facts: Vec<FactBody>,
}

#[derive(Deserialize)]
struct FactBody {
    id: Option<String>,
    text: String,
    ts: Option<Timestamp>,
    session: Option<String>,
    speaker: Option<String>,
}

#[derive(Deserialize)]
struct TurnsBody {
    user: Option<String>,
    agent: Option<String>,
    session: String,
    turns: Vec<TurnBody>,
}

#[derive(Deserialize)]
struct TurnBody {
    id: String,
    ts: Option<Timestamp>,
    speaker: String,
    text: String,
}

#[derive(Deserialize)]
struct WhoseBody {
    user: Option<String>,
    agent: Option<String>,
}

impl Front {
    /// `/v1/memory` and everything below it.
    pub(super) async fn memory(
        &self,
        route: MemoryRoute,
        found: &Found,
        request: &ApiRequest,
        caller: &Principal,
    ) -> Result<ApiResponse, Failure> {
        match route {
            MemoryRoute::Search => self.search_memory(request, caller).await,
            MemoryRoute::Add => {
                self.once(request, &whom(request, caller), self.add_facts(request, caller).boxed_local())
                    .await
            }
            MemoryRoute::Import => {
                self.once(request, &whom(request, caller), self.import_turns(request, caller).boxed_local())
                    .await
            }
            MemoryRoute::Log => self.memory_log(found.param("date"), request, caller).await,
            MemoryRoute::Consolidate => {
                self.once(request, &whom(request, caller), self.consolidate(request, caller).boxed_local())
                    .await
            }
            MemoryRoute::Forget => self.forget_user(request, caller).await,
        }
    }

    async fn search_memory(&self, request: &ApiRequest, caller: &Principal) -> Result<ApiResponse, Failure> {
        let (search, at) = match request.method.as_str() {
            "POST" => (body::json(request)?, "/"),
            _ => (search_in_query(request)?, "?"),
        };
        let owner = owner(caller, search.user, search.agent, at)?;
        let kind = match search.scope.as_deref() {
            None | Some("facts") => CollectionKind::Facts,
            Some("sessions") => CollectionKind::Turns,
            Some(_) => {
                return Err(Problem::field(format!("{at}scope"), "expected `facts` or `sessions`").into());
            }
        };
        let limit = search.limit.unwrap_or(HITS);
        if !(1..=MAX_HITS).contains(&limit) {
            return Err(Problem::field(format!("{at}limit"), format!("expected 1 to {MAX_HITS}")).into());
        }
        if search.q.chars().count() > MAX_QUERY {
            return Err(
                Problem::field(format!("{at}q"), format!("expected at most {MAX_QUERY} characters")).into()
            );
        }
        let hits = self.memories.search(&owner, kind, &search.q, limit).await?;
        let hits: Vec<Value> = hits.iter().map(view).collect();
        Ok(ApiResponse::json(200, &json!({ "hits": hits }))?)
    }

    async fn add_facts(&self, request: &ApiRequest, caller: &Principal) -> Result<ApiResponse, Failure> {
        let body: FactsBody = body::json(request)?;
        let owner = owner::of_body(request, caller, body.user, body.agent)?;
        count("/facts", body.facts.len())?;
        let key = idempotency::key(request)?.map(str::to_owned);
        let mut wrong = Vec::new();
        let now = self.clock.now();
        let mut facts = Vec::with_capacity(body.facts.len());
        for (index, fact) in body.facts.into_iter().enumerate() {
            let place = format!("/facts/{index}");
            let text = facts::line(&fact.text);
            if text.is_empty() || fact.text.trim().chars().count() > MAX_FACT {
                wrong.push(field(&place, "text", format!("expected 1 to {MAX_FACT} characters")));
            }
            for (name, value) in [("id", &fact.id), ("session", &fact.session), ("speaker", &fact.speaker)] {
                check_id(&place, name, value.as_deref(), &mut wrong);
            }
            if fact.id.as_ref().is_some_and(|id| id.starts_with(facts::LINE)) {
                wrong.push(field(&place, "id", format!("{} is for lines of that file", facts::LINE)));
            }
            let at = fact.ts.unwrap_or(now);
            facts.push(NewFact {
                id: fact.id.unwrap_or_else(|| match &key {
                    // The same request again means the same fact, also where the first answer was lost.
                    Some(key) => facts::id_of(&[key, &index.to_string()], &text),
                    None => self.make_id(id::MEMORY),
                }),
                text,
                at,
                session: fact.session,
                speaker: fact.speaker,
            });
        }
        refuse(wrong)?;
        let ids: Vec<String> = facts.iter().map(|fact| fact.id.clone()).collect();
        let added = self.memories.learn(&owner, facts).await?;
        Ok(ApiResponse::json(201, &json!({ "ids": ids, "added": added }))?)
    }

    async fn import_turns(&self, request: &ApiRequest, caller: &Principal) -> Result<ApiResponse, Failure> {
        let body: TurnsBody = body::json(request)?;
        let owner = owner::of_body(request, caller, body.user, body.agent)?;
        count("/turns", body.turns.len())?;
        let mut wrong = Vec::new();
        check_id("", "session", Some(&body.session), &mut wrong);
        let now = self.clock.now();
        let mut turns = Vec::with_capacity(body.turns.len());
        for (index, turn) in body.turns.into_iter().enumerate() {
            let place = format!("/turns/{index}");
            check_id(&place, "id", Some(&turn.id), &mut wrong);
            check_id(&place, "speaker", Some(&turn.speaker), &mut wrong);
            let TurnBody { id, ts, speaker, text } = turn;
            turns.push(NewTurn { id, speaker, at: ts.unwrap_or(now), text });
        }
        refuse(wrong)?;
        let ids: Vec<String> = turns.iter().map(|turn| turn.id.clone()).collect();
        let added = self.memories.import(&owner, &body.session, turns).await?;
        Ok(ApiResponse::json(201, &json!({ "ids": ids, "added": added }))?)
    }

    async fn memory_log(
        &self,
        date: &str,
        request: &ApiRequest,
        caller: &Principal,
    ) -> Result<ApiResponse, Failure> {
        let owner = owner::of_query(request, caller)?;
        if !daily::is_day(date) {
            return Err(Problem::field("date", "expected a day as YYYY-MM-DD").into());
        }
        let day =
            self.memories.day(&owner, date).await?.ok_or_else(|| Problem::not_found("log of that day"))?;
        Ok(ApiResponse::bytes(200, "text/markdown; charset=utf-8", day)
            .with("x-content-type-options", "nosniff"))
    }

    async fn consolidate(&self, request: &ApiRequest, caller: &Principal) -> Result<ApiResponse, Failure> {
        let body: WhoseBody = body::json_or_empty(request)?;
        let owner = owner::of_body(request, caller, body.user, body.agent)?;
        match self.memories.consolidate(&owner).await {
            Ok(Consolidated::Done(facts)) => Ok(ApiResponse::json(200, &json!({ "facts": facts }))?),
            Ok(Consolidated::Busy) => {
                let detail = "this memory is being consolidated; ask again in a moment";
                Err(Problem::new(ErrorCode::MemoryBusy, detail).into())
            }
            Err(cause) => {
                let detail = "the memory could not be consolidated now; nothing is lost, try again";
                Err(Problem::unavailable(detail, cause).into())
            }
        }
    }

    /// Forgets a user everywhere: sessions first, so that none of them adds to what is removed behind them.
    async fn forget_user(&self, request: &ApiRequest, caller: &Principal) -> Result<ApiResponse, Failure> {
        let named = caller.user.clone().or_else(|| request.query("user"));
        let Some(user) = named else {
            return Err(Problem::field("?user", "say who is to be forgotten").into());
        };
        let Owner { tenant, user, .. } = owner(caller, Some(user), None, "?")?;
        let sessions =
            self.directory.sessions(&tenant, Some(&user), None, None, ERASED_AT_ONCE, true).await?;
        let more = sessions.len() == ERASED_AT_ONCE;
        for entry in sessions {
            let erased = self.eraser.erase(&tenant, &entry.id).await;
            erased
                .map_err(|cause| Problem::unavailable("a session cannot be erased now; try again", cause))?;
            self.directory.delete_session(&tenant, &entry.id).await?;
        }
        if more
            || !self.memories.erase(&tenant, Some(&user)).await?
            || !self.files.erase_user(&tenant, None, &user).await?
        {
            // As much as one request can do.
            return Ok(ApiResponse::json(
                202,
                &json!({ "status": "erasing", "detail": "ask again until the answer is 204" }),
            )?);
        }
        Ok(ApiResponse::empty(204))
    }
}

/// Who speaks for the answers that are kept under an Idempotency-Key.
fn whom(request: &ApiRequest, caller: &Principal) -> String {
    json!([caller.tenant, caller.user, request.query("user"), request.query("agent")]).to_string()
}

fn search_in_query(request: &ApiRequest) -> Result<SearchBody, Problem> {
    let limit = request.query("limit").map(|limit| limit.parse());
    let limit =
        limit.transpose().map_err(|_| Problem::field("?limit", format!("expected 1 to {MAX_HITS}")))?;
    let q = request.query("q").ok_or_else(|| Problem::field("?q", "say what to search for"))?;
    let (user, agent, scope) = (request.query("user"), request.query("agent"), request.query("scope"));
    Ok(SearchBody { q, user, agent, limit, scope })
}

fn view(hit: &Hit) -> Value {
    let entry = &hit.entry;
    let mut view = json!({
        "id": entry.key, "source": entry.source, "ts": entry.at, "text": entry.text, "score": hit.score,
    });
    let path = match entry.source {
        Source::Log => Some(format!("{DAILY}{}.md", entry.at.date())),
        Source::Memory => Some(MEMORY.to_owned()),
        Source::Session => None,
    };
    for (name, value) in
        [("path", path), ("session", entry.session.clone()), ("speaker", entry.speaker.clone())]
    {
        if let Some(value) = value {
            view[name] = value.into();
        }
    }
    view
}

fn count(pointer: &str, items: usize) -> Result<(), Problem> {
    if (1..=MAX_ITEMS).contains(&items) {
        return Ok(());
    }
    Err(Problem::field(pointer, format!("expected 1 to {MAX_ITEMS} items, found {items}")))
}

fn field(place: &str, name: &str, detail: String) -> FieldError {
    FieldError { pointer: format!("{place}/{name}"), detail }
}

fn check_id(place: &str, name: &str, value: Option<&str>, wrong: &mut Vec<FieldError>) {
    let fits = |value: &str| (1..=MAX_ID).contains(&value.len()) && !value.chars().any(char::is_control);
    if !value.is_none_or(fits) {
        wrong.push(field(place, name, format!("expected 1 to {MAX_ID} bytes without control characters")));
    }
}

fn refuse(wrong: Vec<FieldError>) -> Result<(), Problem> {
    let Some(first) = wrong.first() else { return Ok(()) };
    Err(Problem { errors: wrong.clone(), ..Problem::field(first.pointer.clone(), first.detail.clone()) })
}
