//! Lists of what a server offers, as the model reads them.

use serde_json::{Map, Value, json};

/// Maximum number of entries of a list.
const MAX_ENTRIES: usize = 100;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 4;
/// Maximum length of a URI or name, in characters. A longer one cannot be shown whole, so the entry is left out.
const MAX_KEY: usize = 1_000;
/// Maximum length of other texts, in characters; the rest is cut.
const MAX_TEXT: usize = 300;
/// Maximum number of arguments of a prompt that are shown.
const MAX_ARGUMENTS: usize = 20;

/// A list of a server.
pub(super) struct List {
    pub method: &'static str,
    /// The field with the entries.
    pub field: &'static str,
    /// The field of an entry by which it is requested.
    key: &'static str,
}

pub(super) const RESOURCES: [List; 2] = [
    List { method: "resources/list", field: "resources", key: "uri" },
    List { method: "resources/templates/list", field: "resourceTemplates", key: "uriTemplate" },
];
pub(super) const PROMPTS: [List; 1] = [List { method: "prompts/list", field: "prompts", key: "name" }];

impl List {
    /// Reads the first entries from pages, each of which is requested with the given parameters. Returns a note if there are
    /// more.
    ///
    /// # Errors
    /// A page cannot be read.
    pub async fn read<E>(
        &self,
        page: impl AsyncFn(Map<String, Value>) -> Result<Value, E>,
    ) -> Result<(Vec<Value>, Option<String>), E> {
        let (mut entries, mut has_more) = (Vec::new(), false);
        let mut cursor = None::<String>;
        for number in 1..=MAX_PAGES {
            let params = cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into()));
            let page = page(Map::from_iter(params)).await?;
            let listed = page.get(self.field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for listed in listed {
                match self.entry(listed) {
                    Some(entry) if entries.len() < MAX_ENTRIES => entries.push(entry),
                    _ => has_more = true,
                }
            }
            cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() || entries.len() == MAX_ENTRIES || number == MAX_PAGES {
                break;
            }
        }
        has_more |= cursor.is_some();
        let note =
            has_more.then(|| format!("the server has more than these {} {}", entries.len(), self.field));
        Ok((entries, note))
    }

    /// Returns what the model reads of an entry.
    fn entry(&self, listed: &Value) -> Option<Value> {
        let key = listed.get(self.key)?.as_str().filter(|key| key.chars().nth(MAX_KEY).is_none())?;
        let mut entry = texts(listed, &["name", "title", "description", "mimeType"]);
        entry.insert(self.key.to_owned(), key.into());
        if let Some(arguments) = listed.get("arguments").and_then(Value::as_array) {
            let argument = |argument: &Value| {
                let mut shown = texts(argument, &["name", "description"]);
                shown.insert("required".to_owned(), json!(argument.get("required") == Some(&json!(true))));
                Value::from(shown)
            };
            let shown: Vec<Value> = arguments.iter().take(MAX_ARGUMENTS).map(argument).collect();
            entry.insert("arguments".to_owned(), shown.into());
        }
        Some(entry.into())
    }
}

/// Returns the texts in these fields, cut to their limit.
fn texts(listed: &Value, fields: &[&str]) -> Map<String, Value> {
    let text = |field: &&str| {
        let text = listed.get(*field)?.as_str().filter(|text| !text.is_empty())?;
        let mut shown: String = text.chars().take(MAX_TEXT).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Some(((*field).to_owned(), shown.into()))
    };
    fields.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pretty_assertions::assert_eq;
    use std::cell::Cell;

    fn read(list: &List, pages: &[Value]) -> (Vec<Value>, Option<String>, usize) {
        let asked = Cell::new(0);
        let page = async |params: Map<String, Value>| {
            let number = asked.replace(asked.get() + 1);
            assert_eq!(params.contains_key("cursor"), number > 0);
            pages.get(number).cloned().ok_or("too many pages")
        };
        let (entries, note) = block_on(list.read(page)).expect("pages");
        (entries, note, asked.get())
    }

    #[test]
    fn entries_are_bounded() {
        let many = |from: usize| (0..60).map(move |n| json!({"uri": format!("a:{}", from + n)}));
        let page = |from| json!({"resources": many(from).collect::<Vec<_>>(), "nextCursor": "c"});
        let (entries, note, pages) = read(&RESOURCES[0], &[page(0), page(60), page(120)]);
        assert_eq!((entries.len(), pages), (100, 2));
        assert_eq!(note.as_deref(), Some("the server has more than these 100 resources"));
        let empty = vec![json!({"nextCursor": "c"}); 5];
        assert_eq!(read(&RESOURCES[1], &empty).2, 4);
        let listed = json!({"resources": [
            {"uri": "a:".to_owned() + &"x".repeat(1_000)}, {"name": "n"}, "text",
            {"uri": "a:b", "name": "b", "description": "é".repeat(400), "size": 7, "mimeType": ""},
        ]});
        let (entries, note, _) = read(&RESOURCES[0], &[listed]);
        let expected = json!({"uri": "a:b", "name": "b", "description": "é".repeat(300) + "…"});
        assert_eq!(entries, [expected]);
        assert!(note.is_some());
    }

    #[test]
    fn a_prompt_has_its_arguments() {
        let arguments =
            json!([{"name": "a", "required": true, "x": 1}, {"name": "b", "description": "B."}, 7]);
        let listed = json!({"prompts": [{"name": "p", "arguments": arguments}]});
        let expected = json!({"name": "p", "arguments": [
            {"name": "a", "required": true}, {"name": "b", "description": "B.", "required": false}, {"required": false},
        ]});
        assert_eq!(read(&PROMPTS[0], &[listed]), (vec![expected], None, 1));
    }
}
