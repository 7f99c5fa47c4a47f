//! Which sources a reply names, and how.

use crate::types::{Source, text};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Most sources of a kind that a reply names.
pub const MAX_OF_A_KIND: usize = 8;
/// Longest title, path and address, in characters.
const MAX_CHARS: usize = 300;
/// What would make more of an address than an address.
const MARKUP: &AsciiSet =
    &CONTROLS.add(b' ').add(b'[').add(b']').add(b'(').add(b')').add(b'<').add(b'>').add(b'\\').add(b'`');

/// The sources to name: the first of each kind, each once. What they say of themselves is data: cut to
/// a length, in one line, and addresses are of the web or none.
pub fn used(sources: &[Source]) -> Vec<Source> {
    let (mut local, mut web) = (0, 0);
    let mut used: Vec<Source> = Vec::new();
    for source in sources.iter().filter_map(plain) {
        let count = match source {
            Source::Local { .. } => &mut local,
            Source::Web { .. } => &mut web,
        };
        if *count < MAX_OF_A_KIND && !used.iter().any(|known| address(known) == address(&source)) {
            *count += 1;
            used.push(source);
        }
    }
    used
}

fn plain(source: &Source) -> Option<Source> {
    let line = |text: &str| text.chars().filter(|c| text::is_inline(*c)).take(MAX_CHARS).collect::<String>();
    let title = |title: &Option<String>| {
        let title = title.as_deref()?.split(['\n', '\r', '\t', '\u{2028}', '\u{2029}']);
        Some(line(&title.collect::<Vec<_>>().join(" ")))
    };
    Some(match source {
        Source::Local { path, title: said } => Source::Local { path: line(path), title: title(said) },
        Source::Web { url, title: said } => {
            let is =
                |scheme: &str| url.get(..scheme.len()).is_some_and(|own| own.eq_ignore_ascii_case(scheme));
            if !is("https://") && !is("http://") {
                return None;
            }
            Source::Web { url: line(url), title: title(said) }
        }
    })
}

/// What is appended to the reply, in Markdown.
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
            Source::Web { url, .. } => text.extend(utf8_percent_encode(url, MARKUP)),
        }
    }
    text
}

/// Writes what others said as words: no link, no image, no tag.
fn escape(out: &mut String, said: &str) {
    for c in said.chars() {
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
    fn eight_of_each_kind_each_once() {
        let local = |n: usize| Source::Local { path: format!("notes/{n}.md"), title: None };
        let web =
            |n: usize| Source::Web { url: format!("https://example.com/{n}"), title: Some("A\npage".into()) };
        let mut all: Vec<Source> = (0..12).map(local).chain((0..9).map(web)).collect();
        all.push(local(0));
        let used = used(&all);
        assert_eq!(used.len(), 16);
        let text = render(&used);
        assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), 16);
        assert!(text.contains("\n- notes/7.md\n") && text.contains("- A page: https://example.com/7"));
    }

    #[test]
    fn what_sources_say_of_themselves_is_data() {
        let web = |url: &str, title: &str| Source::Web { url: url.into(), title: Some(title.into()) };
        let local = Source::Local { path: "a/![x](y)".into(), title: None };
        let sources = [
            web("javascript:alert(1)", "bad"),
            web("https://a.example/ ![x](b)", "![x](https://b)<b>\\\u{202e}"),
            local,
            web(&format!("HTTP://{}", "a".repeat(400)), &"t".repeat(400)),
        ];
        let used = used(&sources);
        assert_eq!(used.len(), 3);
        let text = render(&used);
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
