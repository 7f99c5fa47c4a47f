//! Selects and renders the sources that a reply cites.

use crate::types::{Source, text};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Maximum number of cited sources of each kind.
pub const MAX_PER_KIND: usize = 8;
/// Maximum length of titles, paths and addresses, in characters.
const MAX_CHARS: usize = 300;
/// Characters that have a meaning in Markdown, which addresses must not contain.
const MARKDOWN_CHARS: &AsciiSet =
    &CONTROLS.add(b' ').add(b'[').add(b']').add(b'(').add(b')').add(b'<').add(b'>').add(b'\\').add(b'`');

/// Selects the sources to cite: the first of each kind, without duplicates. Titles and paths are untrusted
/// text, so they are truncated and reduced to one line. Web sources whose address is not HTTP are left out.
pub fn select(sources: &[Source]) -> Vec<Source> {
    let (mut local, mut web) = (0, 0);
    let mut selected: Vec<Source> = Vec::new();
    for source in sources.iter().filter_map(sanitize) {
        let count = match source {
            Source::Local { .. } => &mut local,
            Source::Web { .. } => &mut web,
        };
        if *count < MAX_PER_KIND && !selected.iter().any(|known| address(known) == address(&source)) {
            *count += 1;
            selected.push(source);
        }
    }
    selected
}

fn sanitize(source: &Source) -> Option<Source> {
    let line = |text: &str| text.chars().filter(|c| text::is_inline(*c)).take(MAX_CHARS).collect::<String>();
    let title = |title: &Option<String>| {
        let title = title.as_deref()?.split(['\n', '\r', '\t', '\u{2028}', '\u{2029}']);
        Some(line(&title.collect::<Vec<_>>().join(" ")))
    };
    Some(match source {
        Source::Local { path, title: text } => Source::Local { path: line(path), title: title(text) },
        Source::Web { url, title: text } => {
            let is =
                |scheme: &str| url.get(..scheme.len()).is_some_and(|own| own.eq_ignore_ascii_case(scheme));
            if !is("https://") && !is("http://") {
                return None;
            }
            Source::Web { url: line(url), title: title(text) }
        }
    })
}

/// Renders the Markdown that is appended to the reply.
pub fn render(sources: &[Source]) -> String {
    let mut text = "\n\nSources:".to_owned();
    for source in sources {
        let (Source::Local { title, .. } | Source::Web { title, .. }) = source;
        text.push_str("\n- ");
        if let Some(title) = title {
            escape(&mut text, title);
            text.push_str(": ");
        }
        match source {
            Source::Local { path, .. } => escape(&mut text, path),
            Source::Web { url, .. } => text.extend(utf8_percent_encode(url, MARKDOWN_CHARS)),
        }
    }
    text
}

/// Writes untrusted text so that it cannot form links, images or tags.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '[' | ']' | '(' | ')' | '!' | '<' | '>' | '\\' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
}

fn address(source: &Source) -> &str {
    match source {
        Source::Local { path, .. } => path,
        Source::Web { url, .. } => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_eight_of_each_kind_without_duplicates() {
        let local = |n: usize| Source::Local { path: format!("notes/{n}.md"), title: None };
        let web =
            |n: usize| Source::Web { url: format!("https://example.com/{n}"), title: Some("A\npage".into()) };
        let mut all: Vec<Source> = (0..12).map(local).chain((0..9).map(web)).collect();
        all.push(local(0));
        let selected = select(&all);
        assert_eq!(selected.len(), 16);
        let text = render(&selected);
        assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), 16);
        assert!(text.contains("\n- notes/7.md\n") && text.contains("- A page: https://example.com/7"));
    }

    #[test]
    fn titles_and_addresses_cannot_inject_markdown() {
        let web = |url: &str, title: &str| Source::Web { url: url.into(), title: Some(title.into()) };
        let local = Source::Local { path: "a/![x](y)".into(), title: None };
        let sources = [
            web("javascript:alert(1)", "bad"),
            web("https://a.example/ ![x](b)", "![x](https://b)<b>\\\u{202e}"),
            local,
            web(&format!("HTTP://{}", "a".repeat(400)), &"t".repeat(400)),
        ];
        let selected = select(&sources);
        assert_eq!(selected.len(), 3);
        let text = render(&selected);
        let lines: Vec<_> = text.lines().skip(3).collect();
        assert_eq!(
            lines[..2],
            [
                "- \\!\\[x\\]\\(https://b\\)\\<b\\>\\\\: https://a.example/%20!%5Bx%5D%28b%29",
                "- a/\\!\\[x\\]\\(y\\)",
            ]
        );
        assert_eq!(lines[2].len(), "- : ".len() + 600);
    }
}
