//! Which tools a turn is offered when there are more than a model chooses from well: those whose
//! words fit what the user said best. Plain counting of words, the same on any machine.

use crate::types::ToolSpec;
use std::collections::{BTreeMap, BTreeSet};

/// Most words of the user that count.
const MAX_WORDS: usize = 2_000;
/// What a word in a tool's name counts; in its description or its arguments' names it counts 1.
const NAME: f64 = 3.0;

/// How tools are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSelection {
    /// Most tools that are offered.
    pub cap: usize,
    /// Tools that are always offered, whatever the cap, beside those that steer the session.
    pub always: Vec<String>,
}

impl Default for ToolSelection {
    fn default() -> Self {
        Self { cap: 25, always: Vec::new() }
    }
}

/// The names of the tools to offer, sorted: those that are always offered, and as many as the cap
/// allows of those that fit `query` best, equals by name. All when they are within the cap.
pub fn select(query: &str, tools: &[ToolSpec], selection: &ToolSelection) -> Vec<String> {
    let is_always = |tool: &&ToolSpec| tool.control || selection.always.contains(&tool.name);
    let (mut kept, mut others): (Vec<_>, Vec<_>) = tools.iter().partition(is_always);
    if tools.len() > selection.cap {
        let scores = scores(query, tools);
        let score = |tool: &&ToolSpec| scores.get(tool.name.as_str()).copied().unwrap_or_default();
        others.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| a.name.cmp(&b.name)));
        others.truncate(selection.cap.saturating_sub(kept.len()));
    }
    kept.append(&mut others);
    let mut names: Vec<String> = kept.into_iter().map(|tool| tool.name.clone()).collect();
    names.sort();
    names
}

/// How well each tool fits: each word of the query that it knows counts the more the fewer tools
/// know it.
fn scores<'a>(query: &str, tools: &'a [ToolSpec]) -> BTreeMap<&'a str, f64> {
    let asked: BTreeSet<String> = words(query).take(MAX_WORDS).collect();
    let known: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), weights(tool))).collect();
    let rarity = |word: &str| {
        let tools_with_it = known.iter().filter(|(_, weights)| weights.contains_key(word)).count();
        #[allow(clippy::cast_precision_loss, reason = "there are few tools")]
        let share = known.len() as f64 / tools_with_it.max(1) as f64;
        share.ln_1p()
    };
    let asked: Vec<(&String, f64)> = asked.iter().map(|word| (word, rarity(word))).collect();
    let score = |weights: &BTreeMap<String, f64>| {
        asked.iter().map(|(word, rarity)| weights.get(*word).map_or(0.0, |weight| weight * rarity)).sum()
    };
    known.iter().map(|(name, weights)| (*name, score(weights))).collect()
}

/// The words of a tool, and what each counts.
fn weights(tool: &ToolSpec) -> BTreeMap<String, f64> {
    let arguments = tool.parameters.get("properties").and_then(|properties| properties.as_object());
    let arguments = arguments.into_iter().flat_map(|properties| properties.keys());
    let others = words(&tool.description).chain(arguments.flat_map(|name| words(name)));
    let mut weights: BTreeMap<String, f64> = others.map(|word| (word, 1.0)).collect();
    weights.extend(words(&tool.name).map(|word| (word, NAME)));
    weights
}

/// The words of a text, each brought to its stem.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| stem(word.to_lowercase()))
}

/// A rough stem: `files` and `filing` are as `file`, `queries` as `query`. What it makes need not be
/// a word, as long as it makes the same of what means the same.
fn stem(mut word: String) -> String {
    let ends = |word: &str, end: &str, least: usize| word.len() >= least && word.ends_with(end);
    if ends(&word, "ies", 5) {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["ches", "shes", "xes", "sses"].iter().any(|end| ends(&word, end, 5)) {
        word.truncate(word.len() - 2);
    } else if ends(&word, "s", 4) && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.truncate(word.len() - 1);
    }
    if ends(&word, "ing", 6) {
        word.truncate(word.len() - 3);
        let mut last = word.chars().rev();
        if let (Some(a), Some(b)) = (last.next(), last.next())
            && a == b
            && !matches!(a, 'l' | 's')
        {
            word.pop();
        }
    }
    if ends(&word, "e", 4) {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Effect;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;
    use serde_json::json;
    use std::cmp::Reverse;

    fn tool(name: &str, description: &str, arguments: &[&str]) -> ToolSpec {
        let properties: serde_json::Map<_, _> =
            arguments.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: json!({"type": "object", "properties": properties}),
            effect: Effect::ReadOnly,
            idempotent: true,
            retry_on_timeout: true,
            varies: false,
            category: Default::default(),
            control: false,
            suspends: None,
        }
    }

    #[test]
    fn the_words_of_the_user_choose() {
        let tools = [
            tool("calendar_list", "Lists events of a calendar.", &["from", "to"]),
            tool("file_read", "Reads a file.", &["path"]),
            tool("file_write", "Writes a file.", &["path", "text"]),
            tool("mail_send", "Sends a message.", &["recipient", "subject"]),
            tool("web_search", "Searches the web.", &["query"]),
        ];
        let kept = |query: &str, cap: usize, always: &[&str]| {
            let always = always.iter().map(|name| (*name).to_owned()).collect();
            select(query, &tools, &ToolSelection { cap, always })
        };
        assert_eq!(kept("Which events are in my calendars?", 1, &[]), ["calendar_list"]);
        assert_eq!(kept("please keep reading the files", 2, &[]), ["file_read", "file_write"]);
        assert_eq!(kept("who is the recipient", 1, &[]), ["mail_send"]);
        assert_eq!(kept("SEARCHING", 2, &["mail_send"]), ["mail_send", "web_search"]);
        assert_eq!(kept("nothing fits", 2, &[]), ["calendar_list", "file_read"]);
        assert_eq!(kept("search", 1, &["file_read", "mail_send", "unknown"]), ["file_read", "mail_send"]);
        assert_eq!(kept("search", 5, &[]).len(), 5);
        assert_eq!(ToolSelection::default().cap, 25);
    }

    #[test]
    fn stems() {
        for (one, other) in [
            ("files", "file"),
            ("queries", "query"),
            ("searches", "searching"),
            ("running", "run"),
            ("writing", "write"),
            ("calling", "calls"),
        ] {
            assert_eq!(stem(one.into()), stem(other.into()));
        }
        assert_eq!(
            ["status", "class", "is", "sing"].map(|word| stem(word.into())),
            ["status", "class", "is", "sing"]
        );
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_bounds_hold(
            names in prop::collection::btree_map("[a-c]_[a-d]{1,2}", "[a-d]( [a-d]){0,3}", 0..12),
            query in "[a-d ]{0,8}",
            cap in 0..8usize,
            always in prop::collection::vec("[a-c]_[a-d]{1,2}", 0..3),
            turn in 0..12usize,
        ) {
            let mut tools: Vec<_> = names.iter().map(|(name, text)| tool(name, text, &[])).collect();
            let selection = ToolSelection { cap, always };
            let kept = select(&query, &tools, &selection);
            let by = turn % tools.len().max(1);
            tools.rotate_left(by);
            tools.sort_by_key(|tool| Reverse(tool.description.clone()));
            prop_assert_eq!(&kept, &select(&query, &tools, &selection));
            let forced = selection.always.iter().filter(|name| names.contains_key(*name)).collect::<BTreeSet<_>>();
            prop_assert!(forced.iter().all(|name| kept.contains(name)));
            prop_assert_eq!(kept.len(), names.len().min(cap.max(forced.len())));
            prop_assert!(kept.is_sorted());
        }
    }
}
