//! Reads sessions through the API of their objects.

use super::body::BodyStream;
use super::object::{FORWARD, ForwardHead, Objects, object_name};
use crate::ports::{PeerError, SessionReader, SessionResponse};
use crate::types::{Principal, RequestId, SessionId, json};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use worker::{Headers, Method, Request, RequestInit};

#[async_trait(?Send)]
impl SessionReader for Objects {
    async fn get(
        &self,
        principal: &Principal,
        session: &SessionId,
        target: &str,
        accept: &str,
    ) -> Result<SessionResponse, PeerError> {
        let head = ForwardHead {
            principal: principal.clone(),
            session: session.clone(),
            id: RequestId::from(format!("export-{session}")),
            response_headers: String::new(),
        };
        let asked = async {
            let headers = Headers::new();
            headers.set(FORWARD, &json::ascii(&head)?)?;
            headers.set("accept", accept)?;
            let mut init = RequestInit::new();
            init.with_method(Method::Get).with_headers(headers);
            let request = Request::new_with_init(&format!("https://session.internal{target}"), &init)?;
            let object = self.0.get_by_name(&object_name(&principal.tenant, session))?;
            Ok::<web_sys::Response, worker::Error>(object.fetch_with_request(request).await?.into())
        };
        let response = asked.await.map_err(|error| PeerError(error.to_string()))?;
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
