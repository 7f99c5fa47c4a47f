//! The folder of the runner, as the tools see it. No path leads out of it: neither `..` nor a link, even if another process
//! changes the folder at the same time.

use super::tool_error::ToolError;
use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions, PermissionsExt as _},
};
use std::{
    io::{self, Read as _, Write as _},
    path::{Component, Path, PathBuf},
};

/// Size of the largest file that the tools read or write, in bytes.
pub const MAX_FILE: u64 = 8 << 20;

/// An open folder.
pub struct Root {
    dir: Dir,
    path: PathBuf,
}

impl Root {
    /// Opens the folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Self, ToolError> {
        Ok(Self { dir: Dir::open_ambient_dir(path, ambient_authority())?, path: path.to_owned() })
    }

    /// Opens the folder once more.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn try_clone(&self) -> Result<Self, ToolError> {
        Ok(Self { dir: self.dir.try_clone()?, path: self.path.clone() })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path of a tool's argument as one below the folder; `.` is the folder itself.
    ///
    /// # Errors
    /// The path is outside.
    pub fn relative(&self, path: &str) -> Result<PathBuf, ToolError> {
        let path = Path::new(path);
        let inner = path.strip_prefix(&self.path).unwrap_or(path);
        let mut relative = PathBuf::new();
        for component in inner.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir if relative.pop() => {}
                _ => return Err(ToolError::Outside(path.display().to_string())),
            }
        }
        Ok(if relative.as_os_str().is_empty() { ".".into() } else { relative })
    }

    /// Opens a file that is below the folder, also after its links are followed.
    ///
    /// # Errors
    /// There is no such file, it is outside, or it is no file.
    pub fn file(&self, path: &Path) -> Result<File, ToolError> {
        let file = self.dir.open(path).map_err(|error| ToolError::file(path, error))?;
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        if is_file { Ok(file) } else { Err(ToolError::Other(format!("{}: is not a file", path.display()))) }
    }

    /// Returns the size of a file that is below the folder, also after its links are followed; `None` if there is no such
    /// file.
    pub fn size(&self, path: &Path) -> Option<u64> {
        self.dir.metadata(path).ok().filter(|data| data.is_file()).map(|data| data.len())
    }

    /// Reads a file; `None` if it has more than [`MAX_FILE`] bytes.
    ///
    /// # Errors
    /// Those of [`Root::file`].
    pub fn bytes(&self, path: &Path) -> Result<Option<Vec<u8>>, ToolError> {
        let (mut bytes, file) = (Vec::new(), self.file(path)?);
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| ToolError::file(path, error))?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= MAX_FILE))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// Those of [`Root::file`], and a file that is too large or no text.
    pub fn text(&self, path: &Path) -> Result<String, ToolError> {
        let refused = |why: &str| ToolError::Other(format!("{}: {why}", path.display()));
        let bytes = self
            .bytes(path)?
            .ok_or_else(|| refused("has more than 8 MiB; use local_search, or local_shell"))?;
        String::from_utf8(bytes).map_err(|_| refused("is not text in UTF-8"))
    }

    /// Returns whether there is something with this path, be it a link to nowhere.
    pub fn exists(&self, path: &Path) -> bool {
        self.dir.symlink_metadata(path).is_ok()
    }

    /// Prepares a file with a new content, which [`Prepared::commit`] puts in its place.
    ///
    /// # Errors
    /// The place is outside, or belongs to Git.
    pub fn prepare(&self, path: &Path, content: impl AsRef<[u8]>) -> Result<Prepared<'_>, ToolError> {
        let failed = |error| ToolError::file(path, error);
        let place = self.place(path)?;
        if let Some(parent) = place.parent() {
            self.dir.create_dir_all(parent).map_err(failed)?;
        }
        let mode = match self.dir.metadata(&place) {
            Ok(data) if !data.is_file() => {
                return Err(ToolError::Other(format!("{}: is not a file", path.display())));
            }
            Ok(data) => Some(data.permissions().mode() & 0o777),
            Err(_) => None,
        };
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = place.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
        let mut options = OpenOptions::new();
        let mut file =
            self.dir.open_with(&temporary, options.write(true).create_new(true)).map_err(failed)?;
        let prepared = Prepared { dir: &self.dir, temporary: Some(temporary), place };
        file.write_all(content.as_ref()).map_err(failed)?;
        if let Some(mode) = mode {
            file.set_permissions(cap_std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(prepared)
    }

    /// Creates a file of the runner's own, which Git ignores.
    ///
    /// # Errors
    /// The place is outside, or cannot be written.
    pub fn create(&self, path: &Path) -> Result<File, ToolError> {
        let failed = |error| ToolError::file(path, error);
        if let Some(parent) = path.parent() {
            self.dir.create_dir_all(parent).map_err(failed)?;
            self.dir.write(parent.join(".gitignore"), "*\n").map_err(failed)?;
        }
        self.dir.create(path).map_err(failed)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// There is no such file, or it is outside or belongs to Git.
    pub fn remove(&self, path: &Path) -> Result<(), ToolError> {
        self.place(path)?;
        self.dir.remove_file(path).map_err(|error| ToolError::file(path, error))
    }

    /// Moves a file to a place where nothing is.
    ///
    /// # Errors
    /// There is no such file, a place is outside or belongs to Git, or there is something at the new place.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), ToolError> {
        self.place(from)?;
        let place = self.place(to)?;
        self.file(from)?;
        if let Some(parent) = place.parent() {
            self.dir.create_dir_all(parent).map_err(|error| ToolError::file(to, error))?;
        }
        move_to_free_place(&self.dir, from, &place).map_err(|error| ToolError::file(to, error))
    }

    /// Returns where a file is or will be, after the links in its path are followed.
    fn place(&self, path: &Path) -> Result<PathBuf, ToolError> {
        let outside = || ToolError::Outside(path.display().to_string());
        for ancestor in path.ancestors() {
            let start = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
            match self.dir.canonicalize(start) {
                Ok(place) => {
                    let rest = path.strip_prefix(ancestor).map_err(|_| outside())?;
                    let place = if rest.as_os_str().is_empty() { place } else { place.join(rest) };
                    guard_git(&place)?;
                    return Ok(place);
                }
                // A link to nowhere, or to a place outside.
                Err(_) if self.exists(start) => return Err(outside()),
                Err(_) => {}
            }
        }
        Err(outside())
    }
}

/// Moves a file to a place where nothing is, also if another process creates something there at the same time.
fn move_to_free_place(dir: &Dir, from: &Path, to: &Path) -> io::Result<()> {
    match dir.hard_link(from, dir, to) {
        Ok(()) => dir.remove_file(from),
        // A file system without links, or a file of another user.
        Err(error) if is_without_links(&error) => match dir.symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => dir.rename(from, dir, to),
        },
        Err(error) => Err(error),
    }
}

fn is_without_links(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let without = [Errno::PERM, Errno::OPNOTSUPP, Errno::MLINK];
    Errno::from_io_error(error).is_some_and(|errno| without.contains(&errno))
}

/// Refuses the files of Git, which can name programs that Git runs.
fn guard_git(path: &Path) -> Result<(), ToolError> {
    let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
    if path.components().any(is_git) {
        return Err(ToolError::Other(format!(
            "{}: the files of Git are changed only by Git",
            path.display()
        )));
    }
    Ok(())
}

/// A new content that is not yet in its place. Dropping it leaves everything as it was.
pub struct Prepared<'a> {
    dir: &'a Dir,
    temporary: Option<PathBuf>,
    place: PathBuf,
}

impl Prepared<'_> {
    /// Replaces the old content.
    ///
    /// # Errors
    /// The folder has changed.
    pub fn commit(mut self) -> Result<(), ToolError> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let moved = self.dir.rename(temporary, self.dir, &self.place);
        moved.map_err(|error| ToolError::file(&self.place, error))?;
        self.temporary = None;
        Ok(())
    }

    /// Puts the content in its place if nothing is there.
    ///
    /// # Errors
    /// There is something, or the folder has changed.
    pub fn create(mut self) -> Result<(), ToolError> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let moved = move_to_free_place(self.dir, temporary, &self.place);
        moved.map_err(|error| ToolError::file(&self.place, error))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing else can be done about a file that stays.
            let _ = self.dir.remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        let root = Root::open(&folder.path().join("inner")).unwrap();
        (folder, root)
    }

    #[test]
    fn paths_stay_in_the_folder() {
        let (folder, root) = root();
        let inner = folder.path().join("inner");
        for (path, relative) in
            [("a/../b", "b"), (".", "."), ("", "."), ("./x/", "x"), (inner.join("c").to_str().unwrap(), "c")]
        {
            assert_eq!(root.relative(path).unwrap(), Path::new(relative), "{path}");
        }
        for path in ["..", "a/../../secret", "/etc/passwd", folder.path().to_str().unwrap()] {
            assert!(matches!(root.relative(path), Err(ToolError::Outside(_))), "{path}");
        }
    }

    #[test]
    fn links_do_not_lead_out() {
        let (folder, root) = root();
        let inner = folder.path().join("inner");
        symlink("../secret", inner.join("file")).unwrap();
        symlink("..", inner.join("folder")).unwrap();
        symlink("../new", inner.join("dangling")).unwrap();
        for path in ["file", "folder/secret", "dangling"] {
            assert!(root.text(Path::new(path)).is_err(), "{path}");
            assert!(root.prepare(Path::new(path), "x").is_err(), "{path}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "s");
        assert!(!folder.path().join("new").exists());
        // A link within the folder stays a link.
        fs::write(inner.join("real"), "old").unwrap();
        symlink("real", inner.join("link")).unwrap();
        root.prepare(Path::new("link"), "new").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(inner.join("real")).unwrap(), "new");
        assert!(inner.join("link").is_symlink());
    }

    #[test]
    fn files_of_git_and_special_files_are_refused() {
        let (folder, root) = root();
        let inner = folder.path().join("inner");
        fs::create_dir(inner.join(".git")).unwrap();
        symlink(".git", inner.join("other")).unwrap();
        for path in [".git/config", ".GIT/hooks/x", "other/config"] {
            assert!(root.prepare(Path::new(path), "x").is_err(), "{path}");
        }
        assert!(root.text(Path::new("other")).is_err());
        assert!(root.prepare(Path::new("."), "x").is_err());
    }

    #[test]
    fn what_is_not_committed_leaves_nothing_behind() {
        let (folder, root) = root();
        drop(root.prepare(Path::new("a/b"), "x").unwrap());
        assert_eq!(fs::read_dir(folder.path().join("inner/a")).unwrap().count(), 0);
    }
}
