//! The models of an agent whose definition names a default model.

use crate::ports::{Model, Models};
use crate::types::{ModelError, ModelLimits, Price};
use std::rc::Rc;

/// Models with another default.
pub(super) struct OwnDefault {
    /// The models.
    pub models: Rc<dyn Models>,
    /// The default model, as `provider/model`.
    pub default: String,
}

impl Models for OwnDefault {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.models.resolve(id)
    }

    fn offered(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        self.models.offered(id)
    }

    fn price(&self, id: &str) -> Option<Price> {
        self.models.price(id)
    }

    fn limits(&self, id: &str) -> ModelLimits {
        self.models.limits(id)
    }

    fn default_model(&self) -> String {
        self.default.clone()
    }
}
