mod glance;
mod limits;
mod pauses;
mod searches;
mod skills;

use super::{pace::Pace, pattern::Pattern, search::Grep, *};
use crate::platform::in_memory::{ManualClock, MemoryBlobs, MemoryFiles, SeededEntropy};
use crate::ports::{Clock, FileError};
use futures::{executor::block_on, future::join_all};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use std::time::Duration;

const NOW: Timestamp = Timestamp(1_795_176_000_000);

struct Stage {
    table: Rc<MemoryFiles>,
    blobs: Rc<MemoryBlobs>,
    clock: ManualClock,
    all: Workspaces,
}

impl Stage {
    fn new() -> Self {
        Self::with(Bundle::default())
    }

    fn with(template: Bundle) -> Self {
        let (table, blobs) = (Rc::new(MemoryFiles::default()), Rc::new(MemoryBlobs::default()));
        let clock = ManualClock::at(NOW);
        let entropy = Rc::new(SeededEntropy::default());
        let stores = Stores::new(table.clone(), blobs.clone(), Rc::new(clock.clone()), entropy);
        Self { table, blobs, clock, all: Workspaces::new(stores, template) }
    }

    /// The same files, used by another isolate.
    fn elsewhere(&self) -> Workspaces {
        let (clock, entropy) = (Rc::new(self.clock.clone()), Rc::new(SeededEntropy::default()));
        Workspaces::new(
            Stores::new(self.table.clone(), self.blobs.clone(), clock, entropy),
            Bundle::default(),
        )
    }

    fn of(&self, user: &str) -> Workspace {
        self.all.open(&"t".into(), &"a".into(), &user.into(), None)
    }

    fn tree(&self) -> Rc<dyn Filesystem> {
        Rc::clone(self.of("u").layer(Layer::User))
    }

    /// Starts a search in a turn of its own.
    fn pace(&self) -> Pace {
        Pace::new(Rc::new(self.clock.clone()), Rc::default())
    }

    fn share(&self, at: &str, text: &str) {
        let workspace = self.of("anyone");
        put(&**workspace.layer(Layer::Shared), at, text);
    }
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).expect("a path")
}

fn prefix(text: &str) -> PathPrefix {
    PathPrefix::parse(text).expect("a prefix")
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(tree: &dyn Filesystem, at: &str, text: &str) -> Entry {
    block_on(tree.write(&path(at), bytes(text), &Precondition::Any)).expect("written")
}

fn text(tree: &dyn Filesystem, at: &str) -> Option<String> {
    match block_on(tree.read(&path(at))) {
        Ok(file) => Some(String::from_utf8(file.bytes.to_vec()).expect("text")),
        Err(FileError::NotFound) => None,
        Err(error) => panic!("{error}"),
    }
}

fn seen(workspace: &Workspace, at: &str) -> (String, Layer) {
    let (file, layer) = block_on(workspace.read(&path(at))).expect("a file");
    (String::from_utf8(file.bytes.to_vec()).expect("text"), layer)
}

fn paths(tree: &dyn Filesystem, start: &str) -> Vec<String> {
    let entries = block_on(tree.list(&prefix(start), None, 100)).expect("a list");
    entries.into_iter().map(|entry| entry.path.to_string()).collect()
}

fn grep(pattern: &str, ignore_case: bool, start: &str, glob: Option<&str>) -> Grep {
    let pattern = Pattern::regex(pattern, ignore_case).expect("a pattern");
    Grep { pattern, prefix: prefix(start), glob: glob.map(str::to_owned) }
}

fn if_match(etag: &str) -> Precondition {
    Precondition::IfMatch(etag.to_owned())
}

#[test]
fn a_file_is_written_read_listed_moved_and_removed() {
    let stage = Stage::new();
    let tree = stage.tree();
    let first = put(&*tree, "notes/a.md", "one");
    assert_eq!((first.bytes, first.updated_at, first.etag.len()), (3, NOW, 32));
    stage.clock.advance(Duration::from_millis(5));
    let second = block_on(tree.write(&path("notes/a.md"), bytes("two"), &if_match(&first.etag)));
    let second = second.expect("written");
    assert_ne!(first.etag, second.etag);
    assert_eq!(second.updated_at, NOW + Duration::from_millis(5));
    let late = block_on(tree.write(&path("notes/a.md"), bytes("three"), &if_match(&first.etag)));
    assert_eq!(late, Err(FileError::Conflict));
    let missing = block_on(tree.write(&path("notes/b.md"), bytes("x"), &if_match(&first.etag)));
    assert_eq!(missing, Err(FileError::Conflict));
    assert_eq!(text(&*tree, "notes/a.md").as_deref(), Some("two"));

    put(&*tree, "notes2", "x");
    assert_eq!(paths(&*tree, "notes/"), ["notes/a.md"]);
    assert_eq!(paths(&*tree, "notes"), ["notes/a.md", "notes2"]);
    let page = block_on(tree.list(&prefix(""), Some("notes/a.md"), 1)).expect("a list");
    assert_eq!(page.first().map(|entry| entry.path.as_str()), Some("notes2"));

    let rename = |from: &str, to: &str| block_on(tree.rename(&path(from), &path(to)));
    assert_eq!(rename("notes/a.md", "notes2"), Err(FileError::Conflict));
    assert_eq!(rename("nothing", "new"), Err(FileError::NotFound));
    assert_eq!(rename("notes/a.md", "b.md").expect("moved").etag, second.etag);
    assert_eq!((text(&*tree, "notes/a.md"), text(&*tree, "b.md").as_deref()), (None, Some("two")));

    let delete = |at: &str, condition| block_on(tree.delete(&path(at), &condition));
    assert_eq!(delete("b.md", if_match(&first.etag)), Err(FileError::Conflict));
    assert_eq!(delete("b.md", if_match(&second.etag)), Ok(()));
    assert_eq!(delete("b.md", Precondition::Any), Ok(()), "idempotent");
    assert_eq!(delete("b.md", if_match(&second.etag)), Err(FileError::Conflict));
    let large = Bytes::from(vec![b'x'; crate::ports::filesystem::MAX_FILE + 1]);
    let refused = block_on(tree.write(&path("large"), large.clone(), &Precondition::Any));
    assert_eq!(refused, Err(FileError::TooLarge(large.len())));
}

#[test]
fn one_of_32_concurrent_creations_wins() {
    let stage = Stage::new();
    stage.table.yields.set(true);
    for size in [10, stored::MAX_INLINE + 1] {
        let (at, tree) = (path(&format!("f{size}")), stage.tree());
        let content = |n: u8| Bytes::from(vec![n; size]);
        let writes = (0..32).map(|n| tree.write(&at, content(n), &Precondition::CreateOnly));
        let done = block_on(join_all(writes.collect::<Vec<_>>()));
        let winners: Vec<u8> = (0..32).filter(|n| done[usize::from(*n)].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert!(done.iter().all(|done| done.is_ok() || *done == Err(FileError::Conflict)));
        let file = block_on(tree.read(&at)).expect("a file");
        assert_eq!(file.bytes, content(winners[0]));
    }
    assert_eq!(stage.table.free().len(), 31, "the contents of the others are collected later");
}

#[test]
fn eight_concurrent_editors_lose_no_line() {
    let stage = Stage::new();
    stage.table.yields.set(true);
    let (tree, at) = (stage.tree(), path("log"));
    put(&*tree, "log", "");
    let editor = |n: usize| {
        let (tree, at) = (Rc::clone(&tree), at.clone());
        async move {
            for line in 0..25 {
                loop {
                    let file = tree.read(&at).await.expect("a file");
                    let longer = [&file.bytes[..], format!("{n}-{line}\n").as_bytes()].concat();
                    match tree.write(&at, longer.into(), &if_match(&file.entry.etag)).await {
                        Ok(_) => break,
                        Err(FileError::Conflict) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    };
    block_on(join_all((0..8).map(editor)));
    let text = text(&*tree, "log").expect("a file");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 200);
}

#[test]
fn large_content_is_stored_under_the_tenant() {
    let stage = Stage::new();
    let tree = stage.tree();
    let large = |c: &str| c.repeat(stored::MAX_INLINE + 1);
    put(&*tree, "small", &"x".repeat(stored::MAX_INLINE));
    assert!(stage.blobs.objects.borrow().is_empty());
    put(&*tree, "large", &large("a"));
    let keys = || stage.blobs.objects.borrow().keys().cloned().collect::<Vec<_>>();
    assert!(keys().len() == 1 && keys()[0].starts_with("t/files/fil_"), "{:?}", keys());
    assert_eq!(stage.table.free(), Vec::<String>::new());
    put(&*tree, "large", &large("b"));
    assert_eq!(text(&*tree, "large"), Some(large("b")));
    let many = block_on(tree.read_many(&[path("small"), path("large"), path("none")])).expect("files");
    assert_eq!(many.len(), 2);

    // Replaced content is removed once no reader can need it.
    assert_eq!((stage.table.free().len(), keys().len()), (1, 2));
    block_on(stage.all.collect(stage.clock.now())).expect("collected");
    assert_eq!(keys().len(), 2);
    stage.clock.advance(COLLECT_AFTER);
    block_on(stage.all.collect(stage.clock.now())).expect("collected");
    assert_eq!((stage.table.free().len(), keys().len()), (0, 1));
    assert_eq!(text(&*tree, "large"), Some(large("b")));
    block_on(tree.rename(&path("large"), &path("moved"))).expect("moved");
    block_on(tree.delete(&path("moved"), &Precondition::Any)).expect("removed");
    stage.clock.advance(COLLECT_AFTER);
    block_on(stage.all.collect(stage.clock.now())).expect("collected");
    assert_eq!(keys(), Vec::<String>::new());
}

#[test]
fn an_unavailable_store_is_not_a_missing_file() {
    let stage = Stage::new();
    let tree = stage.tree();
    put(&*tree, "large", &"x".repeat(stored::MAX_INLINE + 1));
    stage.blobs.down.set(true);
    let down = |done: FileResult<File>| matches!(done, Err(FileError::Unavailable(_)));
    assert!(down(block_on(tree.read(&path("large")))));
    let written = block_on(tree.write(&path("l2"), vec![0; 300_000].into(), &Precondition::Any));
    assert!(matches!(written, Err(FileError::Unavailable(_))));
    assert_eq!((text(&*tree, "l2"), stage.table.free().len()), (None, 1));
    stage.table.down.set(true);
    assert!(down(block_on(tree.read(&path("none")))));
    assert!(down(block_on(stage.of("u").read(&path("none"))).map(|(file, _)| file)));
}

#[test]
fn a_closed_guard_prevents_every_change() {
    let stage = Stage::new();
    put(&*stage.tree(), "kept", "as it was");
    let open = Rc::new(std::cell::Cell::new(true));
    let guard: Guard = Rc::new({
        let open = Rc::clone(&open);
        move || open.get()
    });
    let workspace = stage.all.open(&"t".into(), &"a".into(), &"u".into(), Some(guard));
    block_on(workspace.write(&path("first"), bytes("x"), &Precondition::Any)).expect("written");
    open.set(false);
    let closed = Err(FileError::Closed);
    for condition in [Precondition::Any, Precondition::CreateOnly] {
        let written = block_on(workspace.write(&path("second"), bytes("x"), &condition));
        assert_eq!(written.map(drop), closed);
    }
    assert_eq!(block_on(workspace.delete(&path("kept"), &Precondition::Any)), closed);
    assert_eq!(block_on(workspace.rename(&path("kept"), &path("gone"))).map(drop), closed);
    let large = block_on(workspace.write(&path("l"), vec![0; 300_000].into(), &Precondition::Any));
    assert_eq!(large.map(drop), closed);
    assert_eq!(paths(&*stage.tree(), ""), ["first", "kept"]);
    assert!(stage.blobs.objects.borrow().is_empty());
    assert_eq!(seen(&workspace, "kept").0, "as it was", "reads still work");
}

#[test]
fn the_users_file_hides_the_shared_one_and_the_template() {
    let template: &[(&str, &'static [u8])] = &[("AGENTS.md", b"template"), ("skills/s/SKILL.md", b"skill")];
    let stage = Stage::with(Bundle::new(template).expect("paths"));
    let (ann, bob) = (stage.of("ann"), stage.of("bob"));
    assert_eq!(seen(&ann, "/AGENTS.md"), ("template".into(), Layer::Shared));
    stage.share("AGENTS.md", "shared");
    assert_eq!(seen(&ann, "AGENTS.md"), ("shared".into(), Layer::Shared));

    // Preconditions apply to what a reader sees.
    let create = block_on(ann.write(&path("AGENTS.md"), bytes("x"), &Precondition::CreateOnly));
    assert_eq!(create, Err(FileError::Conflict));
    let (file, _) = block_on(ann.read(&path("AGENTS.md"))).expect("a file");
    let copy = block_on(ann.write(&path("AGENTS.md"), bytes("ann's"), &if_match(&file.entry.etag)));
    assert!(copy.is_ok(), "{copy:?}");
    let again = block_on(ann.write(&path("AGENTS.md"), bytes("x"), &if_match(&file.entry.etag)));
    assert_eq!(again, Err(FileError::Conflict));
    assert_eq!(seen(&ann, "AGENTS.md"), ("ann's".into(), Layer::User));
    assert_eq!(seen(&bob, "AGENTS.md"), ("shared".into(), Layer::Shared));

    // An empty file counts as absent.
    put(&**ann.layer(Layer::User), "AGENTS.md", "");
    put(&**ann.layer(Layer::User), "own.md", "");
    assert_eq!(seen(&ann, "AGENTS.md"), ("shared".into(), Layer::Shared));
    assert_eq!(seen(&ann, "own.md"), (String::new(), Layer::User));
    let over = block_on(ann.write(&path("AGENTS.md"), bytes("ann's"), &if_match(&file.entry.etag)));
    assert!(over.is_ok(), "{over:?}");

    let listed = |workspace: &Workspace| {
        let entries = block_on(workspace.list(&prefix(""), None, 10)).expect("a list");
        entries.into_iter().map(|(entry, layer)| (entry.path.to_string(), layer)).collect::<Vec<_>>()
    };
    let (own, shared) = (|at: &str| (at.to_owned(), Layer::User), |at: &str| (at.to_owned(), Layer::Shared));
    assert_eq!(listed(&ann), [own("AGENTS.md"), own("own.md"), shared("skills/s/SKILL.md")]);
    assert_eq!(listed(&bob), [shared("AGENTS.md"), shared("skills/s/SKILL.md")]);
    let one = block_on(ann.list(&prefix(""), Some("AGENTS.md"), 1)).expect("a list");
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].0.path.as_str(), "own.md");

    let moved = block_on(ann.rename(&path("skills/s/SKILL.md"), &path("x"))).map(drop);
    assert_eq!(moved, Err(FileError::ReadOnly));
    let onto = block_on(ann.rename(&path("own.md"), &path("skills/s/SKILL.md"))).map(drop);
    assert_eq!(onto, Err(FileError::Conflict));
    block_on(ann.delete(&path("AGENTS.md"), &Precondition::Any)).expect("removed");
    assert_eq!(seen(&ann, "AGENTS.md"), ("shared".into(), Layer::Shared));
}

#[test]
fn workspaces_are_isolated() {
    let stage = Stage::new();
    let owners = [("t", "a", "ann"), ("t", "a", "bob"), ("t", "b", "ann"), ("t2", "a", "ann")];
    for (index, (tenant, agent, user)) in owners.into_iter().enumerate() {
        let workspace = stage.all.open(&tenant.into(), &agent.into(), &user.into(), None);
        put(&**workspace.layer(Layer::User), "same.md", &format!("secret {index}"));
        put(&**workspace.layer(Layer::User), &format!("only-{index}.md"), "secret");
    }
    for (index, (tenant, agent, user)) in owners.into_iter().enumerate() {
        let workspace = stage.all.open(&tenant.into(), &agent.into(), &user.into(), None);
        let grep = grep("secret", false, "", None);
        let lines = block_on(workspace.grep(&grep, &mut stage.pace())).expect("lines").hits;
        let globbed =
            block_on(workspace.glob(&prefix(""), "**/*.md", &mut stage.pace())).expect("files").hits;
        // Paths in results can be read.
        for found in lines.iter().map(|line| &line.path).chain(globbed.iter().map(|(entry, _)| &entry.path)) {
            assert!(block_on(workspace.read(&path(found.as_str()))).is_ok());
        }
        let lines: Vec<_> = lines.into_iter().map(|line| (line.path.to_string(), line.text)).collect();
        let own = format!("only-{index}.md");
        assert_eq!(lines, [(own, "secret".to_owned()), ("same.md".into(), format!("secret {index}"))]);
        assert_eq!(globbed.len(), 2);
    }
    let session = |session: &str| {
        stage.all.tree(
            &"t".into(),
            &FileScope::Session { agent: "a".into(), user: "u".into(), session: session.into() },
        )
    };
    put(&session("session-1"), "x", "1");
    assert_eq!(
        (text(&session("session-1"), "x").as_deref(), text(&session("session-2"), "x")),
        (Some("1"), None)
    );

    assert!(block_on(stage.all.erase(&"t".into())).expect("erased"));
    let left: Vec<_> = stage.table.all().into_iter().map(|(tree, _)| tree.tenant).collect();
    assert_eq!(left, ["t2", "t2"]);
}

#[test]
fn erasing_a_tenant_removes_its_objects() {
    let stage = Stage::new();
    put(&*stage.tree(), "large", &"x".repeat(stored::MAX_INLINE + 1));
    put(&*stage.tree(), "large", &"y".repeat(stored::MAX_INLINE + 1));
    let other = stage.all.open(&"t2".into(), &"a".into(), &"u".into(), None);
    put(&**other.layer(Layer::User), "large", &"z".repeat(stored::MAX_INLINE + 1));
    assert!(block_on(stage.all.erase(&"t".into())).expect("erased"));
    let keys: Vec<String> = stage.blobs.objects.borrow().keys().cloned().collect();
    assert!(keys.len() == 1 && keys[0].starts_with("t2/files/"), "{keys:?}");
    assert!(stage.table.free().is_empty());
}

#[test]
fn a_path_belongs_to_the_longest_prefix() {
    let stage = Stage::new();
    let tree = |scope: &str| {
        let scope = FileScope::Session { agent: "a".into(), user: "u".into(), session: scope.into() };
        Rc::new(stage.all.tree(&"t".into(), &scope)) as Rc<dyn Filesystem>
    };
    let (rest, skills, inner) = (tree("rest"), tree("skills"), tree("inner"));
    let all = Composite::new(Rc::clone(&rest))
        .route(prefix("skills/"), Rc::clone(&skills))
        .route(prefix("skills/inner/"), Rc::clone(&inner));
    for (at, owner) in
        [("skills/x", &skills), ("/skills/y", &skills), ("skills/inner/z", &inner), ("s", &rest)]
    {
        put(&all, at, at);
        assert_eq!(text(&**owner, at).as_deref(), Some(at));
    }
    // Files hidden by a route are unreachable.
    put(&*rest, "skills/hidden", "x");
    put(&*skills, "skills/inner/hidden", "x");
    assert_eq!(paths(&all, ""), ["s", "skills/inner/z", "skills/x", "skills/y"]);
    assert_eq!(paths(&all, "skills/in"), ["skills/inner/z"]);
    assert_eq!(text(&all, "skills/hidden"), None);
    let page = block_on(all.list(&prefix(""), Some("s"), 2)).expect("a list");
    assert_eq!(page.iter().map(|e| e.path.as_str()).collect::<Vec<_>>(), ["skills/inner/z", "skills/x"]);

    block_on(all.rename(&path("skills/x"), &path("x"))).expect("moved");
    assert_eq!((text(&*skills, "skills/x"), text(&*rest, "x").as_deref()), (None, Some("skills/x")));
    let fixed = Rc::new(Bundle::new(&[("fixed/a", b"a")]).expect("paths"));
    let with_fixed = Composite::new(Rc::clone(&rest)).route(prefix("fixed/"), fixed);
    let stays = block_on(with_fixed.rename(&path("fixed/a"), &path("b"))).map(drop);
    assert_eq!((stays, text(&*rest, "b")), (Err(FileError::ReadOnly), None), "the copy was removed");
    let taken = block_on(all.rename(&path("skills/y"), &path("x"))).map(drop);
    assert_eq!(taken, Err(FileError::Conflict));
    stage.table.down.set(true);
    assert!(matches!(block_on(all.read(&path("x"))), Err(FileError::Unavailable(_))));
}

#[test]
fn a_layer_wraps_each_users_own_tree() {
    /// Files that exist for one user only.
    fn diary(owner: &Owner, tree: Rc<dyn Filesystem>) -> Rc<dyn Filesystem> {
        let file = ("memory/today.md", &b"what was learned"[..]);
        assert_eq!((owner.tenant.as_str(), owner.agent.as_str()), ("t", "a"));
        let files = if owner.user == "ann" { vec![file] } else { Vec::new() };
        Rc::new(Composite::new(tree).route(prefix("memory/"), Rc::new(Bundle::new(&files).expect("paths"))))
    }
    let mut stage = Stage::new();
    stage.all = stage.all.with_layer(Rc::new(diary));
    stage.share("memory/today.md", "shared");
    let (ann, bob) = (stage.of("ann"), stage.of("bob"));
    put(&**ann.layer(Layer::User), "own.md", "x");
    assert_eq!(seen(&ann, "memory/today.md"), ("what was learned".into(), Layer::User));
    assert_eq!(seen(&bob, "memory/today.md"), ("shared".into(), Layer::Shared));
    assert_eq!(paths(&**ann.layer(Layer::User), ""), ["memory/today.md", "own.md"]);
    let written = block_on(ann.write(&path("memory/today.md"), bytes("x"), &Precondition::Any));
    assert_eq!(written, Err(FileError::ReadOnly));
}

proptest! {
    /// For any files in the layers and any page size, lists contain each path once and in order, and reads
    /// return what lists announce.
    #[test]
    fn lists_and_reads_agree(
        files in prop::collection::vec(("[ab]{1,2}(/[ab])?", any::<bool>(), "[xy]{0,2}"), 0..12),
        page in 1..5_usize,
    ) {
        let stage = Stage::new();
        let workspace = stage.of("u");
        for (at, shared, content) in &files {
            let layer = if *shared { Layer::Shared } else { Layer::User };
            put(&**workspace.layer(layer), at, content);
        }
        let (mut listed, mut after) = (Vec::new(), None::<String>);
        loop {
            let entries = block_on(workspace.list(&prefix(""), after.as_deref(), page)).expect("a list");
            after = entries.last().map(|(entry, _)| entry.path.to_string());
            listed.extend(entries);
            if after.is_none() {
                break;
            }
        }
        let mut expected: Vec<&str> = files.iter().map(|(at, ..)| at.as_str()).collect();
        expected.sort_unstable();
        expected.dedup();
        prop_assert_eq!(listed.iter().map(|(entry, _)| entry.path.as_str()).collect::<Vec<_>>(), expected);
        let many = block_on(workspace.read_many(&listed.iter().map(|(e, _)| e.path.clone()).collect::<Vec<_>>()));
        for ((entry, layer), file) in listed.iter().zip(many.expect("files")) {
            let read = block_on(workspace.read(&entry.path)).expect("a file");
            prop_assert_eq!((&read.0.entry, read.1), (entry, *layer));
            prop_assert_eq!(&read.0, &file);
        }
    }
}
