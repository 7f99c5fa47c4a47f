//! Asks the user, and waits for the answer.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Effect, PendingKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest question and longest answer, in characters.
const MAX_TEXT: usize = 10_000;
/// Most options, and most answers.
const MAX_OPTIONS: usize = 50;

/// `ask_user`.
pub struct AskUser;

/// What to ask.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The question.
    question: String,
    /// What the user may choose from; the user may also answer in other words.
    options: Option<Vec<Choice>>,
    /// Whether one or several options may be chosen; only with options.
    selection_mode: Option<SelectionMode>,
}

/// An option.
#[derive(Deserialize, JsonSchema)]
struct Choice {
    /// A few words.
    label: String,
    /// What choosing it means.
    #[serde(rename = "description")]
    _description: Option<String>,
}

/// How many options may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SelectionMode {
    Single,
    Multi,
}

impl Args {
    /// What is wrong with the question.
    fn fault(&self) -> Option<String> {
        let options = self.options.as_deref().unwrap_or_default();
        let labels: BTreeSet<&str> = options.iter().map(|option| option.label.trim()).collect();
        let said = |text: &str| (1..=MAX_TEXT).contains(&text.trim().chars().count());
        if !said(&self.question) {
            return Some(format!("`question` is empty or longer than {MAX_TEXT} characters"));
        }
        if self.selection_mode.is_some() && options.is_empty() {
            return Some("`selection_mode` needs `options`: give some, or leave it out".into());
        }
        if options.len() > MAX_OPTIONS {
            return Some(format!("more than {MAX_OPTIONS} options: ask for less at once"));
        }
        let distinct = labels.len() == options.len() && labels.iter().all(|label| said(label));
        (!distinct).then(|| "each option needs a label of its own".into())
    }
}

impl Tool for AskUser {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "ask_user";
    const DESCRIPTION: &'static str = "Asks the user a question and waits for the answer. Use it when you cannot go on \
         without a decision that is the user's.";
    const EFFECT: Effect = Effect::ReadOnly;
    // The same question may be answered otherwise the next time.
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<PendingKind> = Some(PendingKind::Question);

    /// It touches nothing: of several questions none waits for another.
    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn suspension_payload(&self, args: &Args, _cx: &ToolContext) -> Result<Option<Value>, ToolError> {
        args.fault().map_or(Ok(None), |fault| Err(ToolError::new(fault)))
    }

    fn check_answer(&self, args: &Args, answer: &Value) -> Result<(), String> {
        answers(args, answer).map(drop)
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let answers = answers(&args, cx.answer.as_ref().unwrap_or(&Value::Null)).map_err(ToolError::new)?;
        Ok(format!("User answered: {}", answers.join(", ")))
    }
}

/// The answers in an answer: one, or where several options may be chosen several.
fn answers(args: &Args, answer: &Value) -> Result<Vec<String>, String> {
    let said = |answer: &Value| {
        let text = answer.as_str().map(str::trim).filter(|text| !text.is_empty());
        text.filter(|text| text.chars().count() <= MAX_TEXT).map(str::to_owned)
    };
    let several = args.selection_mode == Some(SelectionMode::Multi);
    let found = match answer {
        Value::Array(answers) if several && (1..=MAX_OPTIONS).contains(&answers.len()) => {
            answers.iter().map(said).collect()
        }
        answer => said(answer).map(|one| vec![one]),
    };
    let list = if several { ", or a list of such" } else { "" };
    found.ok_or_else(|| format!("expected a text of 1 to {MAX_TEXT} characters{list}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::json;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn args(more: Value) -> Args {
        let mut args = json!({"question": "Which?"});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json::from_value(args).unwrap()
    }

    #[test]
    fn a_choice_needs_something_to_choose_from() {
        assert_eq!(args(json!({})).fault(), None);
        assert_eq!(args(json!({"options": [{"label": "a"}], "selection_mode": "multi"})).fault(), None);
        for (more, told) in [
            (json!({"selection_mode": "single"}), "`selection_mode` needs `options`"),
            (json!({"selection_mode": "multi", "options": []}), "`selection_mode` needs `options`"),
            (json!({"options": [{"label": "a"}, {"label": " a"}]}), "each option needs a label"),
            (json!({"options": [{"label": " "}]}), "each option needs a label"),
            (json!({"question": "  "}), "`question` is empty"),
        ] {
            assert!(args(more).fault().unwrap().starts_with(told));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let one = args(json!({}));
        let many = args(json!({"options": [{"label": "a"}, {"label": "b"}], "selection_mode": "multi"}));
        assert_eq!(answers(&one, &json!(" yes ")), Ok(vec!["yes".into()]));
        assert_eq!(answers(&many, &json!(["a", "b"])), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(answers(&many, &json!("neither")), Ok(vec!["neither".into()]));
        for bad in
            [json!(""), json!(" "), json!(1), json!(null), json!(["a"]), json!("x".repeat(MAX_TEXT + 1))]
        {
            assert!(answers(&one, &bad).is_err(), "{bad}");
        }
        for bad in
            [json!([]), json!(["a", ""]), json!([1]), json!({"a": 1}), json!(vec!["a"; MAX_OPTIONS + 1])]
        {
            assert!(answers(&many, &bad).is_err(), "{bad}");
        }
    }
}
