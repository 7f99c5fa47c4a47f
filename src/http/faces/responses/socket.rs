//! The WebSocket of Responses.

use super::super::socket::{SocketFormat, SocketRequest};
use crate::types::{ErrorCode, Problem};
use http::Method;
use serde_json::{Map, Value, json};

/// The frames of Responses.
pub struct ResponsesSocket;

impl SocketFormat for ResponsesSocket {
    fn read(&self, frame: &str) -> Result<SocketRequest, Problem> {
        let mut body: Map<String, Value> = serde_json::from_str(frame).map_err(|error| {
            Problem::new(ErrorCode::MalformedJson, format!("the frame is not JSON: {error}"))
        })?;
        if body.remove("type").as_ref().and_then(Value::as_str) != Some("response.create") {
            return Err(Problem::field("/type", "expected \"response.create\""));
        }
        body.insert("stream".into(), true.into());
        Ok(SocketRequest {
            id: String::new(),
            method: Method::POST,
            path: "/v1/responses".into(),
            authorization: None,
            body: Value::Object(body).to_string(),
        })
    }

    fn begin(&self, _id: &str) -> Option<String> {
        None
    }

    fn event(&self, _id: &str, _number: u64, event: &str) -> String {
        event.to_owned()
    }

    fn end(&self, _id: &str) -> Option<String> {
        None
    }

    fn nothing(&self, _id: &str) -> Option<String> {
        None
    }

    fn failed(&self, _id: Option<&str>, status: u16, body: &str) -> String {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        json!({"type": "error", "status": status, "error": body["error"]}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_frame_creates_a_response_that_streams() {
        let frame = json!({"type": "response.create", "model": "default", "input": "hi"});
        let read = ResponsesSocket.read(&frame.to_string()).expect("a request");
        let body: Value = serde_json::from_str(&read.body).expect("JSON");
        assert_eq!(body, json!({"model": "default", "input": "hi", "stream": true}));
        assert!(ResponsesSocket.read(r#"{"type": "response.cancel"}"#).is_err());
    }
}
