//! Patches the permissions of a session.

use super::checks::MAX_OBJECT_BYTES;
use crate::http::patch::merge;
use crate::types::{Problem, SessionPermissions, json::from_value};
use serde_json::{Value, json};

/// Applies a merge patch (RFC 7396) to permissions.
///
/// # Errors
/// `validation_failed` with a pointer into the patch.
pub(super) fn patched(now: &SessionPermissions, patch: Value) -> Result<SessionPermissions, Problem> {
    let fault = |pointer: String, fault: &str| Problem::field(format!("/permissions{pointer}"), fault);
    let mut merged = json!(now);
    merge(&mut merged, patch);
    let bytes = merged.to_string().len();
    // A patch of `null` removes everything. An array would be read as the fields in their order.
    let merged = if merged.is_null() { json!({}) } else { merged };
    if !merged.is_object() {
        return Err(fault(String::new(), "expected an object"));
    }
    let mut new: SessionPermissions =
        from_value(merged).map_err(|error| fault(error.pointer, &error.detail))?;
    new.ask_again(now);
    new.check().map_err(|field| fault(field.pointer, &field.detail))?;
    if bytes > MAX_OBJECT_BYTES {
        return Err(fault(String::new(), &format!("larger than {MAX_OBJECT_BYTES} bytes of JSON")));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn patches_merge_as_rfc_7396_says() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut value = before.clone();
            merge(&mut value, patch.clone());
            assert_eq!(value, after, "{before} {patch}");
        }
    }
}
