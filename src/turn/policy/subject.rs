//! Extracts the subjects of a call and matches them against the patterns of rules.
//!
//! A caller whose request was denied may try another spelling. Rules that deny or ask are therefore matched
//! against every possible reading of a subject, and rules that allow only against an unambiguous one. For
//! commands this prevents honest mistakes only, because a shell offers endless ways to express the same
//! command. To block a command reliably, deny its tool or category.

use crate::types::{FilePath, PatternRule};
use serde_json::{Map, Value};
use url::{Host, Url};

/// Names of arguments that hold paths, in lower case and without separators.
const PATH_ARGS: &[&str] = &[
    "path",
    "paths",
    "file",
    "files",
    "filepath",
    "filepaths",
    "filename",
    "from",
    "to",
    "source",
    "src",
    "destination",
    "dest",
    "dst",
    "oldpath",
    "newpath",
    "dir",
    "directory",
    "folder",
];
const COMMAND_ARGS: &[&str] = &["command", "cmd"];
const URL_ARGS: &[&str] = &["url", "urls", "uri"];
const HOST_ARGS: &[&str] = &["host", "hosts", "hostname", "domain"];

/// Words that may precede a command without changing it.
const PREFIX_WORDS: &[&str] = &[
    "sudo", "env", "command", "exec", "eval", "nohup", "time", "sh", "bash", "-c", "{", "!", "if", "then",
    "else", "while", "do",
];

/// One subject of a call.
#[derive(Debug)]
pub(super) struct Subject {
    kind: Kind,
    /// Every possible reading. A rule that denies or asks applies if it matches one of them. `None` if the
    /// subject may be anything; every such rule applies then.
    forms: Option<Vec<String>>,
    /// The parts of the only possible reading. A rule that allows must match each part. Empty if the reading
    /// is ambiguous.
    parts: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Path,
    Command,
    Host,
}

impl Subject {
    /// Returns all subjects of a call with these arguments.
    pub(super) fn all(args: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        let Some(args) = args.as_object() else { return found };
        for (name, value) in args.iter().filter(|(_, value)| !value.is_null()) {
            let name = normalize_name(name);
            let is = |names: &[&str]| names.contains(&name.as_str());
            if is(COMMAND_ARGS) {
                found.push(command(value, args));
                continue;
            }
            let (kind, read): (Kind, fn(&str) -> Self) = match () {
                () if is(PATH_ARGS) => (Kind::Path, path),
                () if is(URL_ARGS) => (Kind::Host, url),
                () if is(HOST_ARGS) => (Kind::Host, host),
                () => continue,
            };
            let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            found.extend(items.iter().map(|item| match item.as_str() {
                Some(text) => read(text),
                // Not text: its subject cannot be determined.
                None => Self { kind, forms: Some(Vec::new()), parts: Vec::new() },
            }));
        }
        found
    }

    /// Returns whether a rule that denies or asks applies to the subject.
    pub(super) fn is_restricted_by(&self, rule: &PatternRule) -> bool {
        self.forms
            .as_ref()
            .is_none_or(|forms| forms.iter().any(|form| self.kind.matches(&rule.pattern, form)))
    }

    /// Returns whether the subject may be one of these files, or below one of these folders. A path that leaves the
    /// workspace is none of them, and no tool accepts it.
    pub(super) fn may_be(&self, files: &[FilePath]) -> bool {
        let is_file = |form: &String| {
            files.iter().any(|file| {
                form.strip_prefix(file.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        matches!(self.kind, Kind::Path) && self.forms.as_ref().is_some_and(|forms| forms.iter().any(is_file))
    }

    /// Returns whether these rules allow the entire subject.
    pub(super) fn is_allowed_by(&self, rules: &[&PatternRule]) -> bool {
        let covers = |part: &String| rules.iter().any(|rule| self.kind.matches(&rule.pattern, part));
        !self.parts.is_empty() && self.parts.iter().all(covers)
    }
}

impl Kind {
    fn matches(self, pattern: &str, text: &str) -> bool {
        match self {
            Self::Path => {
                let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
                fast_glob::glob_match(pattern, text)
            }
            Self::Command => matches_glob(&words(pattern), text),
            // A pattern with a slash matches URLs, one without matches hosts.
            Self::Host if pattern.contains('/') != text.contains('/') => false,
            Self::Host if pattern.contains('/') => matches_glob(&pattern.to_lowercase(), text),
            Self::Host => matches_glob(&host_name(pattern).unwrap_or_else(|| pattern.to_lowercase()), text),
        }
    }
}

/// Matches a text against a pattern in which `*` matches any text.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    // The leftmost match leaves the most text for the remaining parts.
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = left.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Normalizes the name of an argument: lower case, without separators.
fn normalize_name(name: &str) -> String {
    name.chars().filter(|c| !"_-".contains(*c)).map(|c| c.to_ascii_lowercase()).collect()
}

fn path(text: &str) -> Subject {
    let mut names = Vec::new();
    let (mut is_inside, mut is_sure) = (true, true);
    let visible: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    for name in visible.split(['/', '\\']) {
        match name {
            "" | "." => {}
            ".." => is_inside &= names.pop().is_some(),
            name => names.push(name),
        }
    }
    let path = names.join("/");
    // Another program might interpret the path differently.
    is_sure &= is_inside && visible == text && !text.contains('\\');
    is_sure &= path.is_empty() || FilePath::parse(&path).is_ok();
    Subject {
        kind: Kind::Path,
        parts: Vec::from_iter(is_sure.then(|| path.clone())),
        // A pattern for the contents of a folder also applies to the folder itself.
        forms: is_inside.then(|| vec![format!("{path}/"), path]),
    }
}

fn command(value: &Value, args: &Map<String, Value>) -> Subject {
    let mut text = String::new();
    let mut is_sure = add_words(&mut text, value);
    for (_, more) in
        args.iter().filter(|(name, _)| ["args", "arguments", "argv"].contains(&&*normalize_name(name)))
    {
        is_sure &= add_words(&mut text, more);
    }
    let pieces = |text: &str| -> Vec<String> {
        let pieces = text.split(|c: char| ";&|()`".contains(c) || (c.is_control() && c != '\t'));
        pieces.map(words).filter(|piece| !piece.is_empty()).collect()
    };
    let has = |sign| text.contains(sign);
    let parts = match is_sure && !["$(", "`", "<", ">"].into_iter().any(has) {
        true => pieces(&text),
        false => Vec::new(),
    };
    // A backslash at the end of a line continues the command on the next line.
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut forms = vec![words(&text), words(&joined)];
    forms.extend(pieces(&text));
    forms.extend(pieces(&joined));
    for at in 0..forms.len() {
        if let Some(form) = forms.get(at) {
            let bare = words(&form.replace(['"', '\'', '\\'], ""));
            forms.push(program(&bare).into_owned());
            forms.push(bare);
        }
    }
    Subject { kind: Kind::Command, forms: Some(forms), parts }
}

/// Appends the words of a command. Returns whether every item was text.
fn add_words(text: &mut String, value: &Value) -> bool {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    for item in items.iter().filter_map(Value::as_str) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(item);
    }
    items.iter().all(Value::is_string)
}

/// Joins the words of a text with single spaces.
fn words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Strips the prefixes of a command and the folder of its program.
fn program(command: &str) -> std::borrow::Cow<'_, str> {
    let mut rest = command;
    while let Some((word, remaining)) = rest.split_once(' ') {
        let is_variable = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let base = word.rsplit('/').next().unwrap_or(word);
        if !is_variable && !PREFIX_WORDS.contains(&base) {
            break;
        }
        rest = remaining;
    }
    let (word, remaining) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    match word.rsplit_once('/') {
        Some((_, name)) => format!("{name}{remaining}").into(),
        None => rest.into(),
    }
}

fn url(text: &str) -> Subject {
    let mut forms = vec![text.trim().to_lowercase()];
    let parsed = Url::parse(text).ok();
    for url in parsed.iter().cloned().chain(Url::parse(&format!("http://{}", text.trim())).ok()) {
        forms.push(url.as_str().to_lowercase());
        forms.extend(host_of(&url));
    }
    let is_sure = |url: &Url| url.username().is_empty() && url.password().is_none() && !text.contains('\\');
    let parts = parsed.filter(is_sure).as_ref().and_then(host_of);
    Subject { kind: Kind::Host, forms: Some(forms), parts: parts.into_iter().collect() }
}

fn host(text: &str) -> Subject {
    Subject { parts: host_name(text).into_iter().collect(), ..url(text) }
}

fn host_of(url: &Url) -> Option<String> {
    url.host_str().and_then(host_name)
}

/// Returns the normal form of a host, or `None` when the text is not a host.
fn host_name(text: &str) -> Option<String> {
    let name = Host::parse(text).ok()?.to_string();
    Some(name.trim_end_matches('.').to_lowercase())
}
