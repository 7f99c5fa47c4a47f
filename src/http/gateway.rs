//! The gateway's configuration and ports, and the contexts of its handlers.

use super::anonymous_sockets::AnonymousSockets;
use super::auth_cache::AuthCache;
use super::credentials::DirectoryCredentials;
use super::crypto::Cipher;
use super::forwarded::ForwardedMessages;
use super::pattern::Params;
use super::readiness::Readiness;
use super::refusal_pace::RefusalPace;
use super::refusals::Refusals;
use super::request::{Request, RequestExt};
use super::request_blocks::RequestBlocks;
use super::tenant_secrets::TenantSecrets;
use crate::agent::settings::SkillSettings;
use crate::memory::Memories;
use crate::ports::{
    Clock, Directory, Entropy, Http, Inbox, Ledger, Log, Moves, SessionEraser, SessionReader, Signatures,
};
use crate::standard::agents::Agents;
use crate::types::{
    ErrorCode, GeneratedId, Mode, MoveId, Owner, Principal, Problem, Quota, RequestId, TenantId,
    TenantLimits, UserId,
};
use crate::workspace::{Workspace, Workspaces};
use std::fmt;
use std::rc::Rc;

/// The configuration of a deployment. It holds secrets and therefore does not implement `Debug`.
#[derive(Default)]
pub struct GatewayConfig {
    /// The operator's key. Without it, `/v1/admin/*` and tickets are disabled.
    pub admin_key: Option<String>,
    /// A key for development: tenant `dev` with every scope. It is ignored unless the request's host is this
    /// machine.
    pub dev_api_key: Option<String>,
    /// Whether the key for development is valid for every host.
    pub dev: bool,
    /// Origins whose pages may call the API.
    pub origins: Vec<String>,
    /// The modes of the agents.
    pub modes: Vec<Mode>,
    /// The skills of the agents.
    pub skills: SkillSettings,
    /// The available models, as `provider/model`.
    pub models: Vec<String>,
    /// The shards on which tenants can be placed.
    pub shards: Vec<String>,
    /// The limits of tenants that do not have their own.
    pub limits: TenantLimits,
    /// Whether push notifications may be sent.
    pub push_notifications: bool,
    /// The malformed settings, which have their defaults.
    pub malformed: Vec<MalformedSetting>,
}

/// A malformed setting, without its value, which may be a secret.
pub struct MalformedSetting {
    /// The name of the setting.
    pub name: &'static str,
    /// The valid values. Completes the sentence "expected …".
    pub expects: &'static str,
}

impl fmt::Display for MalformedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the setting {} is malformed; expected {}", self.name, self.expects)
    }
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
    /// The agents of the deployment and its tenants.
    pub agents: Rc<Agents>,
    /// The secrets of the tenants.
    pub secrets: Rc<TenantSecrets>,
    /// The workspaces of all agents, without the files of their versions.
    pub files: Rc<Workspaces>,
    /// The memories of all agents.
    pub memories: Rc<Memories>,
    /// Erases sessions.
    pub eraser: Rc<dyn SessionEraser>,
    /// Reads sessions.
    pub reader: Rc<dyn SessionReader>,
    /// The ledgers of the tenants.
    pub ledger: Rc<dyn Ledger>,
    /// The inboxes of the tenants.
    pub inbox: Rc<dyn Inbox>,
    /// The result of the last check of the databases and the object store.
    pub readiness: Readiness,
    /// The requests that this isolate has taken from them.
    pub requests: RequestBlocks,
    /// The daily limits that sessions have reported as reached.
    pub refusals: Refusals,
    /// When the next refusals of tenants are due.
    pub refusal_pace: RefusalPace,
    /// The messages that this isolate has forwarded to sessions.
    pub messages: ForwardedMessages,
    /// The WebSockets of this isolate that have sent no valid credential.
    pub anonymous: AnonymousSockets,
    /// The moves of tenants between shards.
    pub moves: Rc<dyn Moves>,
    /// The isolate's cache of credentials.
    pub cache: Rc<AuthCache>,
    /// Writes a line to the log.
    pub log: Rc<dyn Log>,
}

impl Gateway {
    /// Returns the check of credentials that were valid before.
    pub fn credentials(&self) -> DirectoryCredentials {
        let (directory, clock) = (Rc::clone(&self.directory), Rc::clone(&self.clock));
        DirectoryCredentials { directory, clock, cache: Rc::clone(&self.cache) }
    }

    /// Returns the limits of a caller's tenant that the ledger checks before a turn starts.
    pub fn quota(&self, caller: &Principal) -> Quota {
        caller.policy.limits.clone().or(&self.config.limits).quota()
    }

    /// Returns the workspaces with the files of an agent's active version, and the settings of its skills.
    ///
    /// # Errors
    /// A failed store.
    pub async fn files_of(&self, owner: &Owner) -> Result<(Rc<Workspaces>, SkillSettings), Problem> {
        Ok(match self.agents.active_built(&owner.tenant, &owner.agent).await? {
            Some(built) => (built.files, built.agent.skills().clone()),
            None => (Rc::clone(&self.files), self.config.skills.clone()),
        })
    }

    /// Opens the workspace of a user with an agent, with the files of the agent's active version.
    ///
    /// # Errors
    /// A failed store.
    pub async fn workspace(&self, owner: &Owner) -> Result<Workspace, Problem> {
        let (files, _) = self.files_of(owner).await?;
        Ok(files.open(&owner.tenant, &owner.agent, &owner.user, None))
    }

    /// Makes a new id.
    pub fn make_id<I: GeneratedId>(&self) -> I {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        I::generate(self.clock.now(), &random)
    }

    /// Returns the operator's key; `None` if the deployment has none.
    ///
    /// # Errors
    /// `not_configured` when the key is malformed.
    pub fn admin_key(&self) -> Result<Option<&str>, Problem> {
        match self.config.malformed.iter().find(|setting| setting.name == "ADMIN_KEY") {
            Some(setting) => Err(Problem::new(ErrorCode::NotConfigured, setting.to_string())),
            None => Ok(self.config.admin_key.as_deref()),
        }
    }

    /// Returns the cipher for secrets at rest; `None` without an operator's key.
    ///
    /// # Errors
    /// `not_configured` when the operator's key is malformed.
    pub fn cipher(&self) -> Result<Option<Cipher>, Problem> {
        Ok(self.admin_key()?.map(Cipher::new))
    }

    /// Returns the id of the latest move of a tenant, for work that must not overlap with a move.
    ///
    /// # Errors
    /// `unavailable` while the tenant moves.
    pub async fn last_move(&self, tenant: &TenantId) -> Result<Option<MoveId>, Problem> {
        match self.moves.latest(tenant).await? {
            Some(one) if !one.phase.is_final() => {
                let detail = "the tenant is moving to another shard; try again after the move";
                Err(Problem::unavailable(detail, format!("the move is {:?}", one.phase)))
            }
            latest => Ok(latest.map(|one| one.id)),
        }
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
    /// The id of the request.
    pub request_id: &'a RequestId,
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
    /// The id of the request.
    pub request_id: &'a RequestId,
    /// The request, with its body.
    pub request: &'a Request,
    /// The parameters of the path.
    pub params: &'a Params,
    /// The authenticated caller.
    pub caller: &'a Principal,
}

impl TenantCall<'_> {
    /// Returns the user whose sessions a list has: the caller's own, or else the one in the query; `None` for all users.
    pub fn listed_user(&self) -> Option<UserId> {
        self.caller.user.clone().or_else(|| self.request.query("user").map(UserId::from))
    }
}
