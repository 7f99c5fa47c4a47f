//! The sessions of an export: list entries, logs, artifacts and attachments.

use super::lines::Lines;
use super::part::{Part, push_line};
use super::{Export, Position};
use crate::http::lists;
use crate::ports::ReaderRequest;
use crate::ports::directory::SessionKinds;
use crate::types::{SessionId, Timestamp, json::record_type};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

/// Number of sessions of one query.
const PAGE: usize = 100;
/// Maximum length of a line that is searched for an artifact; the record of an artifact is shorter.
const MAX_LINE: usize = 16 << 10;

/// The last session that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastSession {
    created_at: Timestamp,
    id: SessionId,
    /// The record of its last artifact that was written, if more follow.
    artifacts_after: Option<u64>,
}

/// Writes sessions, newest first. Returns where the next part continues; `None` at the end.
pub async fn write(export: &Export, part: &mut Part, mut last: Option<LastSession>) -> Option<Position> {
    if let Some(session) = &mut last
        && let Some(after) = session.artifacts_after
    {
        let found = log(export, part, &session.id, after, None).await;
        session.artifacts_after = artifacts(export, part, &session.id, found).await;
        if session.artifacts_after.is_some() {
            return Some(Position::Sessions(last));
        }
    }
    loop {
        let (tenant, user) = (&export.subject.tenant, export.subject.user.as_ref());
        let before = last.as_ref().map(|last| (last.created_at, &last.id));
        part.spend(2);
        let page = match export.directory.sessions(SessionKinds::All, tenant, user, None, before, PAGE).await
        {
            Ok(page) => page,
            Err(error) => {
                part.fail("sessions.ndjson", "the list of sessions is unavailable; continue later", &error);
                return Some(Position::Sessions(last));
            }
        };
        let is_last = page.len() < PAGE;
        for entry in page {
            if part.is_full() {
                return Some(Position::Sessions(last));
            }
            push_line(&mut part.sessions, &lists::view_with_parent(&entry));
            let name = format!("sessions/{}/events.ndjson", entry.id);
            let found = log(export, part, &entry.id, 0, Some(&name)).await;
            let artifacts_after = artifacts(export, part, &entry.id, found).await;
            let more = artifacts_after.is_some();
            last = Some(LastSession { created_at: entry.created_at, id: entry.id, artifacts_after });
            if more {
                return Some(Position::Sessions(last));
            }
        }
        if is_last {
            return None;
        }
    }
}

/// Reads the log of a session after a record, and writes it if it has a name. Returns the artifacts in it.
async fn log(
    export: &Export,
    part: &mut Part,
    session: &SessionId,
    after: u64,
    name: Option<&str>,
) -> Vec<Artifact> {
    let shown = name.map_or_else(|| format!("sessions/{session}/artifacts"), str::to_owned);
    let query = if after > 0 { format!("?after={after}") } else { String::new() };
    let target = format!("/v1/sessions/{session}/events{query}");
    part.spend(1);
    let headers = &[("accept", "application/x-ndjson")];
    let request = ReaderRequest { target: &target, headers, body: None };
    let mut body = match export.reader.send(&export.principal, session, request).await {
        Ok(response) if response.status == 200 => response.body,
        Ok(response) => {
            part.fail(&shown, "the session cannot be read", &format!("status {}", response.status));
            return Vec::new();
        }
        Err(error) => {
            part.fail(&shown, "the session is unavailable", &error);
            return Vec::new();
        }
    };
    if let Some(name) = name {
        part.begin(name).await;
        part.counts.sessions += 1;
    }
    let (mut lines, mut artifacts) = (Lines::new(MAX_LINE), Vec::new());
    while let Some(piece) = body.next().await {
        match piece {
            Ok(bytes) => {
                lines.read(&bytes, |line| artifacts.extend(artifact(line)));
                if name.is_some() && !part.content(bytes).await {
                    part.fail(&shown, "incomplete: an archive holds at most 4 GB", &"too large");
                    break;
                }
            }
            Err(error) => {
                part.fail(&shown, "incomplete: the session became unavailable", &error);
                break;
            }
        }
    }
    if name.is_some() {
        part.end().await;
    }
    artifacts
}

/// Writes artifacts of a session. Returns the record after which the next part continues; `None` at the end.
async fn artifacts(
    export: &Export,
    part: &mut Part,
    session: &SessionId,
    artifacts: Vec<Artifact>,
) -> Option<u64> {
    for Artifact { seq, r#ref } in artifacts {
        if part.is_full() {
            return Some(seq.saturating_sub(1));
        }
        let name = format!("sessions/{session}/artifacts/{}", r#ref);
        let target = format!("/v1/sessions/{session}/artifacts/{}", r#ref);
        part.spend(1);
        let request = ReaderRequest { target: &target, ..ReaderRequest::default() };
        match export.reader.send(&export.principal, session, request).await {
            Ok(response) if response.status == 200 => {
                part.begin(&name).await;
                let mut body = response.body;
                while let Some(piece) = body.next().await {
                    let is_written = match piece {
                        Ok(bytes) => part.content(bytes).await,
                        Err(_) => false,
                    };
                    if !is_written {
                        part.fail(&name, "incomplete: the artifact became unavailable", &"the body ended");
                        break;
                    }
                }
                part.end().await;
                part.counts.artifacts += 1;
            }
            Ok(response) if response.status == 404 || response.status == 410 => {
                part.fail(&name, "the session no longer stores it", &format!("status {}", response.status));
            }
            Ok(response) => {
                part.fail(&name, "the artifact cannot be read", &format!("status {}", response.status));
            }
            Err(error) => part.fail(&name, "the session is unavailable", &error),
        }
    }
    None
}

/// A record `artifact.stored` of a log.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Artifact {
    seq: u64,
    /// Its id.
    pub r#ref: String,
}

/// Returns the artifact of a record, which is a line of a log.
pub fn artifact(line: &[u8]) -> Option<Artifact> {
    // Most lines are not parsed.
    let named = b"\"artifact.stored\"";
    if line.len() > MAX_LINE || !line.windows(named.len()).any(|window| window == named) {
        return None;
    }
    (record_type(line)? == "artifact.stored").then(|| serde_json::from_slice(line).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn only_a_record_of_an_artifact_is_one() {
        let read = |record: serde_json::Value| artifact(record.to_string().as_bytes());
        let stored = |text: &str| json!({"seq": 2, "type": "artifact.stored", "ref": "art_1", "text": text});
        assert_eq!(read(stored("")), Some(Artifact { seq: 2, r#ref: "art_1".into() }));
        assert_eq!(read(stored(&"x".repeat(MAX_LINE))), None);
        assert_eq!(read(json!({"seq": 1, "type": "turn.started", "text": "\"artifact.stored\""})), None);
    }
}
