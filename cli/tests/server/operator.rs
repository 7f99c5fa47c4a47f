//! The operator's commands: `tenants`, `keys`, `limits`, `usage`, `audit`.

use crate::{agentctl::Agentctl, support::shared};

#[test]
fn a_tenant_gets_keys_and_limits_and_is_audited() {
    let operator = Agentctl::operator(shared());
    operator.run(&["tenants", "create", "cli-acme", "--name", "Acme"]).expect(0);
    let again = operator.run(&["tenants", "create", "cli-acme"]).expect(3);
    assert!(again.err.contains("already_exists"), "{again:?}");
    assert!(operator.run(&["tenants", "list"]).expect(0).out.contains("cli-acme"));
    assert!(operator.run(&["tenants", "show", "cli-acme"]).expect(0).out.contains("name: Acme"));
    operator.run_with(&["tenants", "update", "cli-acme", "-"], "{\"name\": \"Acme Inc.\"}").expect(0);

    let args = ["keys", "create", "cli-acme", "--name", "app", "--scope", "read", "--json"];
    let key = operator.run(&args).expect(0).json();
    assert_eq!(key["scopes"], serde_json::json!(["read"]));
    let id = key["id"].as_str().unwrap();
    assert!(operator.run(&["keys", "list", "cli-acme"]).expect(0).out.contains(id));
    operator.run(&["keys", "revoke", "cli-acme", id]).expect(0);

    assert_eq!(operator.run(&["limits", "show", "cli-acme"]).expect(0).out, "no limits\n");
    let set =
        operator.run(&["limits", "set", "cli-acme", "requests_per_min=600", "turns_per_day=9"]).expect(0);
    assert_eq!(set.out, "requests_per_min: 600\nturns_per_day: 9\n");
    let set = operator.run(&["limits", "set", "cli-acme", "turns_per_day=null"]).expect(0);
    assert_eq!(set.out, "requests_per_min: 600\n");
    operator.run(&["limits", "set", "cli-acme", "requests_per_min"]).expect(2);

    let rows = operator.run(&["audit", "cli-acme", "--action", "key.created", "--json"]).expect(0).lines();
    assert_eq!(rows.len(), 1);
    assert!(operator.run(&["usage", "--tenant", "cli-acme"]).expect(0).out.contains("total"));
    operator.run(&["tenants", "rm", "cli-acme"]).expect(2);
    operator.run(&["tenants", "rm", "cli-acme", "--yes"]).expect(0);
}

#[test]
fn the_key_of_a_tenant_is_refused() {
    let cli = Agentctl::new(shared());
    cli.run(&["tenants", "list"]).expect(3);
    assert!(cli.run(&["usage", "--group", "model"]).expect(0).out.starts_with("model "));
}
