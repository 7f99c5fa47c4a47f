//! What a single call of a model consumed.

use super::{EventKind, Usage};

/// What a call of a model outside of the steps of a turn consumed.
#[derive(Clone, Debug, PartialEq)]
pub struct CallUsage {
    /// The model, as `provider/model`.
    pub model: String,
    /// Tokens of the call.
    pub usage: Usage,
    /// Cost in US dollars, if the model has a price.
    pub cost_usd: Option<f64>,
}

impl CallUsage {
    /// Returns the record of the call, which counts as usage of the tenant.
    pub fn event(self, purpose: &str) -> EventKind {
        let Self { model, usage, cost_usd } = self;
        EventKind::UsageOther { purpose: purpose.to_owned(), model, usage, cost_usd }
    }
}
