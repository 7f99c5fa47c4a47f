//! A language model.

use crate::types::{ModelError, ModelEvent, ModelLimits, ModelRequest, Price};
use futures::stream::LocalBoxStream;

/// A model that streams its answer.
///
/// One call is one try: waiting and trying again is the caller's business.
pub trait Model {
    /// Starts a call. The stream yields pieces and, last, [`ModelEvent::Done`]; an error ends it.
    /// Pieces that arrive together are ready together. Dropping the stream cancels the call.
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>>;
}

/// The models on offer.
pub trait Models {
    /// Finds a model by `provider/model`, and the name by which its provider knows it.
    ///
    /// # Errors
    /// When there is no such provider, or it is not configured.
    fn resolve(&self, id: &str) -> Result<(std::rc::Rc<dyn Model>, String), ModelError>;

    /// What a model costs; none when nobody said.
    fn price(&self, _id: &str) -> Option<Price> {
        None
    }

    /// How much a model takes at once, and how it counts.
    fn limits(&self, _id: &str) -> ModelLimits {
        ModelLimits::default()
    }

    /// The model of sessions that name none.
    fn default_model(&self) -> String;
}
