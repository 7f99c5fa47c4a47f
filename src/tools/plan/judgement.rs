//! What a user says to a plan.

use serde_json::Value;

/// Longest feedback, in characters.
const MAX_FEEDBACK: usize = 20_000;

/// What is to become of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Whether it is to be carried out.
    pub approved: bool,
    /// What is said beside it.
    pub feedback: Option<String>,
}

impl Judgement {
    /// Reads `"approved"`, `"rejected"` or an object with one of these as `action`, and perhaps `feedback`.
    ///
    /// # Errors
    /// What would be one.
    pub fn read(answer: &Value) -> Result<Self, String> {
        let (action, feedback) = match answer {
            Value::Object(members) => (members.get("action"), members.get("feedback")),
            other => (Some(other), None),
        };
        let approved = match action.and_then(Value::as_str) {
            Some("approved") => true,
            Some("rejected") => false,
            _ => return Err(r#"expected {"action": "approved" or "rejected", "feedback"?: text}"#.into()),
        };
        let feedback = match feedback {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.chars().count() <= MAX_FEEDBACK => Some(text.trim().to_owned()),
            Some(_) => return Err(format!("expected `feedback` of at most {MAX_FEEDBACK} characters")),
        };
        Ok(Self { approved, feedback: feedback.filter(|text| !text.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn a_plan_is_approved_or_rejected_and_nothing_else() {
        let read = |answer| Judgement::read(&answer).map(|judged| (judged.approved, judged.feedback));
        assert_eq!(read(json!("approved")), Ok((true, None)));
        assert_eq!(read(json!({"action": "rejected"})), Ok((false, None)));
        assert_eq!(read(json!({"action": "rejected", "feedback": " "})), Ok((false, None)));
        let with = json!({"action": "approved", "feedback": "but quickly"});
        assert_eq!(read(with), Ok((true, Some("but quickly".into()))));
        let long = json!({"action": "approved", "feedback": "x".repeat(MAX_FEEDBACK + 1)});
        for bad in [json!("yes"), json!(true), json!({}), json!({"action": "approved", "feedback": 1}), long]
        {
            assert!(read(bad).is_err());
        }
    }
}
