//! Messages to the objects of a tenant: JSON in, JSON out.

use crate::ports::StoreError;
use crate::types::json;
use serde::{Serialize, de::DeserializeOwned};
use worker::{Method, ObjectNamespace, Request, RequestInit};

/// Sends a message to the object with this name, and reads its response.
///
/// # Errors
/// If the object cannot be reached, or it failed.
pub async fn send<T: DeserializeOwned>(
    objects: &ObjectNamespace,
    name: &str,
    message: &impl Serialize,
) -> Result<T, String> {
    let sent = async {
        let mut init = RequestInit::new();
        let body = serde_json::to_string(message)?;
        init.with_method(Method::Post).with_body(Some(body.into()));
        let request = Request::new_with_init("https://tenant.internal/", &init)?;
        let mut response = objects.get_by_name(name)?.fetch_with_request(request).await?;
        Ok::<_, worker::Error>((response.status_code(), response.text().await?))
    };
    match sent.await {
        Ok((200, json)) => json::from_str(&json).map_err(|error| error.to_string()),
        Ok((_, cause)) => Err(cause),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a message.
///
/// # Errors
/// If it has another form.
pub fn of_json<T: DeserializeOwned>(message: &str) -> worker::Result<T> {
    json::from_str(message).map_err(|error| worker::Error::RustError(error.to_string()))
}

/// Writes a response as JSON.
///
/// # Errors
/// If it cannot be written.
pub fn json_of(response: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(response).map_err(|error| StoreError(error.to_string()))
}
