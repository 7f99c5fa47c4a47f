//! Sends requests to the objects of sessions, as the gateway does.

use super::body::BodyStream;
use super::object::{FORWARD, ForwardHead, Objects, object_name};
use crate::ports::{PeerError, ReaderRequest, SessionReader, SessionResponse};
use crate::types::{Principal, RequestId, SessionId, json};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use worker::{Headers, Method, Request, RequestInit};

impl Objects {
    /// Sends a request of a caller to the object of a session: a POST if it has a body, otherwise a GET.
    pub async fn forward(
        &self,
        principal: &Principal,
        session: &SessionId,
        id: RequestId,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> worker::Result<web_sys::Response> {
        let (principal, object) = (principal.clone(), object_name(&principal.tenant, session));
        let head = ForwardHead { principal, session: session.clone(), id, response_headers: String::new() };
        let sent = Headers::new();
        sent.set(FORWARD, &json::ascii(&head)?)?;
        for (name, value) in headers {
            sent.set(name, value)?;
        }
        let mut init = RequestInit::new();
        let method = if body.is_some() { Method::Post } else { Method::Get };
        init.with_method(method).with_headers(sent).with_body(body.map(Into::into));
        let request = Request::new_with_init(&format!("https://session.internal{target}"), &init)?;
        Ok(self.0.get_by_name(&object)?.fetch_with_request(request).await?.into())
    }
}

#[async_trait(?Send)]
impl SessionReader for Objects {
    async fn send(
        &self,
        principal: &Principal,
        session: &SessionId,
        request: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError> {
        let ReaderRequest { target, headers, body } = request;
        let id = RequestId::from(format!("reader-{session}"));
        let body = body.map(str::to_owned);
        let response = self.forward(principal, session, id, target, headers, body).await;
        let response = response.map_err(|error| PeerError(error.to_string()))?;
        let body = match response.body() {
            Some(body) => BodyStream::new(&body)
                .map_err(|error| PeerError(error.to_string()))?
                .map(|piece| piece.map_err(|error| PeerError(error.to_string())))
                .boxed_local(),
            None => stream::empty::<Result<Bytes, PeerError>>().boxed_local(),
        };
        Ok(SessionResponse { status: response.status(), body })
    }
}
