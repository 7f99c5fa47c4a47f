//! Validated file paths and path prefixes.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use std::fmt;
use thiserror::Error;

/// Maximum length of a path, in bytes.
pub const MAX_BYTES: usize = 512;
/// Maximum number of names in a path.
pub const MAX_DEPTH: usize = 32;

/// Why a text is not a valid path. The messages are for the path's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty")]
    Empty,
    /// The path is longer than [`MAX_BYTES`].
    #[error("the path is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The path has more than [`MAX_DEPTH`] names.
    #[error("the path is deeper than {MAX_DEPTH} folders")]
    TooDeep,
    /// The path contains `//` or ends in `/`.
    #[error("the path contains an empty name")]
    EmptyName,
    /// A name is `.` or `..`.
    #[error("`.` and `..` are not allowed; write the path from the workspace's root")]
    Dots,
    /// The path contains a control character or a backslash.
    #[error("control characters and backslashes are not allowed in a path; separate names by `/`")]
    Character,
}

/// The normalized path of a file: names separated by `/`, without a leading `/`.
///
/// ```
/// use edge_harness::types::FilePath;
/// assert_eq!(FilePath::parse("/skills/a..b.md").unwrap().as_str(), "skills/a..b.md");
/// assert!(FilePath::parse("skills/../x").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FilePath(String);

impl FilePath {
    /// Parses a path. One leading `/` is accepted and removed.
    ///
    /// # Errors
    /// The path is not valid.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let path = checked(text)?;
        match path.rsplit('/').next() {
            _ if path.is_empty() => Err(PathError::Empty),
            Some("") => Err(PathError::EmptyName),
            Some("." | "..") => Err(PathError::Dots),
            _ => Ok(Self(path.to_owned())),
        }
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last name of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the text after the last dot of the name, if there is a dot.
    pub fn extension(&self) -> Option<&str> {
        self.name().rsplit_once('.').map(|(_, extension)| extension)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The start of a path: empty, a folder with its trailing slash, or an incomplete name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathPrefix(String);

impl PathPrefix {
    /// Parses a prefix literally: `sk` matches `skills/x`.
    ///
    /// # Errors
    /// No valid path starts with the text.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        checked(text).map(|prefix| Self(prefix.to_owned()))
    }

    /// Parses the name of a folder, with or without a trailing slash; empty for the root.
    ///
    /// # Errors
    /// The name is not a valid path.
    pub fn folder(text: &str) -> Result<Self, PathError> {
        let name = text.strip_suffix('/').unwrap_or(text);
        match name {
            "" | "." => Ok(Self::default()),
            name => FilePath::parse(name).map(|path| Self(format!("{path}/"))),
        }
    }

    /// Returns the prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `path` starts with this prefix.
    pub fn fits(&self, path: &str) -> bool {
        path.starts_with(&self.0)
    }

    /// Returns the exclusive upper bound of the paths with this prefix; `None` if there is no bound.
    pub fn end(&self) -> Option<String> {
        // U+10FFFF is a noncharacter and is not allowed in paths.
        (!self.0.is_empty()).then(|| format!("{}\u{10ffff}", self.0))
    }
}

impl From<&FilePath> for PathPrefix {
    fn from(path: &FilePath) -> Self {
        Self(path.0.clone())
    }
}

/// Checks the rules that hold for paths and for prefixes.
fn checked(text: &str) -> Result<&str, PathError> {
    let path = text.strip_prefix('/').unwrap_or(text);
    if path.len() > MAX_BYTES {
        return Err(PathError::TooLong);
    }
    if path.chars().any(|c| c.is_control() || c == '\\' || c == '\u{10ffff}') {
        return Err(PathError::Character);
    }
    let mut names: Vec<&str> = path.split('/').collect();
    if names.len() > MAX_DEPTH {
        return Err(PathError::TooDeep);
    }
    // The last name may be incomplete.
    names.pop();
    if names.contains(&"") {
        return Err(PathError::EmptyName);
    }
    if names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err(PathError::Dots);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_cannot_traverse_out_of_the_workspace() {
        for (text, error) in [
            ("", PathError::Empty),
            ("/", PathError::Empty),
            ("..", PathError::Dots),
            (".", PathError::Dots),
            ("../user-2/x", PathError::Dots),
            ("/../x", PathError::Dots),
            ("a/./b", PathError::Dots),
            ("a/..", PathError::Dots),
            ("//a", PathError::EmptyName),
            ("a//b", PathError::EmptyName),
            ("a/", PathError::EmptyName),
            ("a\\..\\b", PathError::Character),
            ("a\0b", PathError::Character),
            ("a\nb", PathError::Character),
            ("a\u{85}b", PathError::Character),
            (&"x".repeat(513), PathError::TooLong),
            (&["x"; 33].join("/"), PathError::TooDeep),
        ] {
            assert_eq!(FilePath::parse(text), Err(error), "{text:?}");
        }
        for (text, path) in [
            ("skills/x", "skills/x"),
            ("/skills/x", "skills/x"),
            ("a..b", "a..b"),
            (".hidden/...", ".hidden/..."),
            ("Zoë 山.md", "Zoë 山.md"),
            (&"x".repeat(512), &*"x".repeat(512)),
        ] {
            assert_eq!(FilePath::parse(text).expect(text).as_str(), path);
        }
    }

    #[test]
    fn a_folder_differs_from_a_prefix_of_a_name() {
        let folder = |text| PathPrefix::folder(text).map(|prefix| prefix.0);
        assert_eq!(folder("/skills"), Ok("skills/".into()));
        assert_eq!(folder("skills/"), Ok("skills/".into()));
        assert_eq!(["", "/", "."].map(folder), [const { Ok(String::new()) }; 3]);
        assert_eq!(folder("a/.."), Err(PathError::Dots));
        assert!(!PathPrefix::folder("skill").expect("a folder").fits("skills/x"));
        assert!(PathPrefix::parse("/skill").expect("a prefix").fits("skills/x"));
        assert_eq!(PathPrefix::parse("a/../b"), Err(PathError::Dots));
    }

    proptest! {
        #[test]
        fn a_parsed_path_parses_again_and_has_only_plain_names(text in "[a./\\\\ é\u{0}]{0,12}") {
            if let Ok(path) = FilePath::parse(&text) {
                prop_assert_eq!(FilePath::parse(path.as_str()), Ok(path.clone()));
                prop_assert!(path.as_str().split('/').all(|name| !matches!(name, "" | "." | "..")));
                let slashed = format!("/{path}");
                prop_assert_eq!(FilePath::parse(&slashed), Ok(path));
            }
        }

        #[test]
        fn the_end_of_a_prefix_bounds_its_paths(prefix in "[a-c/é]{1,4}", path in "[a-c/é\u{ffff}]{0,6}") {
            if let (Ok(prefix), Ok(path)) = (PathPrefix::parse(&prefix), FilePath::parse(&path)) {
                let end = prefix.end();
                let within = path.as_str() >= prefix.as_str() && end.is_none_or(|end| path.as_str() < end.as_str());
                prop_assert_eq!(within, prefix.fits(path.as_str()));
            }
        }
    }
}
