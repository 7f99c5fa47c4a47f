//! The gateway's configuration and ports, and the contexts of its handlers.

use super::auth_cache::AuthCache;
use super::crypto::Cipher;
use super::pattern::Params;
use super::request::{Request, RequestExt};
use crate::memory::Memories;
use crate::ports::{Clock, Directory, Entropy, Http, Log, SessionEraser, Signatures};
use crate::types::{GeneratedId, Principal, RequestId, TenantId};
use crate::workspace::Workspaces;
use std::rc::Rc;

/// The configuration of a deployment. It holds secrets and therefore does not implement `Debug`.
#[derive(Default)]
pub struct GatewayConfig {
    /// The operator's key. Without it, `/v1/admin/*` and tickets are disabled.
    pub admin_key: Option<String>,
    /// A key for development: tenant `dev` with every scope.
    pub dev_api_key: Option<String>,
    /// Origins whose pages may call the API.
    pub origins: Vec<String>,
    /// The available models, as `provider/model`.
    pub models: Vec<String>,
    /// The shards on which tenants can be placed.
    pub shards: Vec<String>,
}

/// The stateless part of the Worker: authenticates, routes, and handles requests that concern a whole tenant.
pub struct Gateway {
    /// The configuration.
    pub config: GatewayConfig,
    /// Tenants, keys, and the list of sessions.
    pub directory: Rc<dyn Directory>,
    /// Fetches the key sets of identity providers.
    pub http: Rc<dyn Http>,
    /// Verifies signatures of tokens.
    pub signatures: Rc<dyn Signatures>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The source of random bytes.
    pub entropy: Rc<dyn Entropy>,
    /// The workspaces of all agents.
    pub files: Rc<Workspaces>,
    /// The memories of all agents.
    pub memories: Rc<Memories>,
    /// Erases sessions.
    pub eraser: Rc<dyn SessionEraser>,
    /// The isolate's cache of credentials.
    pub cache: Rc<AuthCache>,
    /// Writes a line to the log.
    pub log: Rc<dyn Log>,
}

impl Gateway {
    /// Makes a new id.
    pub fn make_id<I: GeneratedId>(&self) -> I {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        I::generate(self.clock.now(), &random)
    }

    /// Returns the cipher for secrets at rest; `None` without an operator's key.
    pub fn cipher(&self) -> Option<Cipher> {
        self.config.admin_key.as_deref().map(Cipher::new)
    }

    /// Returns the `x-request-id` of the request if it is 1 to 64 letters, digits, `_` and `-`; otherwise a
    /// new id.
    pub fn request_id(&self, request: &Request) -> RequestId {
        let is_plain = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        let given = request.header("x-request-id").filter(is_plain);
        given.map_or_else(|| self.make_id(), Into::into)
    }
}

/// A request that the gateway handles for the operator or for any caller.
pub struct GatewayCall<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The request, with its body.
    pub request: &'a Request,
    /// The parameters of the path.
    pub params: &'a Params,
}

impl GatewayCall<'_> {
    /// Returns the tenant that the path names.
    pub fn tenant(&self) -> TenantId {
        self.params.get("tenant").into()
    }
}

/// A request that the gateway handles for a tenant.
pub struct TenantCall<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The request, with its body.
    pub request: &'a Request,
    /// The parameters of the path.
    pub params: &'a Params,
    /// The authenticated caller.
    pub caller: &'a Principal,
}
