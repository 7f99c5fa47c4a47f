//! Selects the tools that a turn offers when there are too many: those whose words best match the user's
//! message. Counts words, so that the result is the same on every machine.

use crate::types::ToolSpec;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Maximum number of words of the user's message that count.
const MAX_WORDS: usize = 2_000;
/// Weight of a word in a tool's name. Words in descriptions and argument names have weight 1.
const NAME_WEIGHT: f64 = 3.0;

/// How tools are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSelection {
    /// Maximum number of offered tools. Control tools are always offered and do not count.
    pub cap: usize,
    /// Tools that are offered regardless of the cap.
    pub always: Vec<String>,
}

impl Default for ToolSelection {
    fn default() -> Self {
        Self { cap: 25, always: Vec::new() }
    }
}

/// The words of tools. They are read once, because each turn of an agent with many tools selects some.
#[derive(Clone, Default)]
pub struct ToolIndex {
    /// The tools that contain each word, with its weight there.
    words: BTreeMap<String, Vec<(Rc<str>, f64)>>,
}

impl<'a> FromIterator<&'a Rc<ToolSpec>> for ToolIndex {
    fn from_iter<I: IntoIterator<Item = &'a Rc<ToolSpec>>>(tools: I) -> Self {
        let mut index = Self::default();
        for tool in tools {
            let name: Rc<str> = tool.name.as_str().into();
            for (word, weight) in weights(tool) {
                index.words.entry(word).or_default().push((Rc::clone(&name), weight));
            }
        }
        index
    }
}

impl ToolIndex {
    /// Returns the names of those of `tools` to offer, sorted: all of them if they are within the cap; otherwise those
    /// that are always offered and, up to the cap, those that best match `query`. Ties are broken by name.
    pub fn select(&self, query: &str, tools: &[Rc<ToolSpec>], selection: &ToolSelection) -> Vec<String> {
        let is_always = |tool: &&Rc<ToolSpec>| tool.control || selection.always.contains(&tool.name);
        let (mut selected, mut others): (Vec<_>, Vec<_>) = tools.iter().partition(is_always);
        if tools.len() > selection.cap {
            let scores = self.scores(query, tools);
            let score = |tool: &&Rc<ToolSpec>| scores.get(tool.name.as_str()).copied().unwrap_or_default();
            others.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| a.name.cmp(&b.name)));
            let counted = selected.iter().filter(|tool| !tool.control).count();
            others.truncate(selection.cap.saturating_sub(counted));
        }
        selected.append(&mut others);
        let mut names: Vec<String> = selected.into_iter().map(|tool| tool.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns up to `most` of `tools` that have a word of the query, the best match first.
    pub fn best<'a>(&self, query: &str, tools: &'a [Rc<ToolSpec>], most: usize) -> Vec<&'a ToolSpec> {
        let scores = self.scores(query, tools);
        let score = |tool: &ToolSpec| scores.get(tool.name.as_str()).copied().unwrap_or_default();
        let mut found: Vec<&ToolSpec> =
            tools.iter().map(Rc::as_ref).filter(|tool| score(tool) > 0.0).collect();
        found.sort_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| a.name.cmp(&b.name)));
        found.truncate(most);
        found
    }

    /// Scores each of `tools`. A word of the query that occurs in a tool counts more the fewer of them contain it.
    fn scores<'a>(&self, query: &str, tools: &'a [Rc<ToolSpec>]) -> BTreeMap<&'a str, f64> {
        let mut scores: BTreeMap<&str, f64> = tools.iter().map(|tool| (tool.name.as_str(), 0.0)).collect();
        let query: BTreeSet<String> = words(query).take(MAX_WORDS).collect();
        for with_word in query.iter().filter_map(|word| self.words.get(word)) {
            let count = with_word.iter().filter(|(name, _)| scores.contains_key(&**name)).count();
            #[allow(clippy::cast_precision_loss, reason = "there are few tools")]
            let rarity = (tools.len() as f64 / count.max(1) as f64).ln_1p();
            for (name, weight) in with_word {
                if let Some(score) = scores.get_mut(&**name) {
                    *score += weight * rarity;
                }
            }
        }
        scores
    }
}

/// Returns the words of a tool with their weights.
fn weights(tool: &ToolSpec) -> BTreeMap<String, f64> {
    let arguments = tool.parameters.get("properties").and_then(|properties| properties.as_object());
    let arguments = arguments.into_iter().flat_map(|properties| properties.keys());
    let others = words(&tool.description).chain(arguments.flat_map(|name| words(name)));
    let mut weights: BTreeMap<String, f64> = others.map(|word| (word, 1.0)).collect();
    weights.extend(words(&tool.name).map(|word| (word, NAME_WEIGHT)));
    weights
}

/// Splits a text into words and reduces each to its stem.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| stem(word.to_lowercase()))
}

/// Returns a rough stem: `files` and `filing` become the same as `file`, `queries` the same as `query`. The
/// result need not be a word.
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

    fn tool(name: &str, description: &str, arguments: &[&str]) -> Rc<ToolSpec> {
        let properties: serde_json::Map<_, _> =
            arguments.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        Rc::new(ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: json!({"type": "object", "properties": properties}).into(),
            effect: Effect::ReadOnly,
            idempotent: true,
            retry_on_timeout: true,
            varies: false,
            category: Default::default(),
            control: false,
            suspends: None,
            client_may_repeat: false,
        })
    }

    #[test]
    fn tools_that_match_the_query_are_selected() {
        let tools = [
            tool("calendar_list", "Lists events of a calendar.", &["from", "to"]),
            tool("file_read", "Reads a file.", &["path"]),
            tool("file_write", "Writes a file.", &["path", "text"]),
            tool("mail_send", "Sends a message.", &["recipient", "subject"]),
            tool("web_search", "Searches the web.", &["query"]),
        ];
        let index: ToolIndex = tools.iter().collect();
        let selected = |query: &str, cap: usize, always: &[&str]| {
            let always = always.iter().map(|name| (*name).to_owned()).collect();
            index.select(query, &tools, &ToolSelection { cap, always })
        };
        assert_eq!(selected("Which events are in my calendars?", 1, &[]), ["calendar_list"]);
        assert_eq!(selected("please keep reading the files", 2, &[]), ["file_read", "file_write"]);
        assert_eq!(selected("who is the recipient", 1, &[]), ["mail_send"]);
        assert_eq!(selected("SEARCHING", 2, &["mail_send"]), ["mail_send", "web_search"]);
        assert_eq!(selected("nothing fits", 2, &[]), ["calendar_list", "file_read"]);
        assert_eq!(selected("search", 1, &["file_read", "mail_send", "unknown"]), ["file_read", "mail_send"]);
        assert_eq!(selected("search", 5, &[]).len(), 5);
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

    #[test]
    fn only_the_given_tools_are_compared() {
        let tools = ["read_file", "read_page", "find"].map(|name| tool(name, "reads and finds", &[]));
        let index: ToolIndex = tools.iter().collect();
        let few = [tools[1].clone(), tools[2].clone()];
        let own: ToolIndex = few.iter().collect();
        assert_eq!(index.scores("find what I read", &few), own.scores("find what I read", &few));
        let names =
            |found: Vec<&ToolSpec>| found.into_iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(index.best("file", &tools, 8)), ["read_file"]);
        assert!(index.best("file", &few, 8).is_empty());
    }

    proptest! {
        #[test]
        fn selection_is_independent_of_order_and_within_the_cap(
            names in prop::collection::btree_map("[a-c]_[a-d]{1,2}", "[a-d]( [a-d]){0,3}", 0..12),
            query in "[a-d ]{0,8}",
            cap in 0..8usize,
            always in prop::collection::vec("[a-c]_[a-d]{1,2}", 0..3),
            turn in 0..12usize,
        ) {
            let mut tools: Vec<_> = names.iter().map(|(name, text)| tool(name, text, &[])).collect();
            let selection = ToolSelection { cap, always };
            let select = |tools: &[Rc<ToolSpec>]| tools.iter().collect::<ToolIndex>().select(&query, tools, &selection);
            let selected = select(&tools);
            let by = turn % tools.len().max(1);
            tools.rotate_left(by);
            tools.sort_by_key(|tool| Reverse(tool.description.clone()));
            prop_assert_eq!(&selected, &select(&tools));
            let forced = selection.always.iter().filter(|name| names.contains_key(*name)).collect::<BTreeSet<_>>();
            prop_assert!(forced.iter().all(|name| selected.contains(name)));
            prop_assert_eq!(selected.len(), names.len().min(cap.max(forced.len())));
            prop_assert!(selected.is_sorted());
        }
    }
}
