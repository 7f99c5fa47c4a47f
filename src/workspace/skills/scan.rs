//! Finds dangerous text in a skill before it is stored as a draft and before it is promoted.
//!
//! The scan catches honest mistakes and copied attacks. It cannot prove that a skill is harmless, because a shell and a
//! language offer endless ways to say the same: a person still has to read the draft.

mod rules;
#[cfg(test)]
mod tests;

use super::{SkillError, front_matter};
use crate::ports::Clock;
use crate::types::{Invalid, text::is_unseen};
use crate::workspace::{
    layout,
    pace::{Pace, WorkExceeded},
    pattern::Pattern,
};
use rules::{RULES, Rule};
use std::rc::Rc;
use thiserror::Error;

/// Stands for the end of a line that continues. It counts as a space.
const CONTINUED: char = '\u{b}';

/// What is dangerous about a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Danger {
    /// A download is run without a look at it.
    #[error("it runs what it downloads")]
    RunsDownload,
    /// A shell is connected to another machine.
    #[error("it opens a shell to another machine")]
    ReverseShell,
    /// The root or home folder, or a disk, is erased.
    #[error("it erases the root or home folder, or a disk")]
    Erasure,
    /// The agent is told to ignore its instructions.
    #[error("it asks the agent to ignore or to reveal its instructions")]
    Injection,
    /// Characters change the direction of text or are invisible.
    #[error("it has invisible characters that hide text")]
    HiddenText,
    /// A key, token or password is written down.
    #[error("it has a key or a token")]
    Secret,
}

/// What is wrong with a file of a skill. The message is for the author and never has the text that was found, which may
/// be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {what}")]
pub struct Finding {
    place: String,
    what: String,
}

impl Finding {
    /// Returns the finding for a draft that is too large.
    pub(super) fn too_large(place: &str, what: String) -> Self {
        Self { place: place.to_owned(), what }
    }

    /// Returns the finding for a malformed skill.
    pub(super) fn malformed(error: &SkillError) -> Self {
        Self { place: "SKILL.md".to_owned(), what: error.to_string() }
    }
}

/// Why a scan did not finish.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScanError {
    /// The text is too large.
    #[error("the skill is too large to be scanned")]
    TooLarge(#[from] WorkExceeded),
    /// A rule of the scanner is malformed.
    #[error("a rule of the scanner is malformed: {0}")]
    Rule(Invalid),
}

/// Scans the files of a skill, each with its path in the folder. One text at a time is copied.
///
/// # Errors
/// If the scan does not finish; the skill then counts as dangerous.
pub async fn scan(files: &[(String, &[u8])], clock: &Rc<dyn Clock>) -> Result<Vec<Finding>, ScanError> {
    let pattern = |rule: &Rule| Ok((rule.danger, Pattern::regex(rule.pattern, rule.ignores_case)?));
    let patterns = RULES.iter().map(pattern).collect::<Result<Vec<_>, _>>().map_err(ScanError::Rule)?;
    let mut findings = Vec::new();
    for (path, bytes) in files {
        // A path is shown to the model, like the text.
        scan_text(&format!("the name {path:?}"), path, &patterns, clock, &mut findings).await?;
        let Ok(text) = std::str::from_utf8(bytes) else {
            findings.push(Finding { place: path.clone(), what: "it is not text".to_owned() });
            continue;
        };
        scan_text(path, text, &patterns, clock, &mut findings).await?;
        // YAML can write each character of a text in another way.
        let description = (path == layout::SKILL_FILE).then(|| front_matter::description(text)).flatten();
        if let Some(description) = description.filter(|description| !text.contains(&**description)) {
            scan_text("the description", &description, &patterns, clock, &mut findings).await?;
        }
    }
    Ok(findings)
}

async fn scan_text(
    place: &str,
    text: &str,
    patterns: &[(Danger, Pattern)],
    clock: &Rc<dyn Clock>,
    findings: &mut Vec<Finding>,
) -> Result<(), ScanError> {
    if text.chars().any(hides_text) {
        findings.push(Finding { place: place.to_owned(), what: Danger::HiddenText.to_string() });
    }
    let text = normalized(text);
    for (danger, pattern) in patterns {
        let mut pace = Pace::new(Rc::clone(clock), Rc::default());
        if let Some(end) = pattern.matcher().find(&text, &mut pace).await? {
            let before = text.get(..text.floor_char_boundary(end.saturating_sub(1))).unwrap_or_default();
            let line = before.matches(['\n', CONTINUED]).count() + 1;
            let finding = Finding { place: format!("{place}, line {line}"), what: danger.to_string() };
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    Ok(())
}

/// Returns a text without invisible characters, in which a command that continues in the next line is on one line.
fn normalized(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace("\\\n", &format!(" {CONTINUED}"));
    // Rules can then expect a character after the last word.
    text.chars().filter(|c| !is_unseen(*c)).chain(['\n']).collect()
}

/// Returns whether a character changes the direction of text, or is a tag that only machines see.
fn hides_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}
