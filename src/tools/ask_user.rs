//! The `ask_user` tool, whose call waits for the user's answer.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Effect, Invalid, WaitKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum length of a question and of an answer, in characters.
const MAX_TEXT: usize = 10_000;
/// Maximum number of options and of answers.
const MAX_OPTIONS: usize = 50;

/// The `ask_user` tool.
pub struct AskUser;

/// The arguments of `ask_user`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The question.
    question: String,
    /// Options to choose from. The user may also answer with other text.
    options: Option<Vec<Choice>>,
    /// Whether the user may choose one option or several. Requires `options`.
    selection_mode: Option<SelectionMode>,
}

/// An option of a question.
#[derive(Deserialize, JsonSchema)]
struct Choice {
    /// A short label.
    label: String,
    /// What the option means.
    #[serde(rename = "description")]
    _description: Option<String>,
}

/// How many options the user may choose.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SelectionMode {
    Single,
    Multi,
}

impl Args {
    /// Returns what is wrong with the arguments, if anything.
    fn fault(&self) -> Option<String> {
        let options = self.options.as_deref().unwrap_or_default();
        let labels: BTreeSet<&str> = options.iter().map(|option| option.label.trim()).collect();
        let said = |text: &str| (1..=MAX_TEXT).contains(&text.trim().chars().count());
        if !said(&self.question) {
            return Some(format!("`question` must have 1 to {MAX_TEXT} characters"));
        }
        if self.selection_mode.is_some() && options.is_empty() {
            return Some("`selection_mode` requires `options`; add options or omit it".into());
        }
        if options.len() > MAX_OPTIONS {
            return Some(format!("more than {MAX_OPTIONS} options; use fewer"));
        }
        let distinct = labels.len() == options.len() && labels.iter().all(|label| said(label));
        (!distinct).then(|| "each option needs a label, different from the others".into())
    }
}

impl Tool for AskUser {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "ask_user";
    const DESCRIPTION: &'static str = "Asks the user a question and waits for the answer. Use it when you need a \
         decision that only the user can make.";
    const EFFECT: Effect = Effect::ReadOnly;
    // The user may answer the same question differently the next time.
    const VARIES: bool = true;
    const CONTROL: bool = true;
    const SUSPENDS: Option<WaitKind> = Some(WaitKind::Question);

    /// None, so that several questions can wait at the same time.
    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn suspension_payload(&self, args: &Args, _cx: &ToolContext) -> Result<Option<Value>, ToolError> {
        args.fault().map_or(Ok(None), |fault| Err(ToolError::new(fault)))
    }

    fn check_answer(&self, args: &Args, answer: &Value) -> Result<(), Invalid> {
        answers(args, answer).map(drop)
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let answers = answers(&args, cx.answer.as_ref().unwrap_or(&Value::Null))?;
        Ok(format!("User answered: {}", answers.join(", ")))
    }
}

/// Parses the answer: one text, or a list of texts if several options may be chosen.
fn answers(args: &Args, answer: &Value) -> Result<Vec<String>, Invalid> {
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
    let list = if several { ", or a list of such texts" } else { "" };
    found.ok_or_else(|| Invalid(format!("expected a text of 1 to {MAX_TEXT} characters{list}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn args(more: Value) -> Args {
        let mut args = json!({"question": "Which?"});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(args).unwrap()
    }

    #[test]
    fn invalid_questions_are_rejected() {
        assert_eq!(args(json!({})).fault(), None);
        assert_eq!(args(json!({"options": [{"label": "a"}], "selection_mode": "multi"})).fault(), None);
        for (more, expected) in [
            (json!({"selection_mode": "single"}), "`selection_mode` requires `options`"),
            (json!({"selection_mode": "multi", "options": []}), "`selection_mode` requires `options`"),
            (json!({"options": [{"label": "a"}, {"label": " a"}]}), "each option needs a label"),
            (json!({"options": [{"label": " "}]}), "each option needs a label"),
            (json!({"question": "  "}), "`question` must have"),
        ] {
            assert!(args(more).fault().unwrap().starts_with(expected));
        }
    }

    #[test]
    fn invalid_answers_are_rejected() {
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
