//! Two trees of files that are compared: a folder of this machine, and a folder of a workspace.

use super::FILES;
use crate::{
    api::Api,
    error::{Error, InFile as _, Result},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};
use walkdir::WalkDir;

/// Files and folders that are neither uploaded nor downloaded: git runs programs that `.git/config` names.
const SKIPPED: &[&str] = &[".git", ".DS_Store"];

/// The files of a folder by their path in it, with `/` between names. Each has the etag that the server would give it.
pub(super) struct Local {
    pub(super) files: BTreeMap<String, LocalFile>,
    /// Links and other things that are not files.
    pub(super) skipped: Vec<String>,
}

/// A file of a folder.
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) etag: String,
}

impl Local {
    /// Reads a folder. A folder that does not exist is empty.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut local = Self { files: BTreeMap::new(), skipped: Vec::new() };
        if !folder.exists() {
            return Ok(local);
        }
        let is_wanted = |entry: &walkdir::DirEntry| !is_skipped(&entry.file_name().to_string_lossy());
        for entry in WalkDir::new(folder).min_depth(1).sort_by_file_name().into_iter().filter_entry(is_wanted)
        {
            let entry = entry.map_err(|e| Error::Io(e.into()))?;
            let path = entry.path().strip_prefix(folder).unwrap_or(entry.path());
            let names: Vec<_> = path.components().map(|name| name.as_os_str().to_string_lossy()).collect();
            let name = names.join("/");
            if entry.file_type().is_file() {
                let etag = etag(&fs::read(entry.path()).in_file(entry.path())?);
                local.files.insert(name, LocalFile { path: entry.into_path(), etag });
            } else if !entry.file_type().is_dir() {
                local.skipped.push(name);
            }
        }
        Ok(local)
    }
}

/// Returns whether a name is one of those that are skipped. Some file systems ignore case, and Windows a dot or a space at
/// the end.
fn is_skipped(name: &str) -> bool {
    let name = name.trim_end_matches(['.', ' ']);
    SKIPPED.iter().any(|skipped| name.eq_ignore_ascii_case(skipped))
}

/// Returns the etags of the files of a workspace below a folder, by their path in this folder.
pub(super) async fn remote(
    api: &Api,
    query: &[(&str, &str)],
    prefix: &str,
) -> Result<BTreeMap<String, String>> {
    let query = [query, &[("prefix", prefix)]].concat();
    let files = api.list(FILES, &query, usize::MAX).await?;
    let named = files.iter().filter_map(|file| {
        let path = file["path"].as_str()?.strip_prefix(prefix)?;
        Some((path.to_owned(), file["etag"].as_str()?.to_owned()))
    });
    Ok(named.collect())
}

/// Returns the etag that the server gives to this content.
pub(super) fn etag(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// Returns whether a download may write this path of the server.
pub(super) fn is_downloaded(path: &str) -> bool {
    !path.split(['/', '\\']).any(is_skipped)
}

/// Returns the place of a file in a folder. The path comes from the server, so it must not lead out of the folder: not by
/// its names, and not by links. Nor may it have a name that is never downloaded.
pub(crate) fn place(folder: &Path, path: &str) -> Result<PathBuf> {
    let is_inside = Path::new(path).components().all(|name| matches!(name, Component::Normal(_)));
    let target = folder.join(path);
    let is_linked = target.ancestors().take_while(|part| *part != folder).any(Path::is_symlink);
    if !is_downloaded(path) {
        Err(Error::Incomplete(format!("{path}: git and the system own this name")))
    } else if is_inside && !is_linked && !path.is_empty() {
        Ok(target)
    } else {
        Err(Error::Incomplete(format!("{path}: the path leads out of {}", folder.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etag_is_that_of_the_server() {
        assert_eq!(etag(b"hello"), "\"2cf24dba5fb0a30e26e83b2ac5b9e29e\"");
    }

    #[test]
    fn a_folder_is_read_with_its_subfolders_and_without_git() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/.git")).unwrap();
        fs::write(folder.path().join("a/.git/config"), "x").unwrap();
        fs::write(folder.path().join("a/b.md"), "hello").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("a/b.md", folder.path().join("link")).unwrap();
        let local = Local::read(folder.path()).unwrap();
        assert_eq!(local.files.keys().collect::<Vec<_>>(), ["a/b.md"]);
        #[cfg(unix)]
        assert_eq!(local.skipped, ["link"]);
        assert!(Local::read(&folder.path().join("nothing")).unwrap().files.is_empty());
    }

    #[test]
    fn a_download_does_not_write_into_git() {
        for path in [".git/config", "a/.GIT/hooks/post-checkout", ".git./config", "a\\.git\\config"] {
            assert!(!is_downloaded(path), "{path}");
        }
        assert!(is_downloaded(".github/workflows/ci.yml") && is_downloaded("a/.gitignore"));
    }

    #[test]
    fn a_path_of_the_server_cannot_leave_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(place(folder.path(), "a/b").unwrap(), folder.path().join("a/b"));
        for path in ["../a", "a/../../b", "/etc/passwd", "rules/.git/config", ""] {
            assert!(place(folder.path(), path).is_err(), "{path}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/tmp", folder.path().join("out")).unwrap();
            assert!(place(folder.path(), "out/a").is_err());
        }
    }
}
