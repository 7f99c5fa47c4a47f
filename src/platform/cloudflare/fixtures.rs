//! Gives tests direct access to the memory index, and counts the rows that D1 bills.

use super::{d1::billed, runtime::ConsoleLog, setup};
use crate::memory::{ranking::MAX_HITS, search};
use crate::ports::Log;
use crate::ports::memory::{Collection, CollectionKind, NewEntry, NewPart, Place, Source, TermQuery};
use crate::types::{Timestamp, UserId};
use serde::Deserialize;
use serde_json::json;
use worker::{Env, Error, Request, Response, Result};

#[derive(Deserialize)]
struct Ask {
    user: UserId,
    /// Whether the call is about facts instead of turns.
    #[serde(default)]
    facts: bool,
    call: Call,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    /// Adds entries with these numbers. All contain `all`, every seventh `seventh`, and every thousandth
    /// `rare`.
    Add {
        from: u64,
        to: u64,
    },
    Statistics {
        terms: Vec<String>,
    },
    Find {
        any_of: Vec<Vec<String>>,
        none_of: Vec<String>,
        limit: usize,
    },
    Around {
        places: Vec<(String, u32, u32)>,
    },
    Search {
        query: String,
    },
    Erase,
}

/// Logs a URL that still has a ticket, so that the test of the log finds it.
pub fn log_ticket(request: &Request) {
    let url = request.inner().url();
    if url.contains("ticket=") {
        ConsoleLog.error(&json!({ "event": "fixtures.ticket", "url": url }));
    }
}

/// Responds with the call's result and the number of rows read and written.
pub async fn memory(mut request: Request, env: &Env) -> Result<Response> {
    let Ask { user, facts, call } = serde_json::from_slice(&request.bytes().await?)?;
    let failed = |error: crate::ports::memory::MemoryError| Error::RustError(error.to_string());
    let (index, _) = setup::memory(env)?;
    let kind = if facts { CollectionKind::Facts } else { CollectionKind::Turns };
    let of = Collection { tenant: "fixtures".into(), agent: "default".into(), user, kind };
    billed::take();
    let returned = match call {
        Call::Add { from, to } => {
            let source = if facts { Source::Log } else { Source::Session };
            let entries: Vec<_> = (from..to).map(|number| entry(number, source)).collect();
            json!(index.add(&of, &entries).await.map_err(failed)?)
        }
        Call::Statistics { terms } => {
            let found = index.statistics(&of, &terms).await.map_err(failed)?;
            json!([found.documents, found.length, found.groups, found.frequency])
        }
        Call::Find { any_of, none_of, limit } => {
            let found = index.find(&of, &[TermQuery { any_of, none_of, limit }]).await.map_err(failed)?;
            json!(found.iter().map(|entry| &entry.key).collect::<Vec<_>>())
        }
        Call::Around { places } => {
            let places = places.into_iter().map(|(group, from, to)| Place { group, positions: from..to });
            let found = index.around(&of, &places.collect::<Vec<_>>()).await.map_err(failed)?;
            json!(found.iter().map(|entry| &entry.key).collect::<Vec<_>>())
        }
        Call::Search { query } => {
            let hits = search(index.as_ref(), &of, &query, MAX_HITS).await.map_err(failed)?;
            json!(hits.iter().map(|hit| &hit.entry.key).collect::<Vec<_>>())
        }
        Call::Erase => json!(index.erase(&of.tenant, Some(&of.user)).await.map_err(failed)?),
    };
    let (read, written) = billed::take();
    Response::from_json(&json!({ "returned": returned, "read": read, "written": written }))
}

fn entry(number: u64, source: Source) -> NewEntry {
    let mut terms = format!("all n{number}");
    for (each, term) in [(7, " seventh"), (1_000, " rare")] {
        if number.is_multiple_of(each) {
            terms += term;
        }
    }
    let text = format!("Turn {number}, in a session of a hundred: {terms}.");
    NewEntry {
        key: number.to_string(),
        source,
        group: format!("s{}", number / 100),
        session: Some(format!("s{}", number / 100).into()),
        at: Timestamp(number),
        speaker: Some("user".to_owned()),
        parts: vec![NewPart { text, terms, length: 7 }],
    }
}
