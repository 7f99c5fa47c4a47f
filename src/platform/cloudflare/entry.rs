//! The Worker's entry points.

use super::{
    convert, face_socket, messages,
    object::{FORWARD, ForwardHead, Objects, REACHED, object_name},
    runtime::ConsoleLog,
    setup,
};
use crate::http::anonymous_sockets::AnonymousSockets;
use crate::http::{
    Forward, ForwardedMessages, Gateway, GatewayConfig, Handled, Readiness, RefusalPace, Refusals,
    Request as HttpRequest, RequestBlocks, erasure, handle, idempotency, moves, over_limit, request, routes,
    storage_days, storage_limits,
};
use crate::ports::Log;
use crate::types::{Problem, json};
use futures::{FutureExt, future::join_all};
use js_sys::{Promise, Uint8Array};
use serde_json::json;
use std::{cell::OnceCell, panic::AssertUnwindSafe, rc::Rc};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Request, Response};
use worker::{Context, Env, Result, ScheduleContext, ScheduledEvent, event};

/// Number of objects that consolidate memories in one cron run, and the maximum number of spaces for each.
/// The next run continues.
const CONSOLIDATORS: usize = 5;
const SPACES: usize = 50;

#[wasm_bindgen(module = "/src/platform/cloudflare/http.js")]
extern "C" {
    #[wasm_bindgen(catch, js_name = forward)]
    fn raw_forward(
        namespace: &JsValue,
        object: &str,
        request: &Request,
        target: &JsValue,
        name: &str,
        value: &str,
        body: &JsValue,
    ) -> std::result::Result<Promise, JsValue>;
    #[wasm_bindgen(catch, js_name = without)]
    fn raw_without(response: &Response, name: &str) -> std::result::Result<Response, JsValue>;
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> Result<Response> {
    respond_or_log(request, &env).await
}

/// Responds to a request. A panic costs this request only.
async fn respond_or_log(request: Request, env: &Env) -> Result<Response> {
    let head = convert::head(&request);
    let why = match AssertUnwindSafe(respond(&request, head.clone(), env)).catch_unwind().await {
        Ok(Ok(response)) => return Ok(response),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "panic, logged above".to_owned(),
    };
    // A panic or a failed object: the caller gets the id of the log line that has the details.
    let id = gateway(env)?.request_id(&head);
    // The object may have started a turn before it failed.
    let problem = Problem { started_turn: routes::may_start_turn(&head), ..Problem::internal(why) };
    ConsoleLog.error(&json!({ "event": "request.failed", "request_id": id, "cause": problem.to_string() }));
    convert::response(routes::problem(&head, &problem, &id), &format!("x-request-id:{id}"))
}

async fn respond(request: &Request, head: HttpRequest, env: &Env) -> Result<Response> {
    #[cfg(feature = "fixtures")]
    if head.uri().path() == "/fixtures/panic" {
        #[allow(clippy::panic)]
        {
            panic!("as asked");
        }
    }
    #[cfg(feature = "fixtures")]
    if head.uri().path() == "/fixtures/memory" {
        return super::fixtures::memory(Clone::clone(request).into(), env).await.map(Into::into);
    }
    let gateway = gateway(env)?;
    let length = request::length(&head);
    let body = convert::body(request, length);
    match handle(&gateway, head, body).await {
        Handled::Response(response) => convert::response(response, ""),
        Handled::Forward(forward) => pass_on(env, request, *forward).await,
        Handled::Socket(socket) => face_socket::open(request, socket, gateway, env, |request, env| {
            async move { respond_or_log(request, &env).await }.boxed_local()
        }),
    }
}

/// Forwards a request to the object of its session, and streams the object's response back.
async fn pass_on(env: &Env, request: &Request, forward: Forward) -> Result<Response> {
    let head = ForwardHead {
        principal: forward.principal,
        session: forward.session,
        id: forward.request_id,
        response_headers: convert::header_lines(&forward.response_headers),
    };
    let objects = env.durable_object("SESSION")?;
    let object = object_name(&forward.tenant, &head.session);
    let body = match forward.body_read {
        true => Uint8Array::from(forward.request.body().bytes().as_ref()).into(),
        false => JsValue::UNDEFINED,
    };
    let target = match forward.had_ticket {
        true => JsValue::from_str(&forward.request.uri().to_string()),
        false => JsValue::UNDEFINED,
    };
    // The object may respond only when its turn has ended.
    forward.request.body().release();
    let value = json::ascii(&head)?;
    let sent = raw_forward(objects.as_ref(), &object, request, &target, FORWARD, &value, &body)?;
    drop(body);
    let response: Response = JsFuture::from(sent).await?.unchecked_into();
    drop(forward.message);
    if let Some(claim) = forward.claim {
        idempotency::settle(&*gateway(env)?, &claim, response.status()).await;
    }
    let reached = if response.status() == 429 { response.headers().get(REACHED)? } else { None };
    let Some(reached) = reached else { return Ok(response) };
    let (gateway, caller) = (gateway(env)?, &head.principal);
    let (quota, now) = (gateway.quota(caller), gateway.clock.now());
    gateway.refusals.add(&caller.tenant, quota, messages::of_json(&reached)?, now);
    over_limit::hold(&gateway, &caller.tenant).await;
    Ok(raw_without(&response, REACHED)?)
}

thread_local! {
    // Bindings belong to the isolate. The gateway keeps no other state beyond a request.
    static GATEWAY: OnceCell<Rc<Gateway>> = const { OnceCell::new() };
}

/// Returns the gateway of this isolate, which is created once.
fn gateway(env: &Env) -> Result<Rc<Gateway>> {
    if let Some(gateway) = GATEWAY.with(|cell| cell.get().map(Rc::clone)) {
        return Ok(gateway);
    }
    let gateway = Rc::new(new_gateway(env)?);
    Ok(GATEWAY.with(|cell| Rc::clone(cell.get_or_init(|| gateway))))
}

fn new_gateway(env: &Env) -> Result<Gateway> {
    let (models, shards) = (setup::models(env)?.list(), setup::shards(env)?.names().to_vec());
    let malformed = setup::malformed(env);
    let config = setup::with_config(env, |config| GatewayConfig {
        admin_key: config.admin_key.clone(),
        dev_api_key: config.dev_api_key.clone(),
        dev: config.dev,
        origins: config.cors_origins.clone(),
        modes: config.agent.modes.clone(),
        skills: config.agent.skills.clone(),
        models,
        shards,
        limits: config.limits.clone(),
        push_notifications: !config.push_allow.is_empty(),
        malformed,
    });
    Ok(Gateway {
        config,
        directory: setup::directory(env)?,
        http: setup::http(),
        signatures: setup::signatures(),
        clock: setup::clock(),
        entropy: setup::entropy(),
        agents: setup::agents(env)?,
        secrets: setup::secrets(env)?,
        files: setup::workspaces(env)?,
        memories: setup::memories(env)?,
        eraser: Rc::new(Objects(env.durable_object("SESSION")?)),
        reader: Rc::new(Objects(env.durable_object("SESSION")?)),
        ledger: setup::ledger(env)?,
        inbox: setup::inbox(env)?,
        moves: setup::moves(env)?,
        readiness: Readiness::default(),
        requests: RequestBlocks::default(),
        refusals: Refusals::default(),
        refusal_pace: RefusalPace::default(),
        messages: ForwardedMessages::default(),
        anonymous: AnonymousSockets::default(),
        cache: setup::auth_cache(),
        log: Rc::new(ConsoleLog),
    })
}

#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    let erased = match gateway(&env) {
        Ok(gateway) => erasure::sweep(&gateway).await.map_err(|problem| problem.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = erased {
        ConsoleLog.error(&json!({ "event": "erasure.failed", "cause": error }));
    }
    if let Ok(gateway) = gateway(&env) {
        moves::sweep(&gateway).await;
        storage_limits::sweep(&gateway).await;
        storage_days::sweep(&gateway).await;
    }
    // In several objects, because each has its own limit of subrequests to databases.
    let consolidated = match env.durable_object("SESSION") {
        Ok(objects) => {
            let objects = Objects(objects);
            let works = (0..CONSOLIDATORS).map(|index| objects.consolidate(index, SPACES));
            join_all(works).await.into_iter().find_map(|done| Some(done.err()?.to_string()))
        }
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = consolidated {
        ConsoleLog.error(&json!({ "event": "consolidation.failed", "cause": error }));
    }
}
