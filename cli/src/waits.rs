//! The calls that wait for a person, and how a person resolves them.

use crate::{
    api::{Api, segment},
    error::Result,
    output::{escaped, short, without_controls},
    wire::Pending,
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A call that waits, in the session that made it: the one that is shown, or that of a subagent.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// The session of the call.
    pub session: String,
    /// The call.
    pub call: Pending,
}

/// What a person decides or answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// The call runs.
    Approve,
    /// The call runs, and later ones of its tool do.
    AlwaysTool,
    /// The call runs, and later ones of its category do.
    AlwaysCategory,
    /// The call does not run; the model reads the reason.
    Decline(Option<String>),
    /// The answer to a question, the review of a plan, the consent at a server, or the result of an external tool.
    Answer(Value),
}

impl Wait {
    /// Returns the calls that wait, those of subagents in place of the calls that run the subagents.
    pub fn all(session: &str, pending: &[Pending]) -> Vec<Self> {
        let mut waits = Vec::new();
        for call in pending {
            match (call.kind.as_str(), call.payload["session"].as_str()) {
                ("subagent", Some(child)) => {
                    let theirs = call.payload["pending"].as_array().into_iter().flatten();
                    let theirs: Vec<_> = theirs.filter_map(|call| Pending::deserialize(call).ok()).collect();
                    waits.extend(Self::all(child, &theirs));
                }
                _ => waits.push(Self { session: session.to_owned(), call: call.clone() }),
            }
        }
        waits
    }

    /// Returns whether a runner answers the call.
    pub fn is_local(&self) -> bool {
        #[cfg(target_os = "linux")]
        let is_local = crate::runner::for_call(&self.call).is_some();
        #[cfg(not(target_os = "linux"))]
        let is_local = false;
        is_local
    }

    /// Names the call: what it waits for, and its tool.
    pub fn title(&self) -> String {
        format!("{} {}", self.call.kind, self.call.name)
    }

    /// Describes the call in a line.
    pub fn describe(&self) -> String {
        let Pending { kind, args, payload, .. } = &self.call;
        let shown = match kind.as_str() {
            "question" | "auth" => {
                payload["question"].as_str().map(|question| match payload["url"].as_str() {
                    Some(url) => format!("{question} {url}"),
                    None => question.to_owned(),
                })
            }
            "plan" => payload["path"].as_str().map(str::to_owned),
            _ => None,
        };
        let what = shown.unwrap_or_else(|| short(if args.is_null() { payload } else { args }));
        format!("{}: {what}", self.title())
    }

    /// Returns the suggested answers of a question.
    pub fn options(&self) -> Vec<&str> {
        let options = self.call.payload["options"].as_array().into_iter().flatten();
        options.filter_map(|option| option["label"].as_str()).collect()
    }

    /// Returns what a person must see in full before a decision: the arguments, or the plan.
    pub fn details(&self) -> Option<String> {
        match self.call.kind.as_str() {
            "plan" => self.call.payload["plan"].as_str().map(|plan| without_controls(plan).into_owned()),
            "question" | "auth" => None,
            _ if self.call.args.is_null() => None,
            _ => serde_json::to_string_pretty(&self.call.args).ok().map(|args| escaped(&args).into_owned()),
        }
    }

    /// Describes the call in full: what a person must see before a decision or an answer.
    pub fn explain(&self) -> String {
        let mut text = match self.details() {
            Some(details) => format!("{}\n{details}", self.title()),
            None => self.describe(),
        };
        for (number, option) in self.options().iter().enumerate() {
            let _ = write!(text, "\n  {}. {option}", number + 1);
        }
        text
    }

    /// Returns the command that resolves the call, and applies only to the arguments that are shown.
    pub fn command(&self) -> String {
        let (session, call) = (&self.session, &self.call.call_id);
        match (self.call.kind.as_str(), &self.call.args_hash) {
            ("approval", Some(hash)) => format!("agentctl approve {session} {call} --args-hash {hash}"),
            ("approval", None) => format!("agentctl approve {session} {call}"),
            ("plan", _) => format!("agentctl answer {session} {call} '{{\"action\": \"approved\"}}'"),
            ("auth", _) => format!("agentctl answer {session} {call} '{{\"code\": \"…\"}}'"),
            _ => format!("agentctl answer {session} {call} '\"…\"'"),
        }
    }

    /// Returns whether a question may have several answers.
    pub fn is_multi(&self) -> bool {
        self.call.payload["selection_mode"] == "multi"
    }

    /// Says what a person may enter.
    pub fn hint(&self) -> &'static str {
        match self.call.kind.as_str() {
            "approval" => {
                "y approve · n decline · A always this tool · C always this category · or a reason to decline"
            }
            "plan" => "y approve · n reject · or what to change",
            "question" if self.is_multi() => "numbers or answers, with commas between them",
            "question" if !self.options().is_empty() => "a number, or your answer",
            "question" => "your answer",
            "auth" => "open the page and enter its code · n decline",
            _ => "the result of the tool",
        }
    }

    /// Returns what a text or a key means as an answer to this call; `None` for nothing.
    pub fn read(&self, text: &str) -> Option<Resolution> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let review = |action: &str, feedback: &str| {
            let mut answer = json!({ "action": action });
            if !feedback.is_empty() {
                answer["feedback"] = feedback.into();
            }
            Resolution::Answer(answer)
        };
        Some(match (self.call.kind.as_str(), text) {
            ("approval", "y" | "Y" | "yes") => Resolution::Approve,
            ("approval", "n" | "N" | "no") => Resolution::Decline(None),
            // Capital letters, because they also allow calls that the user has not seen.
            ("approval", "A") => Resolution::AlwaysTool,
            ("approval", "C") => Resolution::AlwaysCategory,
            ("approval", reason) => Resolution::Decline(Some(reason.to_owned())),
            ("plan", "y" | "Y" | "yes") => review("approved", ""),
            ("plan", "n" | "N" | "no") => review("rejected", ""),
            ("plan", feedback) => review("rejected", feedback),
            ("auth", "n" | "N" | "no") => Resolution::Answer(json!({"action": "decline"})),
            ("auth", code) => Resolution::Answer(json!({"code": code})),
            ("question", text) if self.is_multi() => {
                let answers = text.split(',').map(str::trim).filter(|answer| !answer.is_empty());
                Resolution::Answer(answers.map(|answer| self.option(answer)).collect())
            }
            ("question", text) => Resolution::Answer(self.option(text).into()),
            (_, text) => Resolution::Answer(serde_json::from_str(text).unwrap_or_else(|_| text.into())),
        })
    }

    /// Returns the option with this number, or else the text itself.
    fn option<'a>(&'a self, text: &'a str) -> &'a str {
        let at = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        at.and_then(|at| self.options().get(at).copied()).unwrap_or(text)
    }

    /// Sends the resolution. The hash of the arguments goes with it, so that it applies only to what was shown.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn resolve(&self, api: &Api, resolution: &Resolution) -> Result<Value> {
        let (route, mut body) = match resolution {
            Resolution::Approve => ("approvals", json!({"decision": "approve"})),
            Resolution::AlwaysTool => ("approvals", json!({"decision": "always_allow_tool"})),
            Resolution::AlwaysCategory => ("approvals", json!({"decision": "always_allow_category"})),
            Resolution::Decline(None) => ("approvals", json!({"decision": "decline"})),
            Resolution::Decline(Some(reason)) => {
                ("approvals", json!({"decision": "decline", "reason": reason}))
            }
            Resolution::Answer(answer) => ("answers", json!({ "answer": answer })),
        };
        if let Some(hash) = &self.call.args_hash {
            body["args_hash"] = hash.as_str().into();
        }
        let path = format!("/v1/sessions/{}/{route}/{}", segment(&self.session), segment(&self.call.call_id));
        api.post(&path).header("prefer", "respond-async").body_json(&body).json().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(kind: &str, payload: Value) -> Wait {
        let call = Pending { call_id: "c".into(), kind: kind.into(), payload, ..Pending::default() };
        Wait { session: "s".into(), call }
    }

    #[test]
    fn a_text_is_a_decision_a_review_or_an_answer() {
        let approval = wait("approval", Value::Null);
        assert_eq!(approval.read("y"), Some(Resolution::Approve));
        assert_eq!(approval.read("A"), Some(Resolution::AlwaysTool));
        assert_eq!(approval.read("a"), Some(Resolution::Decline(Some("a".into()))));
        assert_eq!(approval.read(" not now "), Some(Resolution::Decline(Some("not now".into()))));
        assert_eq!(approval.read(" "), None);
        let consent = wait("auth", json!({"question": "Connect.", "url": "https://example.com/"}));
        assert_eq!(consent.describe(), "auth : Connect. https://example.com/");
        assert_eq!(consent.read("n"), Some(Resolution::Answer(json!({"action": "decline"}))));
        assert_eq!(consent.read("K7QM-2XPD"), Some(Resolution::Answer(json!({"code": "K7QM-2XPD"}))));
        let plan = wait("plan", json!({"plan": "1.", "path": "p.md"}));
        assert_eq!(plan.read("y"), Some(Resolution::Answer(json!({"action": "approved"}))));
        assert_eq!(
            plan.read("shorter"),
            Some(Resolution::Answer(json!({"action": "rejected", "feedback": "shorter"})))
        );
        let options = json!([{"label": "red"}, {"label": "blue"}]);
        let question = wait("question", json!({"question": "Which?", "options": options}));
        assert_eq!(question.read("2"), Some(Resolution::Answer("blue".into())));
        assert_eq!(question.read("7"), Some(Resolution::Answer("7".into())));
        let many =
            wait("question", json!({"question": "Which?", "options": options, "selection_mode": "multi"}));
        assert_eq!(many.read("2, green"), Some(Resolution::Answer(json!(["blue", "green"]))));
        assert_eq!(
            wait("external", Value::Null).read("{\"ok\": true}"),
            Some(Resolution::Answer(json!({"ok": true})))
        );
    }

    #[test]
    fn a_decision_is_suggested_with_all_arguments_and_their_hash() {
        let mut approval = wait("approval", Value::Null);
        approval.call.args = json!({"content": "x".repeat(500) + " and the end"});
        approval.call.args_hash = Some("h".into());
        assert!(approval.explain().contains(" and the end"));
        assert_eq!(approval.command(), "agentctl approve s c --args-hash h");
    }

    #[test]
    fn the_calls_of_a_subagent_are_those_of_its_session() {
        let theirs = json!({"session": "child", "pending": [{"call_id": "x", "kind": "approval", "name": "write_file"}]});
        let subagent = Pending { kind: "subagent".into(), payload: theirs, ..Pending::default() };
        let waits = Wait::all("parent", &[subagent, wait("question", Value::Null).call]);
        let names: Vec<_> =
            waits.iter().map(|wait| (wait.session.as_str(), wait.call.call_id.as_str())).collect();
        assert_eq!(names, [("child", "x"), ("parent", "c")]);
    }
}
