//! A language model.

use crate::types::{ModelError, ModelEvent, ModelRequest};
use futures::stream::LocalBoxStream;

/// A model that streams its answer.
///
/// One call is one try: waiting and trying again is the caller's business.
pub trait Model {
    /// Starts a call. The stream yields pieces and, last, [`ModelEvent::Done`]; an error ends it.
    /// Pieces that arrive together are ready together. Dropping the stream cancels the call.
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>>;
}
