//! Exceptions of JavaScript as text.

use wasm_bindgen::{JsCast, JsValue};

/// Returns the message of an exception.
pub fn thrown(error: JsValue) -> String {
    let message = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    message.or_else(|| error.as_string()).unwrap_or_else(|| "an exception without a message".into())
}
