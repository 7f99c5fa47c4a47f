//! What servers offer besides tools: resources and prompts.

use crate::agent::toolkit::OF_SERVERS;
use serde_json::Value;

/// What a server offers besides tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offers {
    resources: bool,
    prompts: bool,
}

impl Offers {
    /// Reads the capabilities in the response to `server/discover` or `initialize`.
    pub fn of(response: &Value) -> Self {
        let has = |name: &str| {
            let capabilities = response.get("capabilities");
            capabilities.and_then(|all| all.get(name)).is_some_and(Value::is_object)
        };
        Self { resources: has("resources"), prompts: has("prompts") }
    }

    /// Returns whether the server has something of a kind.
    pub fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Resources => self.resources,
            Kind::Prompts => self.prompts,
        }
    }
}

/// A kind of what servers offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Resources,
    Prompts,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Resources, Self::Prompts];

    /// Returns the name of the tool.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Resources => OF_SERVERS[0],
            Self::Prompts => OF_SERVERS[1],
        }
    }

    /// Returns what the kind is called.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }

    /// Returns the argument that names what to get.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Resources => "uri",
            Self::Prompts => "name",
        }
    }

    /// Returns the method that gets one.
    pub fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/read",
            Self::Prompts => "prompts/get",
        }
    }
}
