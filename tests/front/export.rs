//! Exports of tenants and users.

use crate::signer::Signer;
use crate::stage::{ADMIN, DEV, NOW, Pieces, Request, Stage, get, post, request};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::http::{Body, Handled};
use edge_harness::ports::{
    Ledger, PeerError,
    consents::{ConsentKey, ConsentKind, ConsentStore},
};
use edge_harness::types::{Day, UsageKey, UsageRow, UsageTotals};
use futures::{StreamExt, TryStreamExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::time::Duration;

/// The entries of an archive, by name.
type Archive = BTreeMap<String, Vec<u8>>;

fn unzip(bytes: Vec<u8>) -> Archive {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
    let entries = (0..archive.len()).map(|index| {
        let mut entry = archive.by_index(index).unwrap();
        let mut content = Vec::new();
        // Checks the checksum too.
        entry.read_to_end(&mut content).unwrap();
        (entry.name().to_owned(), content)
    });
    let entries: Vec<_> = entries.collect();
    let count = entries.len();
    let by_name: Archive = entries.into_iter().collect();
    assert_eq!(by_name.len(), count, "each name occurs once in a part");
    by_name
}

fn text(archive: &Archive, name: &str) -> String {
    let content = archive.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", archive.keys()));
    String::from_utf8(content.clone()).unwrap()
}

fn lines(archive: &Archive, name: &str) -> Vec<Value> {
    text(archive, name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn manifest(archive: &Archive) -> Value {
    serde_json::from_str(&text(archive, "manifest.json")).unwrap()
}

impl Stage {
    fn archive(&self, request: Request) -> Archive {
        let Handled::Response(response) = self.send(request) else { panic!("forwarded") };
        let (head, body) = response.into_parts();
        assert_eq!(head.status.as_u16(), 200);
        assert_eq!(head.headers["content-type"], "application/zip");
        let Body::Stream(stream) = body else { panic!("an export is a stream") };
        unzip(block_on(stream.try_collect::<Vec<_>>()).unwrap().concat())
    }

    /// Reads all parts of an export.
    fn parts(&self, path: &str, credential: &str) -> Vec<Archive> {
        let mut parts = vec![self.archive(get(path).bearer(credential))];
        while let Some(next) = manifest(&parts[parts.len() - 1])["next"].as_str() {
            let glue = if path.contains('?') { '&' } else { '?' };
            let next = format!("{path}{glue}cursor={next}");
            parts.push(self.archive(get(&next).bearer(credential)));
        }
        parts
    }

    fn log(&self, tenant: &str, session: &str, records: &[Value]) {
        let lines = records.iter().map(|record| Ok(format!("{record}\n").into())).collect();
        self.respond(tenant, session, "/events", 200, lines);
    }

    fn respond(&self, tenant: &str, session: &str, rest: &str, status: u16, body: Pieces) {
        let name = format!("{tenant}/{session} {session}{rest}");
        self.objects.responses.borrow_mut().insert(name, (status, body));
    }

    /// Gives a user of a tenant one of everything, all of which contain `mark`.
    fn furnish(&self, tenant: &str, key: &str, user: &str, mark: &str) {
        let session = format!("session-{user}");
        self.session(tenant, &session, user, 0);
        let stored = json!({"seq": 2, "type": "artifact.stored", "ref": "art_1"});
        self.log(tenant, &session, &[json!({"seq": 1, "text": format!("{mark} said")}), stored]);
        let artifact = vec![Ok(format!("{mark} ").into()), Ok("stored".into())];
        self.respond(tenant, &session, "/artifacts/art_1", 200, artifact);
        let fact = json!({"user": user, "facts": [{"id": "f", "text": format!("{mark} fact")}]});
        assert_eq!(self.answer(post("/v1/memory").bearer(key).json(&fact)).status, 201);
        let turn = json!({"id": "t", "speaker": "user", "text": format!("{mark} turn")});
        let turns = json!({"user": user, "session": "old", "turns": [turn]});
        assert_eq!(self.answer(post("/v1/memory/turns").bearer(key).json(&turns)).status, 201);
        for (name, text) in [("small.md", format!("{mark} file")), ("large.md", mark.repeat(100_000))] {
            let path = format!("/v1/workspace/files/docs/{name}?user={user}&agent=other");
            assert_eq!(self.answer(request("PUT", &path).bearer(key).body(text)).status, 201);
        }
        let key = UsageKey {
            day: Day::of(NOW),
            agent: "default".into(),
            model: format!("demo/{mark}"),
            user: user.into(),
        };
        let totals = UsageTotals { turns: 3, ..UsageTotals::default() };
        block_on(self.ledger.charge(&tenant.into(), &[UsageRow { key, totals }])).unwrap();
    }
}

/// Two tenants, of which the first has two users. Returns a key of the first.
fn furnished() -> (Stage, String) {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.tenant("other", Value::Null);
    let (_, key) = stage.key("acme", json!({ "name": "all", "scopes": ["chat", "read", "admin"] }));
    let (_, foreign) = stage.key("other", json!({}));
    stage.furnish("acme", &key, "ann", "annmark");
    stage.furnish("acme", &key, "bob", "bobmark");
    stage.furnish("other", &foreign, "ann", "foreignmark");
    for (tenant, user) in [("acme", "ann"), ("acme", "bob"), ("other", "ann")] {
        let name = format!("https://{user}.example.com/");
        let (tenant, user) = (tenant.into(), Some(user.into()));
        let key = ConsentKey { tenant, user, kind: ConsentKind::Token, name };
        block_on(stage.consents.put(&key, "the-token", None, NOW)).unwrap();
    }
    (stage, key)
}

#[test]
fn an_export_has_everything_of_a_tenant_and_nothing_of_others() {
    let (stage, key) = furnished();
    let parts = stage.parts("/v1/admin/tenants/acme/export", ADMIN);
    let [archive] = parts.as_slice() else { panic!("{} parts", parts.len()) };
    let names: Vec<&str> = archive.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "agents.ndjson",
            "consents.ndjson",
            "files/agents/other/users/ann/docs/large.md",
            "files/agents/other/users/ann/docs/small.md",
            "files/agents/other/users/bob/docs/large.md",
            "files/agents/other/users/bob/docs/small.md",
            "keys.ndjson",
            "manifest.json",
            "memory/default/ann/facts.ndjson",
            "memory/default/ann/turns.ndjson",
            "memory/default/bob/facts.ndjson",
            "memory/default/bob/turns.ndjson",
            "sessions.ndjson",
            "sessions/session-ann/artifacts/art_1",
            "sessions/session-ann/events.ndjson",
            "sessions/session-bob/artifacts/art_1",
            "sessions/session-bob/events.ndjson",
            "tenant.json",
            "usage.ndjson",
        ]
    );
    assert_eq!(
        manifest(archive),
        json!({
            "tenant": "acme", "user": null, "created_at": "2026-11-20T12:00:00.000Z",
            "complete": true, "next": null, "failed": [],
            "counts": { "sessions": 2, "artifacts": 2, "facts": 2, "turns": 2, "files": 4 },
        })
    );
    assert_eq!(
        lines(archive, "sessions/session-ann/events.ndjson")[0],
        json!({"seq": 1, "text": "annmark said"})
    );
    assert_eq!(text(archive, "sessions/session-ann/artifacts/art_1"), "annmark stored");
    assert_eq!(text(archive, "files/agents/other/users/ann/docs/large.md"), "annmark".repeat(100_000));
    let fact = &lines(archive, "memory/default/ann/facts.ndjson")[0];
    assert_eq!((&fact["id"], &fact["text"]), (&json!("f"), &json!("annmark fact")));
    let turn = &lines(archive, "memory/default/bob/turns.ndjson")[0];
    assert_eq!((&turn["id"], &turn["session"]), (&json!("t"), &json!("old")));
    assert_eq!(lines(archive, "usage.ndjson")[0]["turns"], 3);
    assert_eq!(lines(archive, "keys.ndjson")[0]["name"], "all");
    let consent = |user: &str| json!({"user": user, "server": format!("https://{user}.example.com/")});
    assert_eq!(lines(archive, "consents.ndjson"), [consent("ann"), consent("bob")]);
    assert_eq!(serde_json::from_str::<Value>(&text(archive, "tenant.json")).unwrap()["id"], "acme");
    let all: Vec<u8> = archive.values().flatten().copied().collect();
    let all = String::from_utf8(all).unwrap();
    for absent in ["foreignmark", &key, "hash"] {
        assert!(!all.contains(absent), "{absent}");
    }
}

#[test]
fn a_part_ends_after_a_minute() {
    let (stage, key) = furnished();
    let Handled::Response(response) = stage.send(get("/v1/export").bearer(&key)) else { panic!("forwarded") };
    let Body::Stream(mut stream) = response.into_body() else { panic!("an export is a stream") };
    let first = block_on(stream.next()).unwrap().unwrap();
    stage.clock.advance(Duration::from_mins(1));
    let rest = block_on(stream.try_collect::<Vec<_>>()).unwrap();
    let part = unzip([vec![first], rest].concat().concat());
    assert_eq!(manifest(&part)["counts"]["sessions"], 0);
    assert!(manifest(&part)["next"].is_string(), "the next request checks the key");
}

#[test]
fn an_export_of_a_user_has_nothing_of_other_users() {
    let (stage, key) = furnished();
    for (path, credential) in
        [("/v1/admin/tenants/acme/export?user=ann", ADMIN), ("/v1/export?user=ann", &key)]
    {
        let archive = &stage.parts(path, credential)[0];
        assert_eq!(
            archive.keys().collect::<Vec<_>>(),
            [
                "consents.ndjson",
                "files/agents/other/users/ann/docs/large.md",
                "files/agents/other/users/ann/docs/small.md",
                "manifest.json",
                "memory/default/ann/facts.ndjson",
                "memory/default/ann/turns.ndjson",
                "sessions.ndjson",
                "sessions/session-ann/artifacts/art_1",
                "sessions/session-ann/events.ndjson",
                "usage.ndjson",
            ]
        );
        let all: Vec<u8> = archive.values().flatten().copied().collect();
        let all = String::from_utf8(all).unwrap();
        assert!(all.contains("annmark") && !all.contains("bob") && !all.contains("foreignmark"));
        assert!(all.contains("https://ann.example.com/") && !all.contains("the-token"));
        assert_eq!(manifest(archive)["user"], "ann");
    }
    let whole = &stage.parts("/v1/export", &key)[0];
    assert!(whole.contains_key("sessions/session-bob/events.ndjson"), "with the scope admin");
}

#[test]
fn only_entitled_callers_export() {
    let stage = Stage::new();
    let jwt = json!({ "issuer": "i", "audience": "app", "jwks": { "keys": [Signer::Secret.jwk("k")] } });
    stage.tenant("acme", jwt);
    let (_, key) = stage.key("acme", json!({}));
    stage.furnish("acme", &key, "ann", "annmark");
    stage.furnish("acme", &key, "bob", "bobmark");
    let token = |scope: &str| {
        let exp = NOW.0 / 1_000 + 600;
        let claims = json!({ "iss": "i", "sub": "ann", "aud": "app", "exp": exp, "scope": scope });
        Signer::Secret.token("k", &claims)
    };
    let (read, chat) = (token("read"), token("chat"));
    for (path, credential, expected) in [
        ("/v1/export", key.as_str(), (403, "missing_scope")),
        ("/v1/export?user=ann", &key, (403, "missing_scope")),
        ("/v1/export", &chat, (403, "missing_scope")),
        ("/v1/export?user=bob", &read, (422, "user_mismatch")),
        ("/v1/export", ADMIN, (403, "missing_scope")),
        ("/v1/export?cursor=x", DEV, (422, "validation_failed")),
        ("/v1/export?user=a%2Fb", DEV, (422, "validation_failed")),
        ("/v1/admin/tenants/acme/export", &key, (403, "missing_scope")),
        ("/v1/admin/tenants/acme/export?user=a%2Fb", ADMIN, (422, "validation_failed")),
        ("/v1/admin/tenants/none/export", ADMIN, (404, "not_found")),
    ] {
        assert_eq!(stage.answer(get(path).bearer(credential)).code(), expected, "{path}");
    }
    let own = &stage.parts("/v1/export", &read)[0];
    let all: Vec<u8> = own.values().flatten().copied().collect();
    let all = String::from_utf8(all).unwrap();
    assert!(all.contains("annmark said") && !all.contains("bobmark"), "a token exports its own user");
    assert!(!own.contains_key("tenant.json") && !own.contains_key("keys.ndjson"));
}

#[test]
fn a_changed_cursor_leads_to_no_other_user() {
    let (stage, key) = furnished();
    let forged = |position: Value| {
        let path = format!("/v1/export?user=ann&cursor={}", B64.encode(json!([null, position]).to_string()));
        get(&path).bearer(&key)
    };
    let memory = json!({"user": "bob", "agent": "default", "kind": "facts", "entries_after": 0});
    let refused = [
        json!({ "memory": memory }),
        json!({"files": {"scope": "agents/other/users/bob", "files_after": ""}}),
        json!({"files": {"scope": "agents/other/shared", "files_after": ""}}),
        json!({"files": {"scope": "agents/other/users/bob/users/ann", "files_after": ""}}),
    ];
    for position in refused {
        assert_eq!(stage.answer(forged(position.clone())).code(), (422, "validation_failed"), "{position}");
    }
    let session = json!({"created_at": NOW, "id": "session-bob", "artifacts_after": 0});
    stage.archive(forged(json!({ "sessions": session })));
    let reader = stage.objects.reader.borrow().clone();
    assert_eq!(reader.as_deref(), Some("ann"), "the object refuses another user");
    stage.archive(get("/v1/export").bearer(&key));
    assert_eq!(*stage.objects.reader.borrow(), None, "an export of a tenant reads all sessions");
}

#[test]
fn parts_are_bounded_and_continue_each_other() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    for n in 0..500 {
        let id = format!("s{n:03}");
        stage.session("acme", &id, "ann", n / 3);
        stage.log("acme", &id, &[json!({ "seq": 1, "mark": id })]);
    }
    // More artifacts than one part holds.
    let stored = |n: u64| json!({ "seq": n, "type": "artifact.stored", "ref": format!("art_{n}") });
    let records: Vec<Value> = (1..=700).map(stored).collect();
    stage.session("acme", "many", "ann", 100);
    stage.log("acme", "many", &records);
    for n in 1..=700 {
        stage.respond("acme", "many", &format!("/artifacts/art_{n}"), 200, vec![Ok("x".into())]);
        let rest = records[usize::try_from(n).unwrap()..].iter();
        let rest = rest.map(|record| Ok(format!("{record}\n").into())).collect();
        stage.respond("acme", "many", &format!("/events?after={n}"), 200, rest);
    }
    stage.files.fill(&"acme".into(), "agents/default/users/ann", 6_000);
    let facts: Vec<Value> = (0..900).map(|n| json!({ "id": format!("f{n}"), "text": "x" })).collect();
    for user in ["ann", "bob", "cid"] {
        let body = json!({ "user": user, "facts": facts });
        assert_eq!(stage.answer(post("/v1/memory").bearer(&key).json(&body)).status, 201);
    }

    let (mut parts, mut seen) = (0, BTreeMap::<String, usize>::new());
    let mut counts = [0; 5];
    let mut facts = Vec::new();
    let mut path = "/v1/admin/tenants/acme/export".to_owned();
    loop {
        let before = stage.objects.reads.get();
        let archive = stage.archive(get(&path).bearer(ADMIN));
        assert!(stage.objects.reads.get() - before <= 620, "calls of a part");
        parts += 1;
        for name in archive.keys() {
            *seen.entry(name.clone()).or_default() += 1;
            if name.ends_with("facts.ndjson") {
                facts.extend(lines(&archive, name));
            }
        }
        let manifest = manifest(&archive);
        assert_eq!(manifest["failed"], json!([]));
        for (sum, name) in counts.iter_mut().zip(["sessions", "artifacts", "facts", "turns", "files"]) {
            *sum += manifest["counts"][name].as_u64().unwrap();
        }
        assert_eq!(manifest["complete"], manifest["next"].is_null());
        match manifest["next"].as_str() {
            Some(next) => path = format!("/v1/admin/tenants/acme/export?cursor={next}"),
            None => break,
        }
    }
    assert!((3..20).contains(&parts), "{parts} parts");
    assert_eq!((counts, facts.len()), ([501, 700, 2_700, 0, 6_000], 2_700));
    let repeated = seen.iter().filter(|(name, count)| **count > 1 && !name.ends_with("facts.ndjson"));
    let repeated: Vec<_> = repeated.map(|(name, _)| name.as_str()).collect();
    assert_eq!(repeated, ["manifest.json", "sessions.ndjson"], "everything is in one part");
}

#[test]
fn what_cannot_be_read_is_in_the_manifest() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let stored = json!({ "seq": 1, "type": "artifact.stored", "ref": "art_1" });
    for (age, id) in ["lost", "newer", "cut", "expired", "fine"].into_iter().enumerate() {
        stage.session("acme", id, "ann", age as u64);
    }
    stage.respond("acme", "newer", "/events", 503, vec![]);
    let cut = vec![Ok("{\"seq\":1}\n".into()), Err(PeerError("reset by a secret peer".into()))];
    stage.respond("acme", "cut", "/events", 200, cut);
    stage.log("acme", "expired", std::slice::from_ref(&stored));
    stage.respond("acme", "expired", "/artifacts/art_1", 410, vec![]);
    stage.log("acme", "fine", &[json!({ "seq": 1 })]);
    let fact = json!({ "user": "ann", "facts": [{ "text": "x" }] });
    assert_eq!(stage.answer(post("/v1/memory").bearer(&key).json(&fact)).status, 201);
    stage.ledger.down.set(true);
    stage.index.down.set(true);

    let archive = stage.archive(get("/v1/admin/tenants/acme/export").bearer(ADMIN));
    let report = manifest(&archive);
    let failed = report["failed"].as_array().unwrap().iter();
    assert_eq!(
        failed.map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(),
        [
            "usage.ndjson",
            "sessions/lost/events.ndjson",
            "sessions/newer/events.ndjson",
            "sessions/cut/events.ndjson",
            "sessions/expired/artifacts/art_1",
            "memory",
        ]
    );
    assert!(!report.to_string().contains("secret peer"), "causes are for the operator's log");
    assert!(stage.logged("secret peer"));
    assert_eq!(report["complete"], false);
    assert_eq!(text(&archive, "sessions/cut/events.ndjson"), "{\"seq\":1}\n");
    assert!(
        archive.contains_key("sessions/fine/events.ndjson")
            && !archive.contains_key("sessions/lost/events.ndjson")
    );
    assert_eq!(lines(&archive, "sessions.ndjson").len(), 5);

    stage.index.down.set(false);
    let next = format!("/v1/admin/tenants/acme/export?cursor={}", report["next"].as_str().unwrap());
    let rest = stage.archive(get(&next).bearer(ADMIN));
    assert!(rest.contains_key("memory/default/ann/facts.ndjson"), "the next part continues there");
    assert_eq!(manifest(&rest)["complete"], true);
}

#[test]
fn the_archive_of_a_session_has_its_state_events_and_artifacts() {
    let stage = Stage::new();
    let state = json!({"id": "talk", "last_seq": 3}).to_string();
    stage.respond("dev", "talk", "", 200, vec![Ok(state.clone().into())]);
    let stored = |seq: u64, id: &str| json!({"seq": seq, "type": "artifact.stored", "ref": id});
    let log = [json!({"seq": 1}), stored(2, "art_1"), stored(3, "art_2")];
    stage.log("dev", "talk", &log);
    stage.respond("dev", "talk", "/artifacts/art_1", 200, vec![Ok("large ".into()), Ok("output".into())]);
    stage.respond("dev", "talk", "/artifacts/art_2", 410, vec![Ok("{\"code\": \"gone\"}".into())]);
    let path = "/v1/sessions/talk/export";
    let archive = stage.archive(get(path).bearer(DEV));
    assert_eq!(archive.keys().collect::<Vec<_>>(), ["artifacts/art_1", "events.ndjson", "session.json"]);
    assert_eq!(
        (text(&archive, "session.json"), text(&archive, "artifacts/art_1")),
        (state, "large output".into())
    );
    assert_eq!(lines(&archive, "events.ndjson"), log);

    // A client must not take half an archive for a whole one.
    stage.respond("dev", "talk", "/artifacts/art_1", 200, vec![Err(PeerError("overloaded".into()))]);
    let Handled::Response(response) = stage.send(get(path).bearer(DEV)) else { panic!("forwarded") };
    let Body::Stream(stream) = response.into_body() else { panic!("an export is a stream") };
    assert!(block_on(stream.try_collect::<Vec<_>>()).is_err());

    stage.respond("dev", "absent", "", 404, vec![Ok("{}".into())]);
    assert_eq!(stage.answer(get("/v1/sessions/absent/export").bearer(DEV)).code(), (404, "not_found"));
    assert_eq!(stage.answer(get("/v1/runs/talk/export").bearer(DEV)).code(), (404, "not_found"));
    assert_eq!(stage.answer(get(path)).code().0, 401);
}

#[test]
fn the_archive_of_a_run_has_its_report_and_the_calls_of_its_steps() {
    let stage = Stage::new();
    let id = format!("run_{:032}", 1);
    let run = json!({"agent": "default", "user": "default", "steps": [], "report": null});
    let name = format!("dev/{id}/v1/runs/{id}");
    stage.objects.responses.borrow_mut().insert(name, (200, vec![Ok(run.to_string().into())]));
    let started = |call: &str, tool: &str, args: Value| {
        json!({"type": "tool.started", "seq": 1, "at": "2026-01-01T00:00:00.000Z", "message": "m", "name": tool,
            "call_id": format!("{id}.{call}"), "args": args, "effect": "destructive"})
    };
    let step = json!({"id": "build", "type": "command", "command": "make"});
    let log = [
        started("plan.1", "run_plan", json!({"source": "model", "steps": [step]})),
        started("step.2.build", "local_shell", json!({"command": "make"})),
    ];
    stage.log("dev", &id, &log);
    let archive = stage.archive(get(&format!("/v1/runs/{id}/export")).bearer(DEV));
    let names = ["artifacts/build.json", "events.ndjson", "report.md", "run.json"];
    assert_eq!(archive.keys().collect::<Vec<_>>(), names);
    assert!(text(&archive, "report.md").contains("Not finished."));
    let calls: Value = serde_json::from_str(&text(&archive, "artifacts/build.json")).unwrap();
    assert_eq!((&calls["type"], &calls["calls"][0]["tool"]), (&json!("command"), &json!("local_shell")));
}
