//! Specs.

use super::operation::Operation;
use super::shapes::{File, GeneratedSpec, Spec, SpecCheck};
use super::tenant::owned;
use crate::http::page::Page;
use crate::http::specs::NewSpec;
use crate::types::ErrorCode::{
    AgentGone, AlreadyExists, InvalidRequest, NotConfigured, PayloadTooLarge, PreconditionFailed,
    QuotaExceeded, ReadOnly, Unavailable,
};
use http::Method;
use serde_json::json;

const MARKDOWN: &str = "text/markdown";

pub(super) fn operations() -> Vec<Operation> {
    let path = "/v1/specs/{spec}";
    let prompt = "Bring the tests of the parser back to green. Do not change its interface.";
    vec![
        owned(Operation::get("/v1/specs", "listSpecs", "Lists the specs of a user with an agent, by name."))
            .text("A spec is the file `specs/NAME.md` of the workspace. A page may have fewer entries than its limit.")
            .list()
            .returns::<Page<Spec>>(200, "A page of specs."),
        owned(Operation::get(path, "readSpec", "Returns a spec."))
            .header("If-None-Match", "The etag of what you have.")
            .returns_as(200, "The text.", MARKDOWN, |_| json!({ "type": "string" }))
            .with("ETag", "The etag.")
            .returns_nothing(304, "You have it.")
            .fails(&[InvalidRequest]),
        owned(Operation::new(Method::PUT, path, "writeSpec", "Writes a spec. One with problems is stored, too."))
            .header("If-Match", "The etag that the spec must have.")
            .header("If-None-Match", "`*`: the spec must not exist.")
            .body_as(MARKDOWN, |_| json!({ "type": "string" }))
            .returns::<File>(201, "The new spec.")
            .with("ETag", "The etag.")
            .returns::<File>(200, "The changed spec.")
            .with("ETag", "The etag.")
            .fails(&[ReadOnly, PreconditionFailed, QuotaExceeded, InvalidRequest, PayloadTooLarge]),
        owned(Operation::delete(path, "deleteSpec", "Removes a spec."))
            .header("If-Match", "The etag that the spec must have.")
            .returns_nothing(204, "There is no such spec now.")
            .fails(&[ReadOnly, PreconditionFailed, InvalidRequest]),
        owned(Operation::post("/v1/specs/generate", "generateSpec", "Writes a spec with the agent's model."))
            .text(
                "The call of the model counts as a turn, takes at most two minutes, and is refused over a limit of the \
                 tenant.",
            )
            .body::<NewSpec>(json!({ "name": "fix-parser", "prompt": prompt }))
            .returns::<GeneratedSpec>(201, "The new spec.")
            .returns::<GeneratedSpec>(200, "The spec, which replaces the one of this name.")
            .fails(&[AlreadyExists, InvalidRequest, QuotaExceeded, NotConfigured, AgentGone, Unavailable]),
        owned(Operation::post("/v1/specs/{spec}/validate", "validateSpec", "Checks a spec."))
            .text("Checks the text in the body, which is not stored; without a body, the stored spec.")
            .body_as(MARKDOWN, |_| json!({ "type": "string" }))
            .optional()
            .returns::<SpecCheck>(200, "The result.")
            .fails(&[InvalidRequest]),
    ]
}
