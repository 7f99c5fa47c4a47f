//! The user's review of a plan.

use super::Invalid;
use serde_json::Value;

/// Maximum length of the feedback, in characters.
const MAX_FEEDBACK: usize = 20_000;

/// A user's review of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanReview {
    /// Whether the plan is to be carried out.
    pub approved: bool,
    /// The user's comment.
    pub feedback: Option<String>,
}

impl PlanReview {
    /// Parses `"approved"`, `"rejected"`, or an object with one of these as `action` and an optional
    /// `feedback`.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn read(answer: &Value) -> Result<Self, Invalid> {
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
            Some(_) => {
                return Err(Invalid(format!("expected `feedback` of at most {MAX_FEEDBACK} characters")));
            }
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
    fn a_plan_is_either_approved_or_rejected() {
        let read = |answer| PlanReview::read(&answer).map(|review| (review.approved, review.feedback));
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
