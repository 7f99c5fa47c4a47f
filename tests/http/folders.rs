//! The temporary folders of the tests themselves.

use crate::support::{Folder, sweep};
use std::{fs, process::Command};

#[test]
fn folders_are_deleted_on_drop_or_by_a_later_process() {
    let parent = Folder::create();
    // A process that has ended: its id is not reused that soon.
    let mut child = Command::new("true").spawn().unwrap();
    let (dead, own) = (child.id(), std::process::id());
    child.wait().unwrap();
    let names = [
        format!("edge-harness-{dead}-0"),
        format!("edge-harness-{own}-0"),
        format!("edge-harness-{dead}"),
        format!("edge-harness-{dead}-notes"),
        "edge-harness-docs".to_owned(),
        format!("{dead}-0"),
    ];
    for name in &names {
        fs::create_dir_all(parent.path().join(name).join("state")).unwrap();
    }
    sweep(parent.path());
    let left = names.iter().filter(|name| parent.path().join(name).exists());
    assert!(left.eq(&names[1..]), "only the folder of the ended process is deleted");
    let path = parent.path().to_owned();
    drop(parent);
    assert!(!path.exists());
}
