//! What the operator sets for all sessions of a tenant.

use super::{FieldError, ModelError, ModelList, Rules};
use serde::{Deserialize, Serialize};

/// The permission rules and the limits of a tenant. Several isolates send them to a session, each from its own cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantPolicy {
    /// The permission rules.
    #[serde(flatten)]
    pub rules: Rules,
    /// The limits.
    #[serde(default, skip_serializing_if = "TenantLimits::is_empty")]
    pub limits: TenantLimits,
    /// The tenant's version when it had this policy; 0 from a source without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u64,
}

fn is_zero(version: &u64) -> bool {
    *version == 0
}

impl TenantPolicy {
    /// Returns whether `sent` replaces this policy: it differs, and is not older.
    pub fn is_replaced_by(&self, sent: &Self) -> bool {
        sent.version >= self.version && self != sent
    }
}

/// The limits of a tenant. An absent one limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantLimits {
    /// The models that the tenant's sessions may use, of those that the deployment offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelList>,
}

impl TenantLimits {
    /// Returns whether there are no limits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks limits from a request.
    ///
    /// # Errors
    /// The invalid limits. `at` is the JSON Pointer to the limits.
    pub fn violations(&self, at: &str) -> Vec<FieldError> {
        let models = self.models.as_ref().and_then(|models| models.fault());
        models.into_iter().map(|fault| fault.below(&format!("{at}/models"))).collect()
    }

    /// Returns whether sessions of the tenant may use a model.
    pub fn allow_model(&self, id: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.contains(id))
    }

    /// Checks that sessions of the tenant may use a model.
    ///
    /// # Errors
    /// They may not. The message lists the models that they may use.
    pub fn check_model(&self, id: &str) -> Result<(), ModelError> {
        self.models.as_ref().map_or(Ok(()), |models| models.check(id))
    }
}
