//! What a glance shows, what it costs, and what is left of it when the store is down.

use super::{Stage, bytes, path, prefix, put};
use crate::ports::{FileError, Filesystem, filesystem::Precondition};
use crate::types::TenantId;
use crate::workspace::{
    Bundle, Layer, Workspaces,
    glance::{Glances, Look, View},
    stored::MAX_INLINE,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use std::rc::Rc;

fn glances(all: &Workspaces) -> Glances {
    let wanted = ["AGENTS.md", "MEMORY.md", "knowledge/KNOWLEDGE.md"].map(path).to_vec();
    all.glances(Look { wanted, max_chars: 100, folder: prefix("knowledge/"), limit: 3 })
}

fn own(stage: &Stage, user: &str) -> Rc<dyn Filesystem> {
    Rc::clone(stage.of(user).layer(Layer::User))
}

fn look(glances: &Glances, user: &str) -> View {
    block_on(glances.look(&"t".into(), "a", user)).expect("a view")
}

/// Each file that is seen: what there is of it and whose it is.
fn files(view: &View) -> Vec<(&str, String, Layer)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    view.files.iter().map(|(path, start)| (path.as_str(), text(&start.bytes), start.layer)).collect()
}

#[test]
fn it_shows_what_a_reader_sees() {
    let template: &[(&str, &'static [u8])] = &[("AGENTS.md", b"template"), ("knowledge/t.md", b"t")];
    let stage = Stage::with(Bundle::new(template).expect("paths"));
    let glances = glances(&stage.all);
    assert_eq!(files(&look(&glances, "ann")), [("AGENTS.md", "template".into(), Layer::Shared)]);
    stage.share("AGENTS.md", "shared");
    stage.share("knowledge/KNOWLEDGE.md", "known");
    put(&*own(&stage, "ann"), "AGENTS.md", "ann's");
    put(&*own(&stage, "ann"), "MEMORY.md", "likes tea");
    put(&*own(&stage, "ann"), "knowledge/KNOWLEDGE.md", "");
    let seen = look(&glances, "ann");
    assert_eq!(
        files(&seen),
        [
            ("AGENTS.md", "ann's".into(), Layer::User),
            ("MEMORY.md", "likes tea".into(), Layer::User),
            ("knowledge/KNOWLEDGE.md", "known".into(), Layer::Shared),
        ]
    );
    assert_eq!(seen.listed, ["knowledge/KNOWLEDGE.md", "knowledge/t.md"].map(path));
    assert!(!seen.is_cut);
    // It is the same as reading them one by one.
    for (path, start) in &seen.files {
        let (file, layer) = block_on(stage.of("ann").read(path)).expect("a file");
        assert_eq!((&file.entry, &file.bytes, layer), (&start.entry, &start.bytes, start.layer));
    }
    put(&*own(&stage, "ann"), "knowledge/a", "x");
    put(&*own(&stage, "ann"), "knowledge/b", "x");
    let seen = look(&glances, "ann");
    assert_eq!((seen.listed.len(), seen.is_cut), (3, true));
    assert_eq!(files(&look(&glances, "bob"))[0].1, "shared");
}

#[test]
fn it_costs_one_round_trip_and_what_has_changed() {
    let stage = Stage::new();
    let glances = glances(&stage.all);
    stage.share("AGENTS.md", "0123456789");
    put(&*own(&stage, "ann"), "MEMORY.md", "01234");
    let cost = |user: &str| {
        let (calls, sent) = (stage.table.calls.get(), stage.table.glanced.get());
        let seen = look(&glances, user);
        (stage.table.calls.get() - calls, stage.table.glanced.get() - sent, files(&seen).len())
    };
    assert_eq!(cost("ann"), (1, 15, 2));
    assert_eq!(cost("ann"), (1, 0, 2));
    assert_eq!(cost("bob"), (1, 0, 1), "what is shared is known");
    put(&*own(&stage, "ann"), "MEMORY.md", "0123");
    assert_eq!(cost("ann"), (1, 4, 2));
    block_on(own(&stage, "ann").delete(&path("MEMORY.md"), &Precondition::Any)).expect("removed");
    assert_eq!(cost("ann"), (1, 0, 1));
    // Much is forgotten again.
    put(&*own(&stage, "ann"), "MEMORY.md", "01234");
    assert_eq!(cost("ann"), (1, 5, 2));
    for user in 0..200 {
        put(&*own(&stage, &format!("u{user}")), "MEMORY.md", "x");
        look(&glances, &format!("u{user}"));
    }
    assert_eq!(cost("ann"), (1, 5, 2));
}

#[test]
fn of_large_files_it_takes_the_start() {
    let stage = Stage::new();
    let glances = glances(&stage.all);
    put(&*own(&stage, "ann"), "AGENTS.md", &"é".repeat(1_000));
    put(&*own(&stage, "ann"), "MEMORY.md", &"é".repeat(MAX_INLINE));
    let seen = look(&glances, "ann");
    let sizes: Vec<_> = seen.files.values().map(|start| (start.bytes.len(), start.entry.bytes)).collect();
    assert_eq!(sizes, [(200, 2_000), (400, 2 * MAX_INLINE as u64)]);
    stage.blobs.down.set(true);
    assert_eq!(look(&glances, "ann"), seen, "its start is known");
    block_on(own(&stage, "bob").write(&path("MEMORY.md"), bytes("\u{0}"), &Precondition::Any))
        .expect("written");
    assert_eq!(look(&glances, "bob").files.len(), 1);
}

#[test]
fn a_store_that_is_down_leaves_what_was_seen_last() {
    let stage = Stage::new();
    let glances = glances(&stage.all);
    put(&*own(&stage, "ann"), "AGENTS.md", "ann's");
    let seen = look(&glances, "ann");
    stage.table.down.set(true);
    let failed = block_on(glances.look(&"t".into(), "a", "ann"));
    assert!(matches!(failed, Err(FileError::Unavailable(_))), "{failed:?}");
    let last = |tenant: &TenantId, agent: &str, user: &str| {
        block_on(glances.last(tenant, agent, user)).expect("a view")
    };
    assert_eq!(last(&"t".into(), "a", "ann"), seen);
    for (tenant, agent, user) in [("t2", "a", "ann"), ("t", "b", "ann"), ("t", "a", "bob")] {
        assert_eq!(last(&tenant.into(), agent, user), View::default(), "never another's");
    }
}

#[test]
fn what_is_known_of_one_tenant_is_not_of_another() {
    let stage = Stage::new();
    let glances = glances(&stage.all);
    for tenant in ["t", "t2"] {
        let workspace = stage.all.open(&tenant.into(), "a", "ann", None);
        put(&**workspace.layer(Layer::User), "AGENTS.md", "the same");
        let sent = stage.table.glanced.get();
        block_on(glances.look(&tenant.into(), "a", "ann")).expect("a view");
        assert_eq!(stage.table.glanced.get() - sent, 8, "{tenant}");
    }
}
