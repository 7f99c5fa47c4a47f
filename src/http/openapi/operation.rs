//! The description of one route. What the route table says, such as the scope and the parameters of the path, is added
//! by [`super::document`].

use super::schemas::{SchemaOf, Schemas};
use crate::types::ErrorCode;
use http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The media type of most bodies.
pub(super) const JSON: &str = "application/json";
/// The media type of event streams.
pub(super) const SSE: &str = "text/event-stream";

/// The description of one route.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The name of the operation, for generated clients.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) text: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) bodies: Vec<Content>,
    /// Whether a request may have no body.
    pub(super) is_body_optional: bool,
    pub(super) example: Option<Value>,
    pub(super) responses: Vec<Success>,
    /// The codes of problems besides those that all routes of its kind have.
    pub(super) errors: Vec<ErrorCode>,
    pub(super) error_form: ErrorForm,
}

/// The form of errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// RFC 9457.
    Problem,
    /// That of OpenAI's API.
    OpenAi,
    /// That of JSON-RPC.
    JsonRpc,
}

/// A parameter of the query or a header.
pub(super) struct Parameter {
    pub(super) place: &'static str,
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) is_required: bool,
    pub(super) schema: Value,
}

/// A body in one media type.
pub(super) struct Content {
    pub(super) media_type: &'static str,
    /// `None` for bytes. Of one event or line if the body is a sequence of them.
    pub(super) schema: Option<SchemaOf>,
}

/// A response that is no error.
pub(super) struct Success {
    pub(super) status: u16,
    pub(super) text: &'static str,
    pub(super) contents: Vec<Content>,
    /// Names and descriptions.
    pub(super) headers: Vec<(&'static str, &'static str)>,
}

/// Returns the schema of an id that a caller chooses.
pub(super) fn id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.~:@-]+$" })
}

/// Returns the schema of the name of a user.
pub(super) fn user() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[^/\\\u0000-\u001f\u007f-\u009f]+$" })
}

impl Operation {
    /// Describes a route in one sentence.
    pub(super) fn new(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            text: String::new(),
            parameters: Vec::new(),
            bodies: Vec::new(),
            is_body_optional: false,
            example: None,
            responses: Vec::new(),
            errors: Vec::new(),
            error_form: ErrorForm::Problem,
        }
    }

    /// Describes a GET route.
    pub(super) fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::GET, path, id, summary)
    }

    /// Describes a POST route.
    pub(super) fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::POST, path, id, summary)
    }

    /// Describes a DELETE route.
    pub(super) fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::DELETE, path, id, summary)
    }

    /// Adds a paragraph.
    pub(super) fn text(mut self, text: &str) -> Self {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
        self
    }

    /// Adds an optional parameter of the query with text.
    pub(super) fn query(self, name: &'static str, text: &'static str) -> Self {
        let schema = match name {
            "agent" => id(),
            "user" => user(),
            "after" => json!({ "type": "string", "pattern": r"^[0-9]{1,19}(\.[0-9]{1,19})?$" }),
            "cursor" => json!({ "type": "string", "minLength": 1 }),
            _ => json!({ "type": "string" }),
        };
        self.query_as(name, text, schema)
    }

    /// Adds an optional parameter of the query.
    pub(super) fn query_as(self, name: &'static str, text: &'static str, schema: Value) -> Self {
        self.parameter(Parameter { place: "query", name, text, is_required: false, schema })
    }

    /// Adds an optional parameter of the query with the values of a type.
    pub(super) fn query_of<T: JsonSchema>(self, name: &'static str, text: &'static str) -> Self {
        self.query_as(name, text, Schemas::new().inlined::<T>())
    }

    /// Adds an optional header.
    pub(super) fn header(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(Parameter {
            place: "header",
            name,
            text,
            is_required: false,
            schema: json!({ "type": "string" }),
        })
    }

    /// Makes the last parameter required.
    pub(super) fn required(mut self) -> Self {
        if let Some(last) = self.parameters.last_mut() {
            last.is_required = true;
        }
        self
    }

    /// Adds the parameters of a list.
    pub(super) fn list(self) -> Self {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 });
        self.query_as("limit", "Maximum number of entries.", limit)
            .query("cursor", "The `next_cursor` of the previous page.")
    }

    fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Adds a body of JSON, with an example.
    pub(super) fn body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.bodies.push(Content::new(JSON, Schemas::read::<T>));
        self.example = Some(example);
        self
    }

    /// Adds a body of bytes.
    pub(super) fn bytes_body(mut self, media_type: &'static str) -> Self {
        self.bodies.push(Content { media_type, schema: None });
        self
    }

    /// Adds a body of a media type.
    pub(super) fn body_as(mut self, media_type: &'static str, schema: SchemaOf) -> Self {
        self.bodies.push(Content::new(media_type, schema));
        self
    }

    /// Allows a request without a body.
    pub(super) fn optional(mut self) -> Self {
        self.is_body_optional = true;
        self
    }

    /// Adds a response of JSON.
    pub(super) fn returns<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        self.returns_as(status, text, JSON, Schemas::written::<T>)
    }

    /// Adds a response of a media type.
    pub(super) fn returns_as(
        mut self,
        status: u16,
        text: &'static str,
        media_type: &'static str,
        schema: SchemaOf,
    ) -> Self {
        let contents = vec![Content::new(media_type, schema)];
        self.responses.push(Success { status, text, contents, headers: Vec::new() });
        self
    }

    /// Adds a response of bytes.
    pub(super) fn returns_bytes(mut self, status: u16, text: &'static str, media_type: &'static str) -> Self {
        let contents = vec![Content { media_type, schema: None }];
        self.responses.push(Success { status, text, contents, headers: Vec::new() });
        self
    }

    /// Adds a response without a body.
    pub(super) fn returns_nothing(mut self, status: u16, text: &'static str) -> Self {
        self.responses.push(Success { status, text, contents: Vec::new(), headers: Vec::new() });
        self
    }

    /// Adds another media type to the last response.
    pub(super) fn or(mut self, media_type: &'static str, schema: SchemaOf) -> Self {
        if let Some(last) = self.responses.last_mut() {
            last.contents.push(Content::new(media_type, schema));
        }
        self
    }

    /// Adds a header to the last response.
    pub(super) fn with(mut self, name: &'static str, text: &'static str) -> Self {
        if let Some(last) = self.responses.last_mut() {
            last.headers.push((name, text));
        }
        self
    }

    /// Sets the form of errors.
    pub(super) fn errors_as(self, error_form: ErrorForm) -> Self {
        Self { error_form, ..self }
    }

    /// Adds codes of problems.
    pub(super) fn fails(mut self, codes: &[ErrorCode]) -> Self {
        self.errors.extend(codes);
        self
    }
}

impl Content {
    fn new(media_type: &'static str, schema: SchemaOf) -> Self {
        Self { media_type, schema: Some(schema) }
    }
}
