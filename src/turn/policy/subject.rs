//! What a call is about, and whether a rule's pattern fits it.
//!
//! Whoever is refused tries other spellings. So a rule that denies or asks is held against every form that a
//! subject may be meant in, and one that allows only against the one form that is sure. For commands this
//! keeps honest mistakes out, and not more: a shell knows endless ways to say a thing. What must never run
//! needs a rule for the tool or its category.

use crate::types::{FilePath, PatternRule};
use serde_json::{Map, Value};
use url::{Host, Url};

/// Arguments that hold paths, in small letters and without what joins words.
const PATHS: &[&str] = &[
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
const COMMANDS: &[&str] = &["command", "cmd"];
const URLS: &[&str] = &["url", "urls", "uri"];
const HOSTS: &[&str] = &["host", "hosts", "hostname", "domain"];

/// Words in front of a command that leave it the same command.
const LEADS: &[&str] = &[
    "sudo", "env", "command", "exec", "eval", "nohup", "time", "sh", "bash", "-c", "{", "!", "if", "then",
    "else", "while", "do",
];

/// Something that a call is about.
#[derive(Debug)]
pub(super) struct Subject {
    kind: Kind,
    /// What it may be: a rule that denies or asks fits if it fits one of these. `None` for what may be
    /// anything, which all of them fit.
    forms: Option<Vec<String>>,
    /// What it is for sure, in its parts: rules that allow must fit each. None do where it is empty.
    parts: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Path,
    Command,
    Host,
}

impl Subject {
    /// All that a call with these arguments is about.
    pub(super) fn all(args: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        let Some(args) = args.as_object() else { return found };
        for (name, value) in args.iter().filter(|(_, value)| !value.is_null()) {
            let name = plain(name);
            let is = |names: &[&str]| names.contains(&name.as_str());
            if is(COMMANDS) {
                found.push(command(value, args));
                continue;
            }
            let (kind, read): (Kind, fn(&str) -> Self) = match () {
                () if is(PATHS) => (Kind::Path, path),
                () if is(URLS) => (Kind::Host, url),
                () if is(HOSTS) => (Kind::Host, host),
                () => continue,
            };
            let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            found.extend(items.iter().map(|item| match item.as_str() {
                Some(text) => read(text),
                // There is more to the call than can be told.
                None => Self { kind, forms: Some(Vec::new()), parts: Vec::new() },
            }));
        }
        found
    }

    /// Whether a rule that denies or asks is about it.
    pub(super) fn is_met_by(&self, rule: &PatternRule) -> bool {
        self.forms.as_ref().is_none_or(|forms| forms.iter().any(|form| self.kind.fits(&rule.pattern, form)))
    }

    /// Whether these rules allow all of it.
    pub(super) fn is_covered_by(&self, rules: &[&PatternRule]) -> bool {
        let covers = |part: &String| rules.iter().any(|rule| self.kind.fits(&rule.pattern, part));
        !self.parts.is_empty() && self.parts.iter().all(covers)
    }
}

impl Kind {
    fn fits(self, pattern: &str, text: &str) -> bool {
        match self {
            Self::Path => {
                let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
                fast_glob::glob_match(pattern, text)
            }
            Self::Command => is_like(&words(pattern), text),
            // With a slash it is about URLs, and without about hosts.
            Self::Host if pattern.contains('/') != text.contains('/') => false,
            Self::Host if pattern.contains('/') => is_like(&pattern.to_lowercase(), text),
            Self::Host => is_like(&host_name(pattern).unwrap_or_else(|| pattern.to_lowercase()), text),
        }
    }
}

/// Whether a text is like a pattern in which `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    // What comes first is best taken where it first stands: that leaves most for the others.
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = left.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// The name of an argument, however its words are joined.
fn plain(name: &str) -> String {
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
    // Others may take it for something else.
    is_sure &= is_inside && visible == text && !text.contains('\\');
    is_sure &= path.is_empty() || FilePath::parse(&path).is_ok();
    Subject {
        kind: Kind::Path,
        parts: Vec::from_iter(is_sure.then(|| path.clone())),
        // What is inside of a folder is also what is done to the folder.
        forms: is_inside.then(|| vec![format!("{path}/"), path]),
    }
}

fn command(value: &Value, args: &Map<String, Value>) -> Subject {
    let mut text = String::new();
    let mut is_sure = add_words(&mut text, value);
    for (_, more) in args.iter().filter(|(name, _)| ["args", "arguments", "argv"].contains(&&*plain(name))) {
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
    // A line that ends in a backslash goes on in the next one.
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

/// Adds the words of a command to those before. Whether all of it was words.
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

/// Words with one space in between.
fn words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// A command without what stands before it, its program without its folder.
fn program(command: &str) -> std::borrow::Cow<'_, str> {
    let mut rest = command;
    while let Some((word, behind)) = rest.split_once(' ') {
        let is_variable = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let lead = word.rsplit('/').next().unwrap_or(word);
        if !is_variable && !LEADS.contains(&lead) {
            break;
        }
        rest = behind;
    }
    let (word, behind) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    match word.rsplit_once('/') {
        Some((_, name)) => format!("{name}{behind}").into(),
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

/// The one way to write a host; `None` when it is none.
fn host_name(text: &str) -> Option<String> {
    let name = Host::parse(text).ok()?.to_string();
    Some(name.trim_end_matches('.').to_lowercase())
}
