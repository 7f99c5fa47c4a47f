//! The archive of one run: the run, its events, and its files.

use super::output::{Output, written};
use super::sessions::{Artifact, Artifacts};
use super::zip::Zip;
use crate::http::response::{self, Body, Response, ResponseExt};
use crate::ports::{PeerError, ReaderRequest, SessionReader};
use crate::types::{FilePath, Principal, SessionId, Timestamp};
use crate::workspace::Workspace;
use bytes::Bytes;
use futures::StreamExt;
use http::StatusCode;
use std::rc::Rc;

/// Maximum number of artifacts and files, each of which takes a call.
const MAX_FILES: usize = 300;

/// What an archive contains. It owns its sources, because its response outlives the request.
pub struct RunExport {
    /// Reads the session of the run.
    pub reader: Rc<dyn SessionReader>,
    /// The caller.
    pub principal: Principal,
    /// The id of the run.
    pub id: SessionId,
    /// The run as JSON.
    pub run: Bytes,
    /// The workspace with the files of the run.
    pub files: Workspace,
    /// Their paths.
    pub paths: Vec<String>,
    /// When the archive is written.
    pub now: Timestamp,
}

impl RunExport {
    /// Responds with the archive.
    pub fn respond(self) -> Response {
        let name = format!("{}.zip", self.id);
        let body = written(|output| async move {
            let archive = Archive { zip: Zip::default(), output, now: self.now };
            self.write(archive).await;
        });
        response::new(StatusCode::OK, Body::Stream(body))
            .with("content-type", "application/zip")
            .with("content-disposition", &crate::http::disposition::attachment(&name))
            .with("cache-control", "no-store")
    }

    async fn write(&self, mut archive: Archive) {
        archive.entry("run.json", self.run.clone()).await;
        let events = format!("/v1/sessions/{}/events", self.id);
        let mut artifacts = Artifacts::default();
        // A source that fails leaves an archive without its end, which no reader takes for a whole one.
        let Ok(()) = self.copy(&mut archive, "events.ndjson", &events, |bytes| artifacts.read(bytes)).await
        else {
            return;
        };
        for Artifact { r#ref, .. } in artifacts.found().into_iter().take(MAX_FILES) {
            let target = format!("/v1/sessions/{}/artifacts/{}", self.id, r#ref);
            let name = format!("artifacts/{}", r#ref);
            if self.copy(&mut archive, &name, &target, |_| ()).await.is_err() {
                return;
            }
        }
        for path in self.paths.iter().take(MAX_FILES) {
            // A file may have been deleted since.
            let Ok(parsed) = FilePath::parse(path) else { continue };
            if let Ok((file, _)) = self.files.read(&parsed).await {
                let name = path.rsplit('/').next().unwrap_or_default();
                archive.entry(&format!("artifacts/{name}"), file.bytes).await;
            }
        }
        archive.output.send(archive.zip.finish()).await;
    }

    /// Copies what the session responds into an entry. An artifact that has expired is left out.
    async fn copy(
        &self,
        archive: &mut Archive,
        name: &str,
        target: &str,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(), PeerError> {
        let headers = &[("accept", "application/x-ndjson")];
        let request = ReaderRequest { target, headers, body: None };
        let mut response = self.reader.send(&self.principal, &self.id, request).await?;
        match response.status {
            200 => {}
            404 | 410 => return Ok(()),
            status => return Err(PeerError(format!("the session responds with status {status}"))),
        }
        archive.begin(name).await;
        while let Some(bytes) = response.body.next().await {
            let bytes = bytes?;
            seen(&bytes);
            archive.content(bytes).await;
        }
        archive.end().await;
        Ok(())
    }
}

/// An archive that is being sent.
struct Archive {
    zip: Zip,
    output: Output,
    now: Timestamp,
}

impl Archive {
    async fn entry(&mut self, name: &str, bytes: Bytes) {
        self.begin(name).await;
        self.content(bytes).await;
        self.end().await;
    }

    async fn begin(&mut self, name: &str) {
        let header = self.zip.begin(name, self.now);
        self.output.send(header).await;
    }

    async fn content(&mut self, bytes: Bytes) {
        self.zip.content(&bytes);
        self.output.send(bytes).await;
    }

    async fn end(&mut self) {
        let descriptor = self.zip.end();
        self.output.send(descriptor).await;
    }
}
