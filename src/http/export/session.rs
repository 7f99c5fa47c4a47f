//! The archive of one session or run: its state, its events, and its files.

use super::lines::Lines;
use super::output::{Output, written};
use super::sessions::{Artifact, artifact};
use super::zip::Zip;
use crate::http::gateway::TenantCall;
use crate::http::read_session;
use crate::http::response::{self, Body, Response, ResponseExt};
use crate::ports::{FileError, Log, PeerError, ReaderRequest, SessionReader};
use crate::runs;
use crate::session::hub::Interrupted;
use crate::types::{FilePath, Principal, Problem, SessionId, Timestamp};
use crate::workspace::Workspace;
use bytes::Bytes;
use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use std::rc::Rc;

/// Maximum length of a record that is read, in bytes. A longer one would be a message of several megabytes.
const MAX_LINE: usize = 8 << 20;
/// Maximum number of artifacts. Each takes a call, of which the platform allows 1,000 in one request.
const MAX_ARTIFACTS: usize = 400;
/// Maximum number of files of the workspace. Each takes up to three calls.
const MAX_FILES: usize = 150;

/// `GET /v1/sessions/{id}/export`.
pub(in crate::http) async fn of_session(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let not_found = || Problem::not_found("session");
    let id = SessionId::parse(call.params.get("id")).ok_or_else(not_found)?;
    let session = read_session::json(call, "/v1/sessions", &id).await?.ok_or_else(not_found)?;
    Ok(SessionExport::new(call, id, ("session.json", session), None).respond())
}

/// What an archive contains. It owns its sources, because its response outlives the request.
pub struct SessionExport {
    reader: Rc<dyn SessionReader>,
    principal: Principal,
    id: SessionId,
    state: (&'static str, Bytes),
    files: Option<(Workspace, Vec<String>)>,
    log: Rc<dyn Log>,
    now: Timestamp,
}

impl SessionExport {
    /// Prepares the archive of a session or run. `state` is the name and the content of its first entry, and `files` the
    /// workspace of a run with the paths of its files.
    pub fn new(
        call: &TenantCall<'_>,
        id: SessionId,
        state: (&'static str, Bytes),
        files: Option<(Workspace, Vec<String>)>,
    ) -> Self {
        let (reader, log) = (Rc::clone(&call.gateway.reader), Rc::clone(&call.gateway.log));
        Self { reader, principal: call.caller.clone(), id, state, files, log, now: call.gateway.clock.now() }
    }

    /// Responds with the archive.
    pub fn respond(self) -> Response {
        let name = format!("{}.zip", self.id);
        let body = written(|output| async move {
            let archive = Archive { zip: Zip::default(), output, now: self.now };
            self.write(archive).await.map_err(|error| {
                let (tenant, session) = (&self.principal.tenant, &self.id);
                self.log.error(&json!({
                    "event": "export.failed", "tenant": tenant, "session": session, "cause": error.to_string(),
                }));
                Interrupted
            })
        });
        response::new(StatusCode::OK, Body::Stream(body))
            .with("content-type", "application/zip")
            .with("content-disposition", &crate::http::disposition::attachment(&name))
            .with("cache-control", "no-store")
    }

    async fn write(&self, mut archive: Archive) -> Result<(), PeerError> {
        let (name, state) = &self.state;
        archive.entry(name, state.clone()).await?;
        let events = format!("/v1/sessions/{}/events", self.id);
        let (mut lines, mut artifacts) = (Lines::new(MAX_LINE), Vec::new());
        let mut run = self.id.is_run().then(|| runs::Archive::new(self.id.clone()));
        let seen = |bytes: &[u8]| {
            lines.read(bytes, |line| {
                artifacts.extend(artifact(line));
                run.iter_mut().for_each(|run| run.read(line));
            });
        };
        if !self.copy(&mut archive, "events.ndjson", &events, seen).await? {
            return Err(PeerError("the session was erased".into()));
        }
        for (name, text) in run.iter_mut().flat_map(runs::Archive::entries) {
            archive.entry(&name, text.into()).await?;
        }
        for Artifact { r#ref, .. } in artifacts.into_iter().take(MAX_ARTIFACTS) {
            // One that has expired is left out.
            let target = format!("/v1/sessions/{}/artifacts/{}", self.id, r#ref);
            self.copy(&mut archive, &format!("artifacts/{}", r#ref), &target, |_| ()).await?;
        }
        if let Some((workspace, paths)) = &self.files {
            for path in paths.iter().take(MAX_FILES) {
                let Ok(parsed) = FilePath::parse(path) else { continue };
                match workspace.read(&parsed).await {
                    Ok((file, _)) => {
                        let name = path.rsplit('/').next().unwrap_or_default();
                        archive.entry(&format!("artifacts/{name}"), file.bytes).await?;
                    }
                    // It was deleted since.
                    Err(FileError::NotFound) => {}
                    Err(error) => return Err(PeerError(error.to_string())),
                }
            }
        }
        archive.output.send(archive.zip.finish()).await;
        Ok(())
    }

    /// Copies what the session responds into an entry. Returns whether the session has it.
    async fn copy(
        &self,
        archive: &mut Archive,
        name: &str,
        target: &str,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<bool, PeerError> {
        let headers = &[("accept", "application/x-ndjson")];
        let request = ReaderRequest { target, headers, body: None };
        let mut response = self.reader.send(&self.principal, &self.id, request).await?;
        match response.status {
            200 => {}
            404 | 410 => return Ok(false),
            status => return Err(PeerError(format!("the session responds with status {status}"))),
        }
        archive.begin(name).await;
        while let Some(bytes) = response.body.next().await {
            let bytes = bytes?;
            seen(&bytes);
            archive.content(bytes).await?;
        }
        archive.end().await;
        Ok(true)
    }
}

/// An archive that is being sent.
struct Archive {
    zip: Zip,
    output: Output,
    now: Timestamp,
}

impl Archive {
    async fn entry(&mut self, name: &str, bytes: Bytes) -> Result<(), PeerError> {
        self.begin(name).await;
        self.content(bytes).await?;
        self.end().await;
        Ok(())
    }

    async fn begin(&mut self, name: &str) {
        let header = self.zip.begin(name, self.now);
        self.output.send(header).await;
    }

    async fn content(&mut self, bytes: Bytes) -> Result<(), PeerError> {
        if !self.zip.has_room(bytes.len()) {
            return Err(PeerError("an archive holds at most 4 GB".into()));
        }
        self.zip.content(&bytes);
        self.output.send(bytes).await;
        Ok(())
    }

    async fn end(&mut self) {
        let descriptor = self.zip.end();
        self.output.send(descriptor).await;
    }
}
