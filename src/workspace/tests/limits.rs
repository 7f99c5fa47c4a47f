//! The maximum number of files, and the removal of files with their owner.

use super::{Stage, bytes, path, put};
use crate::ports::{
    FileError,
    filesystem::{MAX_FILES, Precondition},
};
use crate::workspace::{Layer, stored::MAX_INLINE};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

#[test]
fn the_number_of_files_in_a_tree_is_limited() {
    let stage = Stage::new();
    let tree = stage.tree();
    stage.table.fill(&"t".into(), "agents/a/users/u", MAX_FILES - 1);
    let create = |at: &str| {
        block_on(tree.write(&path(at), bytes("x"), &Precondition::CreateOnly)).map(|entry| entry.bytes)
    };
    assert_eq!(create("last"), Ok(1));
    assert_eq!(create("more"), Err(FileError::Full));
    assert_eq!(create("last"), Err(FileError::Conflict));
    let any = |at: &str| block_on(tree.write(&path(at), bytes("xy"), &Precondition::Any)).map(drop);
    assert_eq!((any("more"), any("last")), (Err(FileError::Full), Ok(())));
    let entry = put(&*tree, "last", "z");
    let if_match = Precondition::IfMatch(entry.etag);
    assert!(block_on(tree.write(&path("last"), bytes("zz"), &if_match)).is_ok());
    assert!(block_on(tree.rename(&path("last"), &path("moved"))).is_ok());
    // Other trees have their own limit.
    put(&**stage.of("other").layer(Layer::User), "a", "x");
    block_on(tree.delete(&path("moved"), &Precondition::Any)).expect("removed");
    assert_eq!(any("more"), Ok(()));
}

#[test]
fn erasing_a_user_removes_only_that_users_files() {
    let stage = Stage::new();
    for (tenant, agent, user) in
        [("t", "a", "ann"), ("t", "b", "ann"), ("t", "a", "ann2"), ("t", "a", "bob"), ("t2", "a", "ann")]
    {
        let workspace = stage.all.open(&tenant.into(), &agent.into(), &user.into(), None);
        put(&**workspace.layer(Layer::User), "small", "x");
        put(&**workspace.layer(Layer::User), "large", &"x".repeat(MAX_INLINE + 1));
    }
    stage.share("shared", "x");
    let left = || {
        let mut scopes: Vec<String> = stage
            .table
            .all()
            .into_iter()
            .map(|(tree, _)| format!("{}:{}", tree.tenant, tree.scope))
            .collect();
        scopes.dedup();
        scopes
    };
    let rest = ["t:agents/a/shared", "t:agents/a/users/ann2", "t:agents/a/users/bob"];
    assert!(block_on(stage.all.erase_user(&"t".into(), Some(&"b".into()), &"ann".into())).expect("erased"));
    assert_eq!(left(), [rest[0], "t:agents/a/users/ann", rest[1], rest[2], "t2:agents/a/users/ann"]);
    assert!(block_on(stage.all.erase_user(&"t".into(), None, &"ann".into())).expect("erased"));
    assert_eq!(left(), [rest[0], rest[1], rest[2], "t2:agents/a/users/ann"]);
    assert_eq!(stage.table.free().len(), 2, "large contents are collected later");
    assert!(block_on(stage.all.erase_user(&"t".into(), None, &"stranger".into())).expect("nothing to erase"));
}

#[test]
fn many_files_are_erased_in_steps() {
    let stage = Stage::new();
    stage.table.fill(&"t".into(), "agents/a/users/ann", 1_500);
    stage.table.fill(&"t".into(), "agents/b/users/ann", 600);
    let erase = || block_on(stage.all.erase_user(&"t".into(), None, &"ann".into())).expect("erased");
    assert_eq!([erase(), erase(), erase()], [false, false, true]);
    assert_eq!(stage.table.all().len(), 0);
}
