//! The content and cost of glances, and their fallback when the store is unavailable.

use super::{Stage, bytes, path, prefix, put};
use crate::ports::{FileError, Filesystem, filesystem::Precondition};
use crate::types::{Owner, TenantId, WorkspaceOwner};
use crate::workspace::{
    Bundle, Layer, Workspaces,
    glance::{GlanceOptions, LayerView, View, WorkspaceGlance},
    stored::MAX_INLINE,
};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use std::{rc::Rc, time::Duration};

fn open(all: &Workspaces) -> WorkspaceGlance {
    open_with(all, Duration::ZERO)
}

fn open_with(all: &Workspaces, fresh: Duration) -> WorkspaceGlance {
    all.glance(options(fresh, true))
}

fn options(fresh: Duration, skills: bool) -> GlanceOptions {
    let wanted = ["AGENTS.md", "MEMORY.md", "knowledge/KNOWLEDGE.md"].map(path).to_vec();
    let (folder, timeout) = (prefix("knowledge/"), Duration::from_secs(2));
    GlanceOptions { wanted, max_chars: 100, folder, limit: 3, skills, fresh, timeout }
}

fn owner(tenant: &TenantId, agent: &str, user: &str) -> WorkspaceOwner {
    Owner { tenant: tenant.clone(), agent: agent.into(), user: user.into() }.into()
}

fn own(stage: &Stage, user: &str) -> Rc<dyn Filesystem> {
    Rc::clone(stage.of(user).layer(Layer::User))
}

fn read(glance: &WorkspaceGlance, user: &str) -> View {
    block_on(glance.read(&owner(&"t".into(), "a", user))).expect("a view")
}

/// Returns the path, text and layer of each file.
fn files(view: &View) -> Vec<(String, String, Layer)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let layers = [(&view.user, Layer::User), (&view.shared, Layer::Shared)];
    let of = |(layer, name): (&'_ LayerView, Layer)| -> Vec<_> {
        let files = layer.files.iter();
        files.map(|(path, start)| (path.to_string(), text(&start.bytes), name)).collect()
    };
    layers.into_iter().flat_map(of).collect()
}

#[test]
fn a_glance_shows_both_layers() {
    let template: &[(&str, &'static [u8])] = &[("AGENTS.md", b"template"), ("knowledge/t.md", b"t")];
    let stage = Stage::with(Bundle::new(template).expect("paths"));
    let glance = open(&stage.all);
    assert_eq!(files(&read(&glance, "ann")), [("AGENTS.md".into(), "template".into(), Layer::Shared)]);
    stage.share("AGENTS.md", "shared");
    stage.share("knowledge/KNOWLEDGE.md", "known");
    put(&*own(&stage, "ann"), "AGENTS.md", "ann's");
    put(&*own(&stage, "ann"), "MEMORY.md", "likes tea");
    put(&*own(&stage, "ann"), "knowledge/KNOWLEDGE.md", "");
    let seen = read(&glance, "ann");
    assert_eq!(
        files(&seen),
        [
            ("AGENTS.md", "ann's", Layer::User),
            ("MEMORY.md", "likes tea", Layer::User),
            ("knowledge/KNOWLEDGE.md", "", Layer::User),
            ("AGENTS.md", "shared", Layer::Shared),
            ("knowledge/KNOWLEDGE.md", "known", Layer::Shared),
        ]
        .map(|(path, text, layer)| (path.to_owned(), text.to_owned(), layer))
    );
    assert_eq!(seen.shared.listed, ["knowledge/KNOWLEDGE.md", "knowledge/t.md"].map(path));
    assert!(seen.user.listed.is_empty() && !seen.shared.is_cut && !seen.user.is_cut);
    // The same as reading them one by one.
    for (view, layer) in [(&seen.user, Layer::User), (&seen.shared, Layer::Shared)] {
        for (path, start) in &view.files {
            let file = block_on(stage.of("ann").layer(layer).read(path)).expect("a file");
            assert_eq!((&file.entry, &file.bytes), (&start.entry, &start.bytes));
        }
    }
    for name in ["a", "b", "c", "d"] {
        put(&*own(&stage, "ann"), &format!("knowledge/{name}"), "x");
    }
    let with_user = read(&glance, "ann");
    assert_eq!(with_user.user.listed, ["knowledge/a", "knowledge/b"].map(path));
    assert!(with_user.user.is_cut);
    assert_eq!(with_user.shared, seen.shared, "a user's files do not displace shared ones");
    assert_eq!(files(&read(&glance, "bob"))[0].1, "shared");
}

#[test]
fn a_glance_costs_one_round_trip_and_the_changed_bytes() {
    let stage = Stage::new();
    let glance = open(&stage.all);
    stage.share("AGENTS.md", "0123456789");
    put(&*own(&stage, "ann"), "MEMORY.md", "01234");
    let cost = |user: &str| {
        let (calls, sent) = (stage.table.calls.get(), stage.table.glanced.get());
        let seen = read(&glance, user);
        (stage.table.calls.get() - calls, stage.table.glanced.get() - sent, files(&seen).len())
    };
    assert_eq!(cost("ann"), (1, 15, 2));
    assert_eq!(cost("ann"), (1, 0, 2));
    assert_eq!(cost("bob"), (1, 0, 1), "the shared file is cached");
    put(&*own(&stage, "ann"), "MEMORY.md", "0123");
    assert_eq!(cost("ann"), (1, 4, 2));
    block_on(own(&stage, "ann").delete(&path("MEMORY.md"), &Precondition::Any)).expect("removed");
    assert_eq!(cost("ann"), (1, 0, 1));
    // Old entries are evicted from the cache.
    put(&*own(&stage, "ann"), "MEMORY.md", "01234");
    assert_eq!(cost("ann"), (1, 5, 2));
    for user in 0..200 {
        put(&*own(&stage, &format!("u{user}")), "MEMORY.md", "x");
        read(&glance, &format!("u{user}"));
    }
    assert_eq!(cost("ann"), (1, 5, 2));
}

#[test]
fn a_glance_reads_the_start_of_large_files() {
    let stage = Stage::new();
    // With skills, the starts are as long as the usage of the skills may be.
    let glance = stage.all.glance(options(Duration::ZERO, false));
    put(&*own(&stage, "ann"), "AGENTS.md", &"é".repeat(1_000));
    put(&*own(&stage, "ann"), "MEMORY.md", &"é".repeat(MAX_INLINE));
    let seen = read(&glance, "ann");
    let sizes: Vec<_> =
        seen.user.files.values().map(|start| (start.bytes.len(), start.entry.bytes)).collect();
    assert_eq!(sizes, [(200, 2_000), (400, 2 * MAX_INLINE as u64)]);
    stage.blobs.down.set(true);
    assert_eq!(read(&glance, "ann"), seen, "the start is cached");
    block_on(own(&stage, "bob").write(&path("MEMORY.md"), bytes("\u{0}"), &Precondition::Any))
        .expect("written");
    assert_eq!(read(&glance, "bob").user.files.len(), 1);
}

#[test]
fn the_last_state_is_available_while_the_store_is_down() {
    let stage = Stage::new();
    let glance = open(&stage.all);
    put(&*own(&stage, "ann"), "AGENTS.md", "ann's");
    let seen = read(&glance, "ann");
    stage.table.down.set(true);
    let failed = block_on(glance.read(&owner(&"t".into(), "a", "ann")));
    assert!(matches!(failed, Err(FileError::Unavailable(_))), "{failed:?}");
    let last = |tenant: &TenantId, agent: &str, user: &str| {
        block_on(glance.last(&owner(tenant, agent, user))).expect("a view")
    };
    assert_eq!(last(&"t".into(), "a", "ann"), seen);
    for (tenant, agent, user) in [("t2", "a", "ann"), ("t", "b", "ann"), ("t", "a", "bob")] {
        assert_eq!(last(&tenant.into(), agent, user), View::default(), "never that of another workspace");
    }
}

#[test]
fn the_cache_is_separate_per_tenant() {
    let stage = Stage::new();
    let glance = open(&stage.all);
    for tenant in ["t", "t2"] {
        let workspace = stage.all.open(&tenant.into(), &"a".into(), &"ann".into(), None);
        put(&**workspace.layer(Layer::User), "AGENTS.md", "the same");
        let sent = stage.table.glanced.get();
        block_on(glance.read(&owner(&tenant.into(), "a", "ann"))).expect("a view");
        assert_eq!(stage.table.glanced.get() - sent, 8, "{tenant}");
    }
}

const FRESH: Duration = Duration::from_secs(1);

#[test]
fn a_fresh_state_is_not_read_again() {
    let stage = Stage::new();
    let glance = open_with(&stage.all, FRESH);
    put(&*own(&stage, "ann"), "AGENTS.md", "one");
    let queries = |user: &str| {
        let calls = stage.table.calls.get();
        read(&glance, user);
        stage.table.calls.get() - calls
    };
    assert_eq!((queries("ann"), queries("ann")), (1, 0));
    assert_eq!(queries("bob"), 1, "another user has another tree");
    stage.clock.advance(FRESH - Duration::from_millis(1));
    assert_eq!(queries("ann"), 0);
    stage.clock.advance(Duration::from_millis(1));
    assert_eq!((queries("ann"), queries("ann")), (1, 0));
}

#[test]
fn own_changes_are_seen_at_once_and_others_within_the_fresh_time() {
    let stage = Stage::new();
    let glance = open_with(&stage.all, FRESH);
    let elsewhere = stage.elsewhere().open(&"t".into(), &"a".into(), &"ann".into(), None);
    let text = || files(&read(&glance, "ann")).first().map(|(_, text, _)| text.clone());
    put(&*own(&stage, "ann"), "AGENTS.md", "one");
    assert_eq!(text().as_deref(), Some("one"));
    put(&*own(&stage, "ann"), "AGENTS.md", "two");
    assert_eq!(text().as_deref(), Some("two"));
    block_on(own(&stage, "ann").rename(&path("AGENTS.md"), &path("MEMORY.md"))).expect("moved");
    assert_eq!(read(&glance, "ann").user.files.into_keys().collect::<Vec<_>>(), [path("MEMORY.md")]);
    block_on(own(&stage, "ann").delete(&path("MEMORY.md"), &Precondition::Any)).expect("removed");
    assert_eq!(text(), None);
    stage.share("AGENTS.md", "shared");
    assert_eq!(text().as_deref(), Some("shared"));
    put(&**elsewhere.layer(Layer::User), "AGENTS.md", "three");
    assert_eq!(text().as_deref(), Some("shared"));
    stage.clock.advance(FRESH);
    assert_eq!(text().as_deref(), Some("three"));
    assert!(block_on(stage.all.erase_user(&"t".into(), None, &"ann".into())).expect("erased"));
    assert_eq!(text().as_deref(), Some("shared"));
}

#[test]
fn a_change_during_a_query_makes_its_result_out_of_date() {
    let stage = Stage::new();
    let glance = open_with(&stage.all, FRESH);
    put(&*own(&stage, "ann"), "AGENTS.md", "one");
    let ann = owner(&"t".into(), "a", "ann");
    stage.table.yields.set(true);
    let query = glance.read(&ann);
    futures::pin_mut!(query);
    assert!(query.as_mut().now_or_never().is_none());
    put(&*own(&stage, "ann"), "AGENTS.md", "two");
    block_on(query).expect("a view");
    let calls = stage.table.calls.get();
    assert_eq!(files(&read(&glance, "ann"))[0].1, "two");
    assert_eq!(stage.table.calls.get(), calls + 1);
}

#[test]
fn a_failed_query_is_not_repeated_at_once() {
    let stage = Stage::new();
    let glance = open_with(&stage.all, FRESH);
    stage.table.down.set(true);
    let ann = owner(&"t".into(), "a", "ann");
    assert!(block_on(glance.read(&ann)).is_err());
    stage.table.down.set(false);
    assert!(block_on(glance.read(&ann)).is_err(), "the first step does not wait for a timeout again");
    stage.clock.advance(FRESH);
    assert!(block_on(glance.read(&ann)).is_ok());
}
