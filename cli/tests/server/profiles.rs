//! `login` and `doctor`.

use crate::{
    agentctl::Agentctl,
    support::{ADMIN_KEY, DEV_API_KEY, shared},
};
use std::fs;

#[test]
fn a_profile_replaces_the_environment() {
    let cli = Agentctl::without_key(shared());
    let args = ["login", "--profile", "work", "--user", "cli-ann", "--store", "file"];
    let ran = cli.run_with(&args, &format!("{DEV_API_KEY}\n")).expect(0);
    assert!(ran.out.contains("the tenant's key"), "{ran:?}");
    cli.run(&["send", "cli-profile", "/say Hi.", "--profile", "work"]).expect(0);
    let shown = cli.run(&["sessions", "show", "cli-profile", "--json", "--profile", "work"]).expect(0).json();
    assert_eq!(shown["user"], "cli-ann");
    let listed = cli.run(&["login", "--list", "--json"]).expect(0).json();
    assert_eq!((listed["name"].as_str(), listed["default"].as_bool()), (Some("work"), Some(true)));
    let listed = cli.run(&["login", "--list"]).expect(0).out;
    assert!(listed.contains("cli-ann") && !listed.contains(DEV_API_KEY), "{listed}");
    // A new key for the profile.
    let work = || cli.run(&["login", "--list", "--json"]).expect(0).json();
    let before = work();
    cli.run_with(&["login", "--profile", "work", "--store", "file"], DEV_API_KEY).expect(0);
    assert_eq!(work(), before);
    cli.run(&["login", "--remove", "work"]).expect(0);
    cli.run(&["sessions", "list", "--profile", "work"]).expect(2);
    let keys = fs::read_to_string(cli.folder().join("config/edge-harness/keys.toml")).unwrap();
    assert!(!keys.contains(DEV_API_KEY));
}

#[test]
fn login_tells_the_operators_key_and_refuses_a_wrong_one() {
    let cli = Agentctl::without_key(shared());
    let args = ["login", "--profile", "operator", "--store", "file"];
    let ran = cli.run_with(&args, ADMIN_KEY).expect(0);
    assert!(ran.out.contains("the operator's key"), "{ran:?}");
    cli.run_with(&args, "wrong").expect(3);
    cli.run_with(&args, "").expect(2);
}

#[test]
fn doctor_names_what_is_wrong() {
    let cli = Agentctl::new(shared());
    let checks = cli.run(&["doctor", "--json"]).expect(0).lines();
    let names: Vec<_> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(names, ["configuration", "profile", "server", "readiness", "key"]);
    let ran = Agentctl::without_key(shared()).run(&["doctor"]).expect(1);
    assert!(ran.out.contains("FAIL key: missing"), "{ran:?}");
    let ran = cli.run(&["doctor", "--url", "http://127.0.0.1:1"]).expect(1);
    assert!(ran.out.contains("FAIL server: no connection to 127.0.0.1:1"), "{ran:?}");
}
