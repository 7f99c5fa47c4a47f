//! The front: what the Worker does with a request before, or instead of, waking a session.
//!
//! ```text
//! match front.handle(head, || read_body()).await {
//!     Handled::Answer(response) => response,
//!     Handled::Forward(forward) => the object of (forward.tenant, forward.session)
//! }
//! ```

use super::auth::Caller;
use super::auth_cache::AuthCache;
use super::failure::Failure;
use super::routes::{AdminRoute, Found, SessionRoute, Target, find};
use super::seal::Seal;
use super::{ApiRequest, ApiResponse, body, cors, idempotency, idempotency::Knot};
use crate::memory::Memories;
use crate::ports::{Clock, Directory, Entropy, Http, SessionEraser, Signatures};
use crate::types::{ErrorCode, Principal, Problem, TenantId, id};
use crate::workspace::Workspaces;
use bytes::Bytes;
use futures::{FutureExt, future::LocalBoxFuture};
use serde::Deserialize;
use serde_json::json;
use std::rc::Rc;

/// How a deployment is set up. Holds secrets, so it cannot be printed.
#[derive(Default)]
pub struct FrontConfig {
    /// The operator's key. Without it there is no administration, and no tickets.
    pub admin_key: Option<String>,
    /// A key for development: tenant `dev`, everything allowed.
    pub dev_api_key: Option<String>,
    /// Origins of pages that may call.
    pub origins: Vec<String>,
    /// The models that can be named, as `provider/model`.
    pub models: Vec<String>,
    /// The shards that tenants can be on.
    pub shards: Vec<String>,
}

/// The front. Cheap to make for each request; only the cache lives longer.
pub struct Front {
    /// How the deployment is set up.
    pub config: FrontConfig,
    /// Tenants, keys, the list of sessions.
    pub directory: Rc<dyn Directory>,
    /// For identity providers' keys.
    pub http: Rc<dyn Http>,
    /// Verifies what identity providers sign.
    pub signatures: Rc<dyn Signatures>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// Chance.
    pub entropy: Rc<dyn Entropy>,
    /// The files of agents.
    pub files: Rc<Workspaces>,
    /// What agents remember of their users.
    pub memories: Rc<Memories>,
    /// Erases the sessions of a tenant that goes.
    pub eraser: Rc<dyn SessionEraser>,
    /// What the isolate remembers of credentials.
    pub cache: Rc<AuthCache>,
    /// Takes a line about our own trouble.
    pub log: Rc<dyn Fn(&str)>,
}

/// What became of a request.
pub enum Handled {
    /// The answer.
    Answer(ApiResponse),
    /// It is one session's affair.
    Forward(Box<Forward>),
}

/// A request on its way to a session's object.
pub struct Forward {
    /// The tenant, first part of the object's name.
    pub tenant: TenantId,
    /// The session, second part. For [`SessionRoute::Create`] this is the id to use.
    pub session: String,
    /// What is asked.
    pub route: SessionRoute,
    /// Who asks.
    pub principal: Principal,
    /// The head, with its request id and without credentials. The body is in it only if
    /// `body_read`.
    pub request: ApiRequest,
    /// Whether the front has read the body; otherwise it is still to be passed on.
    pub body_read: bool,
    /// To be settled with [`Front::settle_key`] when the object has answered.
    pub knot: Option<Knot>,
    /// Headers to set on whatever the object answers.
    pub answer_headers: Vec<(String, String)>,
}

impl Front {
    /// Handles a request. `head` has no body yet; `read_body` is called only if the front needs it.
    pub async fn handle<'a>(
        &self,
        mut head: ApiRequest,
        read_body: impl FnOnce() -> LocalBoxFuture<'a, Result<Bytes, Problem>>,
    ) -> Handled {
        head.id = self.request_id(&head);
        let request_id = head.id.clone();
        let mut headers = vec![("x-request-id".to_owned(), request_id.clone())];
        headers.extend(cors::headers(&self.config.origins, &head));
        let handled = match cors::is_preflight(&head) {
            true => cors::preflight(&self.config.origins, &head).map(Handled::Answer).map_err(Failure::from),
            false => self.dispatch(head, read_body).await,
        };
        match handled {
            Ok(Handled::Forward(mut forward)) => {
                forward.answer_headers = headers;
                Handled::Forward(forward)
            }
            Ok(Handled::Answer(mut response)) => {
                response.headers.extend(headers);
                Handled::Answer(response)
            }
            Err(failure) => {
                if let Some(line) = failure.for_log() {
                    (self.log)(&format!("request {request_id}: {line}"));
                }
                let mut response = ApiResponse::problem(&failure.into_problem(), &request_id);
                response.headers.extend(headers);
                Handled::Answer(response)
            }
        }
    }

    async fn dispatch<'a>(
        &self,
        mut request: ApiRequest,
        read_body: impl FnOnce() -> LocalBoxFuture<'a, Result<Bytes, Problem>>,
    ) -> Result<Handled, Failure> {
        let found = find(&request.method, &request.path)?;
        let caller = self.authenticate(&request, &found).await?;
        let reads_body = match found.route.target {
            Target::Session(route) => route == SessionRoute::Create,
            _ => matches!(request.method.as_str(), "POST" | "PUT" | "PATCH"),
        };
        if reads_body {
            request.body = read_body().await?;
            if request.body.len() > ApiRequest::MAX_BODY {
                return Err(Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than 4 MiB").into());
            }
        }
        let response = match (found.route.target, caller) {
            (Target::Health, _) => ApiResponse::json(200, &json!({ "status": "ok" }))?,
            (Target::Admin(route), Caller::Operator) => self.administer(route, &found, &request).await?,
            (Target::ListModels, Caller::Member(_)) => self.list_models()?,
            (Target::ListSessions, Caller::Member(caller)) => self.list_sessions(&request, &caller).await?,
            (Target::Workspace(route), Caller::Member(caller)) => {
                self.workspace(route, &found, &request, &caller).await?
            }
            (Target::Memory(route), Caller::Member(caller)) => {
                self.memory(route, &found, &request, &caller).await?
            }
            (Target::CreateTicket, Caller::Member(caller)) => {
                // The answer speaks for this caller, so nobody else of the tenant may replay it.
                let user = caller.user.clone().or_else(|| request.query("user"));
                let owner = json!([caller.tenant, user, caller.scopes]).to_string();
                let work = async { self.create_ticket(&request, &caller) }.boxed_local();
                self.once(&request, &owner, work).await?
            }
            (Target::Session(route), Caller::Member(caller)) => {
                let mut knot = None;
                if route == SessionRoute::Create {
                    let owner = json!([caller.tenant, caller.user]).to_string();
                    knot = self.tie_key(&request, &owner).await?;
                }
                return self.forward(route, &found, request, caller, reads_body, knot);
            }
            // The table gives each target its access; a row that does not is our own fault.
            _ => return Err(Problem::internal("a route's access does not fit its target").into()),
        };
        Ok(Handled::Answer(response))
    }

    async fn administer(
        &self,
        route: AdminRoute,
        found: &Found,
        request: &ApiRequest,
    ) -> Result<ApiResponse, Failure> {
        let (tenant, key) = (&TenantId::from(found.param("tenant")), found.param("key"));
        match route {
            AdminRoute::CreateTenant => {
                self.once(request, "operator", self.create_tenant(request).boxed_local()).await
            }
            AdminRoute::ListTenants => self.list_tenants(request).await,
            AdminRoute::ShowTenant => self.show_tenant(tenant).await,
            AdminRoute::UpdateTenant => self.update_tenant(tenant, request).await,
            AdminRoute::DeleteTenant => self.delete_tenant(tenant).await,
            AdminRoute::CreateKey => {
                self.once(request, "operator", self.create_key(tenant, request).boxed_local()).await
            }
            AdminRoute::ListKeys => self.list_keys(tenant, request).await,
            AdminRoute::DeleteKey => self.delete_key(tenant, key).await,
        }
    }

    fn forward(
        &self,
        route: SessionRoute,
        found: &Found,
        mut request: ApiRequest,
        principal: Principal,
        body_read: bool,
        knot: Option<Knot>,
    ) -> Result<Handled, Failure> {
        let session = match route {
            SessionRoute::Create => self.new_session_id(&request, &principal)?,
            _ => found.param("id").to_owned(),
        };
        if !id::is_valid(&session) {
            return Err(Problem::not_found("session").into());
        }
        request.headers.retain(|(name, _)| name != "authorization");
        request.query = without_ticket(&request.query);
        Ok(Handled::Forward(Box::new(Forward {
            tenant: principal.tenant.clone(),
            session,
            route,
            principal,
            request,
            body_read,
            knot,
            answer_headers: Vec::new(),
        })))
    }

    /// The id of the session that a POST makes: the chosen one; or, under an Idempotency-Key, one
    /// that follows from tenant, token's user and key, so that a repetition meets the same object,
    /// which remembers its first answer; or else a new one.
    fn new_session_id(&self, request: &ApiRequest, principal: &Principal) -> Result<String, Problem> {
        #[derive(Deserialize)]
        struct Chosen {
            #[serde(default)]
            id: Option<String>,
        }
        let chosen: Chosen = body::json_or_empty(request)?;
        match (chosen.id, idempotency::key(request)?) {
            (Some(id), _) if id::is_valid(&id) => Ok(id),
            (Some(_), _) => Err(Problem::field("/id", "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @")),
            (None, Some(key)) => {
                let name = json!(["session", principal.tenant, principal.user, key]).to_string();
                Ok(id::derive(id::SESSION, &name))
            }
            (None, None) => Ok(self.make_id(id::SESSION)),
        }
    }

    /// A new id.
    pub(super) fn make_id(&self, prefix: &str) -> String {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        id::make(prefix, self.clock.now(), &random)
    }

    /// The seal for secrets at rest; none without an operator's key.
    pub(super) fn seal(&self) -> Option<Seal> {
        self.config.admin_key.as_deref().map(Seal::new)
    }

    /// The caller's own request id if it is a plain one, or else a new one.
    pub fn request_id(&self, head: &ApiRequest) -> String {
        let is_plain = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        let own = head.header("x-request-id").filter(is_plain);
        own.map_or_else(|| self.make_id(id::REQUEST), Into::into)
    }
}

/// A query without its ticket, however that is spelled: credentials end at the front.
fn without_ticket(query: &str) -> String {
    let is_ticket = |pair: &&str| form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name == "ticket");
    query.split('&').filter(|pair| !is_ticket(pair)).collect::<Vec<_>>().join("&")
}
