//! The route table: every path of the API, the scope it needs, and its handler. The gateway and the objects of
//! sessions use the same table. The routes of other protocols are in their [`faces`].

use super::face::WriteProblem;
use super::faces::{self, openai};
use super::response::{self, Response};
use super::route::{
    DELETE, GET, GatewayHandler, Handler, PATCH, POST, PUT, Route, RouteMatch, SessionHandler, TenantHandler,
    run,
};
use super::session::{
    artifacts, decisions, delete, events, fork, resource, runs, socket, tasks, turns, update,
};
use super::{
    agents, audit, consent, export, keys, lists, memory, moves, pending, ready, runs as gateway_runs,
    secrets, skills, specs, tenants, tickets, usage, users, workspace,
};
use crate::types::Scope::{self, Admin, Approve, Chat, Read};
use crate::types::{ErrorCode, Problem};
use http::Method;

/// The routes of the native API.
static ROUTES: &[Route] = &[
    Route::new(GET, "/healthz", Handler::Public(run!(lists::health))),
    Route::new(GET, "/readyz", Handler::Public(run!(ready::ready))),
    Route::new(GET, "/openapi.json", Handler::Public(run!(lists::openapi))),
    Route::new(GET, "/client-metadata.json", Handler::Public(run!(consent::client_metadata))),
    Route::new(GET, "/v1/oauth/callback", Handler::Public(run!(consent::callback))),
    tenant(GET, "/v1/models", Read, run!(lists::models)).problems(openai::problem),
    tenant(GET, "/v1/models/{model*}", Read, run!(lists::model)).problems(openai::problem),
    tenant(GET, "/v1/sessions", Read, run!(lists::sessions)),
    tenant(GET, "/v1/runs", Read, run!(gateway_runs::list)),
    tenant(GET, "/v1/runs/{id}/export", Read, run!(gateway_runs::export)),
    Route::new(POST, "/v1/runs", Handler::NewSession(Chat, run!(runs::create)))
        .creates_session()
        .starts_turn(),
    session(GET, "/v1/runs/{id}", Read, run!(runs::show)),
    session(GET, "/v1/runs/{id}/events", Read, run!(events::events)).accepts_ticket(),
    session(POST, "/v1/runs/{id}/steps/{step}/approval", Chat, run!(runs::approve)).once(),
    session(POST, "/v1/runs/{id}/cancel", Chat, run!(runs::cancel)).once(),
    session(POST, "/v1/runs/{id}/retry", Chat, run!(runs::retry)).starts_turn(),
    tenant(GET, "/v1/pending", Read, run!(pending::list)),
    tenant(GET, "/v1/pending/events", Read, run!(pending::events)),
    Route::new(
        POST,
        "/v1/pending/{call_id}/claim",
        Handler::Split(Chat, &pending::FACE, run!(pending::at_gateway), run!(pending::claim)),
    ),
    Route::new(
        POST,
        "/v1/pending/{call_id}/progress",
        Handler::Split(Chat, &pending::FACE, run!(pending::at_gateway), run!(pending::report)),
    ),
    tenant(GET, "/v1/agents", Read, run!(agents::list)),
    tenant(GET, "/v1/agents/{agent}", Read, run!(agents::show)),
    tenant(PUT, "/v1/agents/{agent}", Admin, run!(agents::put)),
    tenant(DELETE, "/v1/agents/{agent}", Admin, run!(agents::delete)),
    tenant(GET, "/v1/agents/{agent}/versions", Read, run!(agents::versions)),
    tenant(POST, "/v1/agents/{agent}/versions/{version}/activate", Admin, run!(agents::activate)),
    tenant(GET, "/v1/secrets", Admin, run!(secrets::list)),
    tenant(PUT, "/v1/secrets/{name}", Admin, run!(secrets::put)),
    tenant(DELETE, "/v1/secrets/{name}", Admin, run!(secrets::delete)),
    tenant(GET, "/v1/usage", Read, run!(usage::own)),
    tenant(GET, "/v1/export", Read, run!(export::own)),
    // A ticket has at most the scopes of its creator, so `read` is enough to create one.
    // Not once: a repeated request must not return a ticket that has expired.
    tenant(POST, "/v1/tickets", Read, run!(tickets::create)),
    Route::new(POST, "/v1/sessions", Handler::NewSession(Chat, run!(resource::create)))
        .once()
        .creates_session(),
    session(GET, "/v1/sessions/{id}", Read, run!(resource::show)),
    tenant(GET, "/v1/sessions/{id}/export", Read, run!(export::of_session)),
    session(PATCH, "/v1/sessions/{id}", Chat, run!(update::update)),
    Route::new(
        DELETE,
        "/v1/sessions/{id}",
        Handler::Unread(Chat, |host, asked| Box::pin(delete::delete(host, asked))),
    ),
    session(GET, "/v1/sessions/{id}/view", Read, run!(resource::view)),
    session(POST, "/v1/sessions/{id}/fork", Chat, run!(fork::fork)).once(),
    session(GET, "/v1/sessions/{id}/messages", Read, run!(resource::messages)),
    session(POST, "/v1/sessions/{id}/messages", Chat, run!(turns::post)).creates_session().starts_turn(),
    session(POST, "/v1/sessions/{id}/steer", Chat, run!(turns::steer)),
    session(POST, "/v1/sessions/{id}/abort", Chat, run!(turns::abort)).once(),
    session(POST, "/v1/sessions/{id}/compact", Chat, run!(turns::compact)).once(),
    session(DELETE, "/v1/sessions/{id}/queue/{item}", Chat, run!(turns::dequeue)),
    session(GET, "/v1/sessions/{id}/turns/{turn}", Read, run!(resource::turn)),
    session(GET, "/v1/sessions/{id}/tasks", Read, run!(tasks::list)),
    session(GET, "/v1/sessions/{id}/tasks/{task}", Read, run!(tasks::show)),
    session(POST, "/v1/sessions/{id}/tasks/{task}/cancel", Chat, run!(tasks::cancel)),
    session(GET, "/v1/sessions/{id}/events", Read, run!(events::events)).accepts_ticket(),
    session(GET, "/v1/sessions/{id}/ws", Read, run!(socket::open)).accepts_ticket(),
    session(GET, "/v1/sessions/{id}/artifacts/{ref}", Read, run!(artifacts::download)).handles_head(),
    session(POST, "/v1/sessions/{id}/attachments", Chat, run!(artifacts::attach)).once(),
    session(POST, "/v1/sessions/{id}/approvals/{call_id}", Chat, run!(decisions::approve)).once(),
    session(POST, "/v1/sessions/{id}/answers/{call_id}", Chat, run!(decisions::answer)).once(),
    tenant(GET, "/v1/workspace/files", Read, run!(workspace::list)),
    tenant(GET, "/v1/workspace/files/{path*}", Read, run!(workspace::read)),
    tenant(PUT, "/v1/workspace/files/{path*}", Chat, run!(workspace::write)),
    tenant(DELETE, "/v1/workspace/files/{path*}", Chat, run!(workspace::delete)),
    tenant(GET, "/v1/skills", Read, run!(skills::list)),
    tenant(POST, "/v1/skills/{name}/promote", Approve, run!(skills::promote)).once(),
    tenant(GET, "/v1/specs", Read, run!(specs::list)),
    tenant(POST, "/v1/specs/generate", Chat, run!(specs::generate)).once(),
    tenant(GET, "/v1/specs/{spec}", Read, run!(workspace::read)),
    tenant(PUT, "/v1/specs/{spec}", Chat, run!(specs::write)),
    tenant(DELETE, "/v1/specs/{spec}", Chat, run!(workspace::delete)),
    tenant(POST, "/v1/specs/{spec}/validate", Read, run!(specs::validate)),
    tenant(GET, "/v1/memory/search", Read, run!(memory::search)),
    tenant(POST, "/v1/memory/search", Read, run!(memory::search)),
    tenant(POST, "/v1/memory", Chat, run!(memory::import::facts)).once(),
    tenant(DELETE, "/v1/memory", Chat, run!(memory::erase_user)),
    tenant(POST, "/v1/memory/turns", Chat, run!(memory::import::turns)).once(),
    tenant(GET, "/v1/memory/log/{date}", Read, run!(memory::log)),
    tenant(POST, "/v1/memory/consolidate", Chat, run!(memory::consolidate)).once(),
    operator(POST, "/v1/admin/tenants", run!(tenants::create)).once(),
    operator(GET, "/v1/admin/tenants", run!(tenants::list)),
    operator(GET, "/v1/admin/tenants/{tenant}", run!(tenants::show)),
    operator(PATCH, "/v1/admin/tenants/{tenant}", run!(tenants::update)),
    operator(DELETE, "/v1/admin/tenants/{tenant}", run!(tenants::delete)),
    operator(GET, "/v1/admin/tenants/{tenant}/usage", run!(usage::of_tenant)),
    operator(GET, "/v1/admin/tenants/{tenant}/audit", run!(audit::list)),
    operator(GET, "/v1/admin/tenants/{tenant}/export", run!(export::of_tenant)),
    operator(DELETE, "/v1/admin/tenants/{tenant}/users/{user}", run!(users::delete)),
    operator(POST, "/v1/admin/tenants/{tenant}/moves", run!(moves::create)),
    operator(GET, "/v1/admin/tenants/{tenant}/moves", run!(moves::list)),
    operator(POST, "/v1/admin/tenants/{tenant}/keys", run!(keys::create)).once(),
    operator(GET, "/v1/admin/tenants/{tenant}/keys", run!(keys::list)),
    operator(DELETE, "/v1/admin/tenants/{tenant}/keys/{key}", run!(keys::delete)),
];

/// Returns all routes: those of the native API, and those of each face.
pub fn all() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(faces::ROUTES.iter().copied().flatten())
}

const fn tenant(method: Method, path: &'static str, scope: Scope, handler: TenantHandler) -> Route {
    Route::new(method, path, Handler::Tenant(scope, handler))
}

const fn session(method: Method, path: &'static str, scope: Scope, handler: SessionHandler) -> Route {
    Route::new(method, path, Handler::Session(scope, handler))
}

const fn operator(method: Method, path: &'static str, handler: GatewayHandler) -> Route {
    Route::new(method, path, Handler::Operator(handler))
}

/// Finds the route of a method and a percent-encoded path. HEAD finds the GET routes of the gateway, and those of sessions
/// that handle it.
///
/// # Errors
/// `not_found` for an unknown path; `method_not_allowed`, with the methods of the path, for another method.
pub fn find(method: &Method, path: &str) -> Result<RouteMatch, Problem> {
    let serves = |route: &&'static Route| {
        let is_head = *method == Method::HEAD
            && route.method == Method::GET
            && (route.handles_head
                || matches!(route.handler, Handler::Public(_) | Handler::Operator(_) | Handler::Tenant(..)));
        route.method == method || is_head
    };
    let found = |route| Some(RouteMatch { route, params: route.matches(path)? });
    all().filter(serves).find_map(found).ok_or_else(|| not_found(method, path))
}

/// The problem of a method and a path that have no route.
fn not_found(method: &Method, path: &str) -> Problem {
    let others = all().filter(|route| route.matches(path).is_some());
    let allow: Vec<&str> = others.map(|route| route.method.as_str()).collect();
    if allow.is_empty() {
        return Problem::not_found("route");
    }
    let allow = allow.join(", ");
    let problem =
        Problem::new(ErrorCode::MethodNotAllowed, format!("{method} is not allowed here; use {allow}"));
    Problem { allow: Some(allow), ..problem }
}

/// Returns whether a repetition of the request could start another turn.
pub fn may_start_turn<B>(request: &http::Request<B>) -> bool {
    let found = find(request.method(), request.uri().path());
    found.is_ok_and(|found| found.route.starts_turn) && !request.headers().contains_key("idempotency-key")
}

/// Writes a problem in the format of the request's route.
pub fn problem<B>(request: &http::Request<B>, problem: &Problem, request_id: &str) -> Response {
    let found = find(request.method(), request.uri().path());
    found.map_or(response::problem as WriteProblem, |found| found.route.write_problem)(problem, request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, path: &str) -> (&'static str, RouteMatch) {
        let found = find(&method, path).expect("a route");
        (found.route.path, found)
    }

    #[test]
    fn only_a_message_without_a_key_may_start_another_turn() {
        let may = |method: Method, path: &str, key: bool| {
            let mut request = http::Request::builder().method(method).uri(path);
            if key {
                request = request.header("idempotency-key", "k");
            }
            may_start_turn(&request.body(()).expect("a request"))
        };
        assert!(may(POST, "/v1/responses", false) && may(POST, "/v1/sessions/s/messages", false));
        assert!(!may(POST, "/v1/responses", true) && !may(GET, "/v1/responses/r", false));
        assert!(!may(GET, "/absent", false));
    }

    #[test]
    fn finds_routes_and_decodes_parameters() {
        let (path, found) = found(DELETE, "/v1/sessions/user%40example.com/queue/a");
        assert_eq!(path, "/v1/sessions/{id}/queue/{item}");
        let params = ["id", "item", "x"].map(|name| found.params.get(name));
        assert_eq!(params, ["user@example.com", "a", ""]);
    }

    #[test]
    fn an_encoded_slash_does_not_change_the_route() {
        let (path, found) = found(GET, "/v1/sessions/a%2Fevents");
        assert_eq!((path, found.params.get("id")), ("/v1/sessions/{id}", "a/events"));
    }

    #[test]
    fn the_last_parameter_may_match_the_rest_of_the_path() {
        for (path, param) in
            [("a", "a"), ("a/b%20c/d", "a/b c/d"), ("/a", "/a"), ("a%2Fb", "a/b"), ("a/", "a/")]
        {
            let (pattern, found) = found(GET, &format!("/v1/workspace/files/{path}"));
            assert_eq!((pattern, found.params.get("path")), ("/v1/workspace/files/{path*}", param));
        }
        assert_eq!(found(GET, "/v1/workspace/files").0, "/v1/workspace/files");
        let problem = find(&GET, "/v1/workspace/files/").map(drop).expect_err("no file");
        assert_eq!(problem.code, ErrorCode::NotFound);
    }

    #[test]
    fn addresses_of_agents_may_end_with_a_slash() {
        for path in ["/a2a", "/a2a/"] {
            assert_eq!(found(POST, path).0, "/a2a");
        }
        let (path, found) = found(POST, "/a2a/research/");
        assert_eq!((path, found.params.get("agent")), ("/a2a/{agent}", "research"));
        assert!(find(&POST, "/a2a//").is_err());
    }

    #[test]
    fn unknown_paths_differ_from_wrong_methods() {
        for path in ["/", "", "/v1", "/v1/sessions/", "/v1/sessions/a/b", "/v1/sessions/%FF", "/healthz/"] {
            assert_eq!(find(&GET, path).map(drop).expect_err(path).code, ErrorCode::NotFound);
        }
        let problem = find(&PUT, "/v1/sessions/a").map(drop).expect_err("no PUT");
        assert_eq!(problem.allow.as_deref(), Some("GET, PATCH, DELETE"));
    }

    #[test]
    fn tickets_open_streams_only() {
        let open = all().filter(|route| route.accepts_ticket).map(|route| route.path);
        let expected = ["/v1/runs/{id}/events", "/v1/sessions/{id}/events", "/v1/sessions/{id}/ws"];
        assert_eq!(open.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_route_is_in_the_table_once() {
        for (index, route) in all().enumerate() {
            let same = all().skip(index + 1).any(|o| (&o.method, o.path) == (&route.method, route.path));
            assert!(!same, "{} {}", route.method, route.path);
        }
    }
}
