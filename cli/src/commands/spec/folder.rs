//! Specs in the folder `specs` of a project.

use crate::error::{Error, InFile as _, Result};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The template of a spec.
pub(crate) const SPEC_TEMPLATE: &str = include_str!("../init/spec.md");

/// A spec in a file.
#[derive(Debug, PartialEq)]
pub(crate) struct LocalSpec {
    /// The name: that of the file without `.md`.
    pub(crate) name: String,
    /// The content.
    pub(crate) text: Vec<u8>,
}

impl LocalSpec {
    /// Reads the file that an argument names; `None` if the argument is the name of a spec.
    pub(crate) fn named(spec: &str) -> Result<Option<Self>> {
        let is_file = spec.ends_with(".md") || spec.contains(std::path::is_separator);
        if is_file { Self::read(Path::new(spec)).map(Some) } else { Ok(None) }
    }

    /// Reads a file, whose name is that of the spec.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let is_markdown = file.extension().is_some_and(|extension| extension == "md");
        let name = file.file_stem().and_then(|name| name.to_str()).filter(|_| is_markdown);
        let Some(name) = name.filter(|name| is_name(name)) else {
            let why = "the name of a spec's file is NAME.md, with letters, digits, `-` and `_`";
            return Err(Error::Usage(format!("{}: {why}", file.display())));
        };
        Ok(Self { name: name.to_owned(), text: fs::read(file).in_file(file)? })
    }
}

/// Writes `specs/NAME.md`, and returns its path.
pub(super) fn write(name: &str, text: &str, replaces: bool) -> Result<PathBuf> {
    let path = path_of(name)?;
    let folder = Path::new("specs");
    fs::create_dir_all(folder).in_file(folder)?;
    let file = if replaces { File::create(&path) } else { File::create_new(&path) };
    match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&path)),
        file => {
            file.and_then(|mut file| file.write_all(text.as_bytes())).in_file(&path)?;
            Ok(path)
        }
    }
}

/// Refuses to generate a spec whose file must not be replaced.
pub(super) fn check_absent(name: &str) -> Result<()> {
    let path = path_of(name)?;
    if path.symlink_metadata().is_ok() { Err(exists(&path)) } else { Ok(()) }
}

fn path_of(name: &str) -> Result<PathBuf> {
    match is_name(name) {
        true => Ok(Path::new("specs").join(format!("{name}.md"))),
        false => {
            let why = "the name of a spec has 1 to 64 letters, digits, `-` and `_`";
            Err(Error::Usage(format!("{name:?}: {why}")))
        }
    }
}

fn exists(path: &Path) -> Error {
    Error::Usage(format!("{}: exists already", path.display()))
}

fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_a_file_or_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fix-1.md");
        fs::write(&file, "# Goal").unwrap();
        let read = LocalSpec::named(file.to_str().unwrap()).unwrap();
        assert_eq!(read, Some(LocalSpec { name: "fix-1".into(), text: b"# Goal".to_vec() }));
        assert_eq!(LocalSpec::named("fix-1").unwrap(), None);
        let missing = folder.path().join("none.md");
        assert!(matches!(LocalSpec::named(missing.to_str().unwrap()), Err(Error::File { .. })));
        for name in ["a b.md", "specs/", "a/b.txt", ".md", "ü.md"] {
            assert!(matches!(LocalSpec::named(name), Err(Error::Usage(_))), "{name}");
        }
    }

    #[test]
    fn a_name_stays_in_the_folder() {
        for name in ["", "..", "a/b", "a.md", &"x".repeat(65)] {
            assert!(matches!(path_of(name), Err(Error::Usage(_))), "{name}");
        }
        assert_eq!(path_of("a_B-9").unwrap(), Path::new("specs/a_B-9.md"));
    }

    #[test]
    fn the_template_names_itself() {
        assert!(SPEC_TEMPLATE.starts_with("---\nname: template\n"));
    }
}
