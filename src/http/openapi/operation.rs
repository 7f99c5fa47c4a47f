//! The description of one route. What the route table says, such as the scope and the parameters of the path, is added
//! by [`super::document`].

use super::schemas::{SchemaOf, Schemas};
use crate::types::ErrorCode;
use http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The media type of most bodies.
pub(in crate::http) const JSON: &str = "application/json";
/// The media type of event streams.
pub(in crate::http) const SSE: &str = "text/event-stream";

/// The description of one route.
pub(in crate::http) struct Operation {
    pub(in crate::http) method: Method,
    pub(in crate::http) path: &'static str,
    /// The name of the operation, for generated clients.
    pub(in crate::http) id: &'static str,
    pub(in crate::http) summary: &'static str,
    pub(in crate::http) text: String,
    pub(in crate::http) parameters: Vec<Parameter>,
    pub(in crate::http) bodies: Vec<Content>,
    /// Whether a request may have no body.
    pub(in crate::http) is_body_optional: bool,
    pub(in crate::http) example: Option<Value>,
    pub(in crate::http) responses: Vec<Success>,
    /// The codes of problems besides those that all routes of its kind have.
    pub(in crate::http) errors: Vec<ErrorCode>,
    pub(in crate::http) error_form: ErrorForm,
}

/// The form of errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum ErrorForm {
    /// RFC 9457.
    Problem,
    /// That of OpenAI's API.
    OpenAi,
    /// That of JSON-RPC.
    JsonRpc,
}

/// A parameter of the query or a header.
pub(in crate::http) struct Parameter {
    pub(in crate::http) place: &'static str,
    pub(in crate::http) name: &'static str,
    pub(in crate::http) text: &'static str,
    pub(in crate::http) is_required: bool,
    pub(in crate::http) schema: Value,
}

/// A body in one media type.
pub(in crate::http) struct Content {
    pub(in crate::http) media_type: &'static str,
    /// `None` for bytes. Of one event or line if the body is a sequence of them.
    pub(in crate::http) schema: Option<SchemaOf>,
}

/// A response that is no error.
pub(in crate::http) struct Success {
    pub(in crate::http) status: u16,
    pub(in crate::http) text: &'static str,
    pub(in crate::http) contents: Vec<Content>,
    /// Names and descriptions.
    pub(in crate::http) headers: Vec<(&'static str, &'static str)>,
}

/// Returns the schema of an id that a caller chooses.
pub(in crate::http) fn id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.~:@-]+$" })
}

/// Returns the schema of the name of a user.
pub(in crate::http) fn user() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[^/\\\u0000-\u001f\u007f-\u009f]+$" })
}

impl Operation {
    /// Describes a route in one sentence.
    pub(in crate::http) fn new(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
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
    pub(in crate::http) fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::GET, path, id, summary)
    }

    /// Describes a POST route.
    pub(in crate::http) fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::POST, path, id, summary)
    }

    /// Describes a DELETE route.
    pub(in crate::http) fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::DELETE, path, id, summary)
    }

    /// Adds a paragraph.
    pub(in crate::http) fn text(mut self, text: &str) -> Self {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
        self
    }

    /// Adds an optional parameter of the query with text.
    pub(in crate::http) fn query(self, name: &'static str, text: &'static str) -> Self {
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
    pub(in crate::http) fn query_as(self, name: &'static str, text: &'static str, schema: Value) -> Self {
        self.parameter(Parameter { place: "query", name, text, is_required: false, schema })
    }

    /// Adds an optional parameter of the query with the values of a type.
    pub(in crate::http) fn query_of<T: JsonSchema>(self, name: &'static str, text: &'static str) -> Self {
        self.query_as(name, text, Schemas::new().inlined::<T>())
    }

    /// Adds an optional header.
    pub(in crate::http) fn header(self, name: &'static str, text: &'static str) -> Self {
        self.parameter(Parameter {
            place: "header",
            name,
            text,
            is_required: false,
            schema: json!({ "type": "string" }),
        })
    }

    /// Makes the last parameter required.
    pub(in crate::http) fn required(mut self) -> Self {
        if let Some(last) = self.parameters.last_mut() {
            last.is_required = true;
        }
        self
    }

    /// Adds the parameters of a list.
    pub(in crate::http) fn list(self) -> Self {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 });
        self.query_as("limit", "Maximum number of entries.", limit)
            .query("cursor", "The `next_cursor` of the previous page.")
    }

    fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Adds a body of JSON, with an example.
    pub(in crate::http) fn body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.bodies.push(Content::new(JSON, Schemas::read::<T>));
        self.example = Some(example);
        self
    }

    /// Adds a body of bytes.
    pub(in crate::http) fn bytes_body(mut self, media_type: &'static str) -> Self {
        self.bodies.push(Content { media_type, schema: None });
        self
    }

    /// Adds a body of a media type.
    pub(in crate::http) fn body_as(mut self, media_type: &'static str, schema: SchemaOf) -> Self {
        self.bodies.push(Content::new(media_type, schema));
        self
    }

    /// Allows a request without a body.
    pub(in crate::http) fn optional(mut self) -> Self {
        self.is_body_optional = true;
        self
    }

    /// Adds a response of JSON.
    pub(in crate::http) fn returns<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        self.returns_as(status, text, JSON, Schemas::written::<T>)
    }

    /// Adds a response of a media type.
    pub(in crate::http) fn returns_as(
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
    pub(in crate::http) fn returns_bytes(
        mut self,
        status: u16,
        text: &'static str,
        media_type: &'static str,
    ) -> Self {
        let contents = vec![Content { media_type, schema: None }];
        self.responses.push(Success { status, text, contents, headers: Vec::new() });
        self
    }

    /// Adds a response without a body.
    pub(in crate::http) fn returns_nothing(mut self, status: u16, text: &'static str) -> Self {
        self.responses.push(Success { status, text, contents: Vec::new(), headers: Vec::new() });
        self
    }

    /// Adds another media type to the last response.
    pub(in crate::http) fn or(mut self, media_type: &'static str, schema: SchemaOf) -> Self {
        if let Some(last) = self.responses.last_mut() {
            last.contents.push(Content::new(media_type, schema));
        }
        self
    }

    /// Adds a header to the last response.
    pub(in crate::http) fn with(mut self, name: &'static str, text: &'static str) -> Self {
        if let Some(last) = self.responses.last_mut() {
            last.headers.push((name, text));
        }
        self
    }

    /// Sets the form of errors.
    pub(in crate::http) fn errors_as(self, error_form: ErrorForm) -> Self {
        Self { error_form, ..self }
    }

    /// Adds codes of problems.
    pub(in crate::http) fn fails(mut self, codes: &[ErrorCode]) -> Self {
        self.errors.extend(codes);
        self
    }
}

impl Content {
    fn new(media_type: &'static str, schema: SchemaOf) -> Self {
        Self { media_type, schema: Some(schema) }
    }
}
