//! A response as a whole, as far as it is written.

use super::id::ResponseId;
use crate::types::{Timestamp, message::json_weight};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Maximum size of the items that a response has when it is read as a whole, in bytes of JSON (4 MiB). The events have all
/// items.
const MAX_OUTPUT: usize = 4 << 20;

/// A response so far.
pub(super) struct Written {
    /// The object, without `output`.
    pub object: Value,
    /// The items; `None` in place of a message that the model has written anew, and of the oldest beyond [`MAX_OUTPUT`].
    pub output: Vec<Option<Value>>,
    /// The places of the items in `output`, oldest first, and their sizes in bytes.
    sizes: VecDeque<(usize, usize)>,
    /// What ids of calls end with for the client.
    pub suffix: String,
    pub has_begun: bool,
    pub has_ended: bool,
}

impl Written {
    /// Creates a response. `fields` are those that repeat the request.
    pub fn new(id: &ResponseId, created: Timestamp, suffix: &str, fields: Value) -> Self {
        let mut object = json!({
            "id": id.to_string(),
            "object": "response",
            "created_at": created.0 / 1000,
            "completed_at": null,
            "status": "in_progress",
            "error": null,
            "incomplete_details": null,
            "usage": null,
        });
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        Self {
            object,
            output: Vec::new(),
            sizes: VecDeque::new(),
            suffix: suffix.to_owned(),
            has_begun: false,
            has_ended: false,
        }
    }

    /// Returns the response.
    pub fn response(&self) -> Value {
        let mut response = self.object.clone();
        response["output"] = self.output.iter().flatten().cloned().collect();
        response
    }

    /// Adds an item, or replaces the one at this place, and drops the oldest ones beyond [`MAX_OUTPUT`].
    pub fn put(&mut self, index: usize, item: Value) {
        self.remove(index);
        self.sizes.push_back((index, json_weight(&item)));
        if index >= self.output.len() {
            self.output.resize(index + 1, None);
        }
        self.output[index] = Some(item);
        let mut size: usize = self.sizes.iter().map(|(_, size)| size).sum();
        while size > MAX_OUTPUT
            && self.sizes.len() > 1
            && let Some((oldest, bytes)) = self.sizes.pop_front()
        {
            self.output[oldest] = None;
            size -= bytes;
        }
    }

    /// Removes the item at this place.
    pub fn remove(&mut self, index: usize) {
        self.sizes.retain(|(own, _)| *own != index);
        if let Some(item) = self.output.get_mut(index) {
            *item = None;
        }
    }

    /// Returns whether the log has a part of the response.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }
}
