//! The WebSocket transport of the AI SDK. One socket carries several chats.

use super::super::socket::{Incoming, SocketFormat, SocketRequest};
use crate::http::disposition::RESERVED;
use crate::types::{ErrorCode, Problem};
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
    Abort {
        request_id: String,
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

    fn read(&self, frame: &str) -> Result<Incoming, Problem> {
        let frame = serde_json::from_str(frame).map_err(|error| {
            Problem::new(ErrorCode::MalformedJson, format!("not a frame of the AI SDK's transport: {error}"))
        })?;
        Ok(match frame {
            Frame::Send { request_id, id, messages, headers, mut body } => {
                body.insert("id".into(), id.into());
                body.insert("messages".into(), messages);
                Incoming::Request(SocketRequest {
                    id: request_id,
                    method: Method::POST,
                    path: "/api/chat".into(),
                    authorization: headers.authorization,
                    body: Value::Object(body).to_string(),
                })
            }
            Frame::Resume { request_id, id, headers } => Incoming::Request(SocketRequest {
                id: request_id,
                method: Method::GET,
                path: format!("/api/chat/{}/stream", utf8_percent_encode(&id, RESERVED)),
                authorization: headers.authorization,
                body: String::new(),
            }),
            Frame::Abort { request_id } => Incoming::Stop(request_id),
        })
    }

    /// A response without an id would end all requests of the client's transport.
    fn id_in(&self, frame: &str) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Numbered {
            request_id: String,
        }
        serde_json::from_str(frame).map(|Numbered { request_id }| request_id).ok()
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
        let Ok(Incoming::Request(read)) = ChatSocket.read(&send.to_string()) else { panic!("no request") };
        assert_eq!((read.id.as_str(), read.authorization.as_deref()), ("r", Some("Bearer k")));
        let body: Value = serde_json::from_str(&read.body).expect("JSON");
        assert_eq!(body, json!({"agent": "other", "id": "chat", "messages": []}));
        let resume =
            |id: &str| ChatSocket.read(&json!({"type": "resume", "requestId": "r", "id": id}).to_string());
        assert!(
            matches!(resume("chat"), Ok(Incoming::Request(read)) if read.path == "/api/chat/chat/stream")
        );
        let hostile = "/api/chat/..%2Fv1%2Ftickets%3F/stream";
        assert!(matches!(resume("../v1/tickets?"), Ok(Incoming::Request(read)) if read.path == hostile));
        let abort = json!({"type": "abort", "requestId": "r"});
        assert_eq!(ChatSocket.read(&abort.to_string()), Ok(Incoming::Stop("r".into())));
        assert!(ChatSocket.read("{}").is_err());
        // A refused frame is answered with its id.
        let large = json!({"type": "send", "messages": ["x".repeat(MAX_BODY)], "requestId": "r"}).to_string();
        for (frame, id) in
            [(&*large, Some("r")), (r#"{"requestId": "r"}"#, Some("r")), ("{}", None), ("{", None)]
        {
            assert_eq!(ChatSocket.id_in(frame).as_deref(), id);
        }
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
