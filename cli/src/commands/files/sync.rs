//! `agentctl files push`, `pull` and `diff`.

use super::{
    Layer, Place, file,
    tree::{Local, LocalFile, etag, is_downloaded, place, remote},
};
use crate::{
    api::Api,
    context::Context,
    error::{Error, InFile as _, Result},
    output::Output,
};
use futures::{StreamExt as _, stream};
use serde_json::json;
use similar::TextDiff;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
};

/// Requests at the same time.
const CONCURRENCY: usize = 8;

/// A folder of this machine, and one of a workspace.
#[derive(clap::Args)]
pub(crate) struct Pair {
    /// Folder on this machine
    folder: PathBuf,
    /// Folder in the workspace [default: the whole workspace]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FOLDER")]
    prefix: String,
    #[command(flatten)]
    place: Place,
}

impl Pair {
    /// Returns the folder of the workspace with a slash at its end, or nothing.
    fn prefix(&self) -> String {
        let prefix = self.prefix.trim_matches('/');
        if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
    }

    fn query(&self) -> Vec<(&str, &str)> {
        self.place.query(Some(Layer::User))
    }

    /// Reads the folder, which must exist.
    fn local(&self) -> Result<Local> {
        if self.folder.is_dir() {
            Local::read(&self.folder)
        } else {
            Err(Error::Usage(format!("{}: not a folder", self.folder.display())))
        }
    }

    async fn remote(&self, api: &Api) -> Result<BTreeMap<String, String>> {
        remote(api, &self.query(), &self.prefix()).await
    }

    async fn download(&self, api: &Api, path: &str) -> Result<Vec<u8>> {
        api.get(&file(&format!("{}{path}", self.prefix()))).queries(&self.query()).bytes().await
    }
}

/// Uploads the files of a folder that are new or changed
///
/// A file that someone changes at the same time is refused, not overwritten. Links are skipped.
#[derive(clap::Args)]
pub(crate) struct Push {
    #[command(flatten)]
    pair: Pair,
    /// Removes files of the workspace that the folder does not have
    #[arg(long)]
    delete: bool,
    /// Prints what would change, and changes nothing
    #[arg(long)]
    dry_run: bool,
}

impl Push {
    /// Uploads all files of a folder.
    pub(crate) fn all(folder: PathBuf, prefix: String, place: Place) -> Self {
        Self { pair: Pair { folder, prefix, place }, delete: false, dry_run: false }
    }

    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let (local, remote) = (self.pair.local()?, self.pair.remote(&api).await?);
        let mut report = Report::new(context.out);
        for path in &local.skipped {
            report.add("skipped", path, Some("not a file"))?;
        }
        let changed: Vec<_> =
            local.files.iter().filter(|(path, file)| remote.get(*path) != Some(&file.etag)).collect();
        let bar = context.out.progress(changed.len() as u64, "uploading");
        let uploads = stream::iter(changed).map(|(path, local)| {
            let upload = self.upload(&api, path, local, remote.get(path));
            async move { Ok::<_, Error>((path, upload.await?)) }
        });
        let mut uploads = uploads.buffered(CONCURRENCY);
        while let Some(upload) = uploads.next().await {
            let (path, what) = upload?;
            bar.inc(1);
            bar.suspend(|| report.add(what, path, None))?;
        }
        bar.finish_and_clear();
        for (path, etag) in remote.iter().filter(|(path, _)| self.delete && !local.files.contains_key(*path))
        {
            if !self.dry_run {
                let request = api.delete(&file(&format!("{}{path}", self.pair.prefix())));
                request.queries(&self.pair.query()).header("if-match", etag).send().await?;
            }
            report.add("removed", path, None)?;
        }
        report.end()
    }

    /// Uploads a file, unless someone has changed it since it was listed. Returns what happened to it.
    async fn upload(
        &self,
        api: &Api,
        path: &str,
        local: &LocalFile,
        old: Option<&String>,
    ) -> Result<&'static str> {
        let what = if old.is_some() { "replaced" } else { "created" };
        if self.dry_run {
            return Ok(what);
        }
        let bytes = fs::read(&local.path).in_file(&local.path)?;
        let target = file(&format!("{}{path}", self.pair.prefix()));
        let request = api.put(&target).queries(&self.pair.query()).body(bytes.clone());
        let request = match old {
            Some(etag) => request.header("if-match", etag),
            None => request.header("if-none-match", "*"),
        };
        match request.send().await {
            Ok(_) => Ok(what),
            Err(Error::Refused(problem)) if problem.status == 412 && problem.is_repeated => {
                // If the file is the one to write, an earlier attempt has written it.
                let is_written = self.pair.download(api, path).await? == bytes;
                Ok(if is_written { what } else { "refused" })
            }
            // This concerns one file; any other error ends the command.
            Err(Error::Refused(problem)) if matches!(problem.status, 412 | 413 | 422) => Ok("refused"),
            Err(error) => Err(error),
        }
    }
}

/// Downloads the files of a workspace
///
/// A file of the folder that differs is kept, unless --force replaces it. Nothing is removed.
#[derive(clap::Args)]
pub(crate) struct Pull {
    #[command(flatten)]
    pair: Pair,
    /// Replaces files of the folder that differ
    #[arg(long)]
    force: bool,
}

impl Pull {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let (local, remote) = (Local::read(&self.pair.folder)?, self.pair.remote(&api).await?);
        let mut report = Report::new(context.out);
        let (mut wanted, folder) = (Vec::new(), &self.pair.folder);
        for (path, etag) in &remote {
            match local.files.get(path) {
                _ if !is_downloaded(path) => {
                    report.add("refused", path, Some("git and the system own this name"))?
                }
                Some(file) if file.etag == *etag => {}
                Some(_) if !self.force => {
                    report.add("kept", path, Some("it differs; --force replaces it"))?
                }
                old => wanted.push((path, place(folder, path)?, old.is_some())),
            }
        }
        let bar = context.out.progress(wanted.len() as u64, "downloading");
        let downloads = stream::iter(wanted).map(|(path, target, is_old)| {
            let (api, pair) = (&api, &self.pair);
            async move { Ok::<_, Error>((path, target, is_old, pair.download(api, path).await?)) }
        });
        let mut downloads = downloads.buffered(CONCURRENCY);
        while let Some(download) = downloads.next().await {
            let (path, target, is_old, bytes) = download?;
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).in_file(parent)?;
            }
            let what = if is_old { "replaced" } else { "created" };
            // Someone may have created a file since the folder was read.
            let mut options = File::options();
            options.write(true).create(self.force).truncate(self.force).create_new(!self.force);
            let written = options.open(&target).and_then(|mut file| file.write_all(&bytes));
            bar.inc(1);
            bar.suspend(|| match written {
                Ok(()) => report.add(what, path, None),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    report.add("kept", path, Some("it exists; --force replaces it"))
                }
                Err(error) => Err(error).in_file(&target),
            })?;
        }
        bar.finish_and_clear();
        report.end()
    }
}

/// Shows what a push of the folder would change
///
/// The exit code is 1 if there are differences.
#[derive(clap::Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    pair: Pair,
    /// Shows also the files that a push with --delete would remove
    #[arg(long)]
    delete: bool,
}

impl Diff {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let api = context.api()?;
        let (local, remote) = (self.pair.local()?, self.pair.remote(&api).await?);
        let removed = remote.keys().filter(|_| self.delete);
        let mut paths: Vec<&String> = local.files.keys().chain(removed).collect();
        paths.sort();
        paths.dedup();
        let mut differences = 0;
        for path in paths {
            let file = local.files.get(path);
            if file.map(|file| &file.etag) == remote.get(path) {
                continue;
            }
            differences += 1;
            let old = match remote.get(path) {
                Some(_) => self.pair.download(&api, path).await?,
                None => Vec::new(),
            };
            let new = match file {
                Some(file) => fs::read(&file.path).in_file(&file.path)?,
                None => Vec::new(),
            };
            let status = match (remote.contains_key(path), file.is_some()) {
                (true, true) => "changed",
                (false, _) => "created",
                (_, false) => "removed",
            };
            let json = json!({"path": path, "status": status, "etag": etag(&new)});
            context.out.value(&json, |_| unified(path, &old, &new))?;
        }
        if differences == 0 { Ok(()) } else { Err(Error::Incomplete(format!("{differences} files differ"))) }
    }
}

/// Returns the unified diff of two versions of a file.
pub(crate) fn unified(path: &str, old: &[u8], new: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (str::from_utf8(old), str::from_utf8(new)) else {
        return format!("{path}: binary files differ");
    };
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    text.trim_end().to_owned()
}

/// Reports what happens to each file, and how many files there were of each kind.
struct Report {
    out: Output,
    counts: BTreeMap<&'static str, usize>,
}

impl Report {
    fn new(out: Output) -> Self {
        Self { out, counts: BTreeMap::new() }
    }

    fn add(&mut self, what: &'static str, path: &str, why: Option<&str>) -> Result<()> {
        *self.counts.entry(what).or_default() += 1;
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        self.out.value(&json!({"path": path, "status": what}), |_| format!("{what:<9} {path}{why}"))
    }

    /// Fails if a file was not transferred.
    fn end(self) -> Result<()> {
        let missed: usize =
            ["kept", "refused", "skipped"].iter().filter_map(|what| self.counts.get(what)).sum();
        if self.counts.is_empty() {
            self.out.note("nothing to do");
        }
        if missed == 0 {
            Ok(())
        } else {
            Err(Error::Incomplete(format!("{missed} files were not transferred")))
        }
    }
}
