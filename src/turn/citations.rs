//! Which sources a reply names, and how.

use crate::types::Source;

/// Most sources of a kind that a reply names.
pub const MAX_OF_A_KIND: usize = 8;

/// The sources to name: the first of each kind, each once.
pub fn used(sources: &[Source]) -> Vec<Source> {
    let (mut local, mut web) = (0, 0);
    let mut used: Vec<Source> = Vec::new();
    for source in sources {
        let count = match source {
            Source::Local { .. } => &mut local,
            Source::Web { .. } => &mut web,
        };
        if *count < MAX_OF_A_KIND && !used.iter().any(|known| address(known) == address(source)) {
            *count += 1;
            used.push(source.clone());
        }
    }
    used
}

/// What is appended to the reply.
pub fn render(sources: &[Source]) -> String {
    let mut text = "\n\nSources:".to_owned();
    for source in sources {
        let (Source::Local { title, .. } | Source::Web { title, .. }) = source;
        text.push_str("\n- ");
        if let Some(title) = title {
            text.extend(title.chars().map(|c| if c.is_control() { ' ' } else { c }));
            text.push_str(": ");
        }
        text.extend(address(source).chars().filter(|c| !c.is_control()));
    }
    text
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
}
