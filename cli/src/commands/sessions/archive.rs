//! The archive of a session.

use crate::{
    api::{Api, segment},
    context::Context,
    error::{Error, InFile as _, Result},
};
use serde_json::Value;
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// Number of records in one request.
const PAGE: u64 = 1000;

/// What an archive contains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) events: usize,
    pub(super) artifacts: usize,
}

/// Writes the archive of a session. The file appears only when it is complete.
pub(super) async fn write(context: &Context, session: &str, file: &Path) -> Result<Counts> {
    let api = context.api()?;
    let path = format!("/v1/sessions/{}", segment(session));
    let state: Value = api.get(&path).json().await?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::NamedTempFile::new_in(folder).in_file(folder)?;
    let mut archive = Archive(ZipWriter::new(temporary.reopen()?));
    archive.add("session.json", state.to_string().as_bytes())?;
    let bar = context.out.progress(state["last_seq"].as_u64().unwrap_or_default(), "events");
    let (events, artifacts) = records(&api, &path, &bar).await?;
    bar.finish_and_clear();
    archive.add("events.ndjson", events.join("\n").as_bytes())?;
    let mut counts = Counts { events: events.len(), artifacts: 0 };
    let bar = context.out.progress(artifacts.len() as u64, "artifacts");
    for name in &artifacts {
        match api.get(&format!("{path}/artifacts/{}", segment(name))).bytes().await {
            Ok(bytes) => {
                archive.add(&format!("artifacts/{name}"), &bytes)?;
                counts.artifacts += 1;
            }
            // An artifact may have expired.
            Err(Error::Refused(problem)) if matches!(problem.status, 404 | 410) => {}
            Err(error) => return Err(error),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    archive.0.finish().map_err(io::Error::other)?;
    temporary.persist(file).map_err(|e| e.error).in_file(file)?;
    Ok(counts)
}

/// Returns all records of the log as lines, and the names of the artifacts.
async fn records(api: &Api, path: &str, bar: &indicatif::ProgressBar) -> Result<(Vec<String>, Vec<String>)> {
    let (mut lines, mut artifacts) = (Vec::new(), Vec::new());
    loop {
        let request = api.get(&format!("{path}/events")).header("accept", "application/x-ndjson");
        let page = request.query("after", &lines.len().to_string()).query("limit", &PAGE.to_string());
        let page = page.bytes().await?;
        let text = str::from_utf8(&page).map_err(|e| Error::Response(e.to_string()))?;
        let before = lines.len();
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).map_err(|e| Error::Response(e.to_string()))?;
            if record["type"] == "artifact.stored"
                && let Some(name) = record["ref"].as_str()
            {
                artifacts.push(name.to_owned());
            }
            lines.push(line.to_owned());
        }
        bar.set_position(lines.len() as u64);
        if lines.len() == before {
            return Ok((lines, artifacts));
        }
    }
}

struct Archive(ZipWriter<File>);

impl Archive {
    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        self.0.start_file(name, options).map_err(io::Error::other)?;
        Ok(self.0.write_all(bytes)?)
    }
}
