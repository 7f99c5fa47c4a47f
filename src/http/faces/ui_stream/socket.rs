//! The WebSocket transport of the AI SDK. One socket carries several chats.

use super::super::socket::{FrameHead, SocketFormat, SocketRequest};
use crate::http::disposition::RESERVED;
use crate::types::{ErrorCode, Problem, json};
use http::Method;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The frames of the transport.
pub struct ChatSocket;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Frame {
    Send {
        request_id: String,
        id: String,
        messages: Value,
        #[serde(default)]
        headers: Headers,
        #[serde(default)]
        body: Map<String, Value>,
    },
    Resume {
        request_id: String,
        id: String,
        #[serde(default)]
        headers: Headers,
    },
}

#[derive(Default, Deserialize)]
struct Headers {
    #[serde(alias = "Authorization")]
    authorization: Option<String>,
}

impl SocketFormat for ChatSocket {
    fn reads_credentials(&self) -> bool {
        true
    }

    fn head(&self, frame: &str) -> FrameHead {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Head {
            r#type: String,
            request_id: Option<String>,
            headers: Headers,
        }
        let Head { r#type, request_id, headers } = serde_json::from_str(frame).unwrap_or_default();
        FrameHead { id: request_id, authorization: headers.authorization, is_stop: r#type == "abort" }
    }

    fn read(&self, frame: &str) -> Result<SocketRequest, Problem> {
        let frame = json::from_str(frame).map_err(|error| {
            Problem::new(ErrorCode::MalformedJson, format!("not a frame of the AI SDK's transport: {error}"))
        })?;
        Ok(match frame {
            Frame::Send { request_id, id, messages, headers, mut body } => {
                body.insert("id".into(), id.into());
                body.insert("messages".into(), messages);
                SocketRequest {
                    id: request_id,
                    method: Method::POST,
                    path: "/api/chat".into(),
                    authorization: headers.authorization,
                    body: Value::Object(body).to_string(),
                }
            }
            Frame::Resume { request_id, id, headers } => SocketRequest {
                id: request_id,
                method: Method::GET,
                path: format!("/api/chat/{}/stream", utf8_percent_encode(&id, RESERVED)),
                authorization: headers.authorization,
                body: String::new(),
            },
        })
    }

    fn begin(&self, id: &str) -> Option<String> {
        Some(json!({"type": "start", "requestId": id}).to_string())
    }

    fn event(&self, id: &str, number: u64, event: &str) -> String {
        format!("{{\"type\":\"chunk\",\"requestId\":{},\"sequence\":{number},\"chunk\":{event}}}", json!(id))
    }

    fn end(&self, id: &str) -> Option<String> {
        Some(json!({"type": "end", "requestId": id}).to_string())
    }

    fn nothing(&self, id: &str) -> Option<String> {
        Some(json!({"type": "no-active", "requestId": id}).to_string())
    }

    fn failed(&self, id: Option<&str>, _status: u16, body: &str) -> String {
        json!({"type": "error", "requestId": id, "errorText": body}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::MAX_BODY;
    use pretty_assertions::assert_eq;

    #[test]
    fn frames_are_requests_of_the_same_api_over_http() {
        let send = json!({
            "type": "send", "requestId": "r", "id": "chat", "trigger": "submit-message", "messages": [],
            "headers": {"authorization": "Bearer k"}, "body": {"agent": "other", "id": "overwritten"},
        });
        let head = ChatSocket.head(&send.to_string());
        assert_eq!((head.id.as_deref(), head.authorization.as_deref()), (Some("r"), Some("Bearer k")));
        let read = ChatSocket.read(&send.to_string()).expect("a request");
        assert_eq!((read.id.as_str(), read.authorization.as_deref()), ("r", Some("Bearer k")));
        let body: Value = serde_json::from_str(&read.body).expect("JSON");
        assert_eq!(body, json!({"agent": "other", "id": "chat", "messages": []}));
        let resume =
            |id: &str| ChatSocket.read(&json!({"type": "resume", "requestId": "r", "id": id}).to_string());
        let path = |id| resume(id).map(|read| read.path);
        assert_eq!(path("chat"), Ok("/api/chat/chat/stream".to_owned()));
        assert_eq!(path("../v1/tickets?"), Ok("/api/chat/..%2Fv1%2Ftickets%3F/stream".to_owned()));
        let abort = ChatSocket.head(&json!({"type": "abort", "requestId": "r"}).to_string());
        assert_eq!(abort, FrameHead { id: Some("r".into()), authorization: None, is_stop: true });
        assert!(ChatSocket.read("{}").is_err());
        // A refused frame is answered with its id.
        let large = json!({"type": "send", "messages": ["x".repeat(MAX_BODY)], "requestId": "r"}).to_string();
        for (frame, id) in
            [(&*large, Some("r")), (r#"{"requestId": "r"}"#, Some("r")), ("{}", None), ("{", None)]
        {
            assert_eq!(ChatSocket.head(frame).id.as_deref(), id);
        }
        // Of what is skipped, nothing is built.
        let deep = format!(r#"{{"messages": {}{}, "requestId": "r"}}"#, "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(ChatSocket.head(&deep).id.as_deref(), Some("r"));
    }

    #[test]
    fn a_chunk_is_wrapped() {
        let frame: Value =
            serde_json::from_str(&ChatSocket.event("r\"", 3, "{\"type\":\"start\"}")).expect("JSON");
        let expected =
            json!({"type": "chunk", "requestId": "r\"", "sequence": 3, "chunk": {"type": "start"}});
        assert_eq!(frame, expected);
    }
}
