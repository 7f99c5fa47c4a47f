//! The route table: every path the server knows, what opens it, and where it leads. The Worker in
//! front and the session's object read the same table.

use crate::types::{ErrorCode, Problem, Scope};
use percent_encoding::percent_decode_str;

/// What a caller needs to open a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// The operator's key.
    Operator,
    /// A key, token or ticket with this scope.
    Scope(Scope),
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Says that the server is up.
    Health,
    /// Lists the models.
    ListModels,
    /// Lists the tenant's sessions.
    ListSessions,
    /// Makes a ticket for a browser.
    CreateTicket,
    /// The files of an agent's user.
    Workspace(WorkspaceRoute),
    /// What an agent remembers of a user.
    Memory(MemoryRoute),
    /// Tenants and keys.
    Admin(AdminRoute),
    /// The object of the session that the path names.
    Session(SessionRoute),
}

/// The routes to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceRoute {
    /// Lists files.
    List,
    /// Reads a file.
    Read,
    /// Writes a file.
    Write,
    /// Removes a file.
    Delete,
}

/// The routes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRoute {
    /// Finds.
    Search,
    /// Adds facts.
    Add,
    /// Adds turns of past conversations.
    Import,
    /// Reads the log of a day.
    Log,
    /// Consolidates now.
    Consolidate,
    /// Forgets a user everywhere.
    Forget,
}

/// The operator's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRoute {
    /// Makes a tenant.
    CreateTenant,
    /// Lists tenants.
    ListTenants,
    /// Shows a tenant.
    ShowTenant,
    /// Changes a tenant.
    UpdateTenant,
    /// Erases a tenant.
    DeleteTenant,
    /// Makes a key.
    CreateKey,
    /// Lists a tenant's keys.
    ListKeys,
    /// Revokes a key.
    DeleteKey,
}

/// The routes that one session's object answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRoute {
    /// Makes the session; the front has settled its id.
    Create,
    /// Shows it.
    Show,
    /// Shows all of it that a user interface needs.
    View,
    /// Changes it.
    Update,
    /// Erases it.
    Delete,
    /// Copies it into a new one.
    Fork,
    /// Lists its messages.
    ListMessages,
    /// Runs a turn.
    PostMessage,
    /// Shows a turn.
    ShowTurn,
    /// Streams or lists its events.
    Events,
    /// The same over a WebSocket.
    WebSocket,
    /// Reads an artifact.
    Artifact,
    /// Stores a file.
    Attach,
    /// Aborts the running turn.
    Abort,
    /// Replaces the running turn.
    Steer,
    /// Makes the context smaller.
    Compact,
    /// Takes a waiting message out of the queue.
    Dequeue,
    /// Decides on a call that waits for approval.
    Approve,
    /// Answers a call that waits for an answer.
    Answer,
}

/// One row of the table.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path; `{name}` stands for one segment, and `{name*}` at the end for all that follow.
    pub path: &'static str,
    /// What opens it.
    pub access: Access,
    /// Whether a `?ticket=` opens it too.
    pub ticket: bool,
    /// Where it leads.
    pub target: Target,
}

/// All routes.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", Access::Public, Target::Health),
    route("GET", "/v1/models", Access::Scope(Scope::Read), Target::ListModels),
    route("GET", "/v1/sessions", Access::Scope(Scope::Read), Target::ListSessions),
    // A ticket only ever carries what its maker may do, so reading is enough to ask for one.
    route("POST", "/v1/tickets", Access::Scope(Scope::Read), Target::CreateTicket),
    session("POST", "/v1/sessions", Scope::Chat, SessionRoute::Create),
    session("GET", "/v1/sessions/{id}", Scope::Read, SessionRoute::Show),
    session("GET", "/v1/sessions/{id}/view", Scope::Read, SessionRoute::View),
    session("PATCH", "/v1/sessions/{id}", Scope::Chat, SessionRoute::Update),
    session("DELETE", "/v1/sessions/{id}", Scope::Chat, SessionRoute::Delete),
    session("POST", "/v1/sessions/{id}/fork", Scope::Chat, SessionRoute::Fork),
    session("GET", "/v1/sessions/{id}/messages", Scope::Read, SessionRoute::ListMessages),
    session("POST", "/v1/sessions/{id}/messages", Scope::Chat, SessionRoute::PostMessage),
    session("GET", "/v1/sessions/{id}/turns/{turn}", Scope::Read, SessionRoute::ShowTurn),
    session("GET", "/v1/sessions/{id}/events", Scope::Read, SessionRoute::Events).or_ticket(),
    session("GET", "/v1/sessions/{id}/ws", Scope::Read, SessionRoute::WebSocket).or_ticket(),
    session("GET", "/v1/sessions/{id}/artifacts/{ref}", Scope::Read, SessionRoute::Artifact),
    session("POST", "/v1/sessions/{id}/attachments", Scope::Chat, SessionRoute::Attach),
    session("POST", "/v1/sessions/{id}/abort", Scope::Chat, SessionRoute::Abort),
    session("POST", "/v1/sessions/{id}/steer", Scope::Chat, SessionRoute::Steer),
    session("POST", "/v1/sessions/{id}/compact", Scope::Chat, SessionRoute::Compact),
    session("DELETE", "/v1/sessions/{id}/queue/{item}", Scope::Chat, SessionRoute::Dequeue),
    session("POST", "/v1/sessions/{id}/approvals/{call_id}", Scope::Chat, SessionRoute::Approve),
    session("POST", "/v1/sessions/{id}/answers/{call_id}", Scope::Chat, SessionRoute::Answer),
    workspace("GET", "/v1/workspace/files", Scope::Read, WorkspaceRoute::List),
    workspace("GET", "/v1/workspace/files/{path*}", Scope::Read, WorkspaceRoute::Read),
    workspace("PUT", "/v1/workspace/files/{path*}", Scope::Chat, WorkspaceRoute::Write),
    workspace("DELETE", "/v1/workspace/files/{path*}", Scope::Chat, WorkspaceRoute::Delete),
    memory("GET", "/v1/memory/search", Scope::Read, MemoryRoute::Search),
    memory("POST", "/v1/memory/search", Scope::Read, MemoryRoute::Search),
    memory("POST", "/v1/memory", Scope::Chat, MemoryRoute::Add),
    memory("DELETE", "/v1/memory", Scope::Chat, MemoryRoute::Forget),
    memory("POST", "/v1/memory/turns", Scope::Chat, MemoryRoute::Import),
    memory("GET", "/v1/memory/log/{date}", Scope::Read, MemoryRoute::Log),
    memory("POST", "/v1/memory/consolidate", Scope::Chat, MemoryRoute::Consolidate),
    admin("POST", "/v1/admin/tenants", AdminRoute::CreateTenant),
    admin("GET", "/v1/admin/tenants", AdminRoute::ListTenants),
    admin("GET", "/v1/admin/tenants/{tenant}", AdminRoute::ShowTenant),
    admin("PATCH", "/v1/admin/tenants/{tenant}", AdminRoute::UpdateTenant),
    admin("DELETE", "/v1/admin/tenants/{tenant}", AdminRoute::DeleteTenant),
    admin("POST", "/v1/admin/tenants/{tenant}/keys", AdminRoute::CreateKey),
    admin("GET", "/v1/admin/tenants/{tenant}/keys", AdminRoute::ListKeys),
    admin("DELETE", "/v1/admin/tenants/{tenant}/keys/{key}", AdminRoute::DeleteKey),
];

const fn route(method: &'static str, path: &'static str, access: Access, target: Target) -> Route {
    Route { method, path, access, ticket: false, target }
}

const fn session(method: &'static str, path: &'static str, scope: Scope, target: SessionRoute) -> Route {
    route(method, path, Access::Scope(scope), Target::Session(target))
}

const fn workspace(method: &'static str, path: &'static str, scope: Scope, target: WorkspaceRoute) -> Route {
    route(method, path, Access::Scope(scope), Target::Workspace(target))
}

const fn memory(method: &'static str, path: &'static str, scope: Scope, target: MemoryRoute) -> Route {
    route(method, path, Access::Scope(scope), Target::Memory(target))
}

const fn admin(method: &'static str, path: &'static str, target: AdminRoute) -> Route {
    route(method, path, Access::Operator, Target::Admin(target))
}

impl Route {
    const fn or_ticket(mut self) -> Self {
        self.ticket = true;
        self
    }
}

/// A route that fits, and what its `{names}` stand for.
#[derive(Debug)]
pub struct Found {
    /// The row of the table.
    pub route: &'static Route,
    params: Vec<(&'static str, String)>,
}

impl Found {
    /// What `{name}` stands for, decoded; empty if the route has no such name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }
}

/// Finds the route of a method and a path as they came.
///
/// # Errors
/// 404 for a path that nothing knows; 405 with `Allow` for a known one with another method.
pub fn find(method: &str, path: &str) -> Result<Found, Problem> {
    let mut allow: Vec<&str> = Vec::new();
    for route in ROUTES {
        let Some(params) = params(route.path, path) else { continue };
        if route.method == method {
            return Ok(Found { route, params });
        }
        allow.push(route.method);
    }
    if allow.is_empty() {
        return Err(Problem::not_found("route"));
    }
    let mut problem = Problem::new(
        ErrorCode::MethodNotAllowed,
        format!("{method} does not work here; use {}", allow.join(", ")),
    );
    problem.allow = Some(allow.join(", "));
    Err(problem)
}

/// The values of a pattern's names if `path` fits it.
fn params(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut params = Vec::new();
    let mut rest = Some(path);
    for expected in pattern.split('/') {
        let here = rest?;
        let (segment, behind) = match here.split_once('/') {
            Some((segment, behind)) if !expected.ends_with("*}") => (segment, Some(behind)),
            _ => (here, None),
        };
        rest = behind;
        match expected.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => {
                let value = percent_decode_str(segment).decode_utf8().ok()?;
                if value.is_empty() {
                    return None;
                }
                params.push((name.trim_end_matches('*'), value.into_owned()));
            }
            None if expected == segment => {}
            None => return None,
        }
    }
    rest.is_none().then_some(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_routes_and_decodes_names() {
        let found = find("DELETE", "/v1/sessions/user%40example.com/queue/a").expect("a route");
        assert_eq!(found.route.target, Target::Session(SessionRoute::Dequeue));
        assert_eq!((found.param("id"), found.param("item"), found.param("x")), ("user@example.com", "a", ""));
    }

    #[test]
    fn a_slash_cannot_be_smuggled_into_another_route() {
        let found = find("GET", "/v1/sessions/a%2Fevents").expect("a route");
        assert_eq!(
            (found.route.target, found.param("id")),
            (Target::Session(SessionRoute::Show), "a/events")
        );
    }

    #[test]
    fn the_last_name_may_stand_for_all_that_follows() {
        for (path, param) in
            [("a", "a"), ("a/b%20c/d", "a/b c/d"), ("/a", "/a"), ("a%2Fb", "a/b"), ("a/", "a/")]
        {
            let found = find("GET", &format!("/v1/workspace/files/{path}")).expect("a route");
            assert_eq!(
                (found.route.target, found.param("path")),
                (Target::Workspace(WorkspaceRoute::Read), param)
            );
        }
        let list = find("GET", "/v1/workspace/files").expect("a route");
        assert_eq!(list.route.target, Target::Workspace(WorkspaceRoute::List));
        assert_eq!(find("GET", "/v1/workspace/files/").expect_err("no name").code, ErrorCode::NotFound);
    }

    #[test]
    fn tells_unknown_paths_from_wrong_methods() {
        for path in ["/", "", "/v1", "/v1/sessions/", "/v1/sessions/a/b", "/v1/sessions/%FF", "/healthz/"] {
            assert_eq!(find("GET", path).expect_err(path).code, ErrorCode::NotFound);
        }
        let problem = find("PUT", "/v1/sessions/a").expect_err("no PUT");
        assert_eq!(problem.allow.as_deref(), Some("GET, PATCH, DELETE"));
    }

    #[test]
    fn tickets_open_reading_streams_only() {
        let open: Vec<_> = ROUTES.iter().filter(|route| route.ticket).map(|route| route.path).collect();
        assert_eq!(open, ["/v1/sessions/{id}/events", "/v1/sessions/{id}/ws"]);
    }
}
