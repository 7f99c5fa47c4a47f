//! The simulator finds no defect in the core, and finds each planted one.

const JOBS: usize = 2;

#[test]
fn a_thousand_seeds_find_no_defect() {
    let swept = sim::sweep::sweep(0, 1_000, JOBS);
    assert!(swept.failed.is_none(), "{}", swept.failed.map(|report| report.print()).unwrap_or_default());
    assert_eq!(swept.played, 1_000);
    let (waited, restarted) = (swept.waited, swept.restarted);
    assert!(
        waited >= 200 && restarted >= 150,
        "people decided in {waited} worlds, {restarted} with restarts"
    );
    assert!(swept.spawned >= 120, "subagents were spawned in {} worlds", swept.spawned);
    assert_eq!(swept.runs, 125);
    assert!(swept.tasks >= 30, "subagents worked in the background in {} worlds", swept.tasks);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..30 {
        let (once, again) = (sim::play(seed, true), sim::play(seed, true));
        assert!(!once.trace.is_empty());
        assert_eq!(once, again);
    }
}

#[test]
fn every_fault_is_found_within_eight_thousand_seeds() {
    let simulator = sim::faults::build().expect("sources with the planted defects");
    let mut missed = Vec::new();
    for fault in sim::faults::all().expect("a table of defects") {
        match fault.find(&simulator).expect("a simulator") {
            Some(found) => println!("{}: {found}", fault.name),
            None => missed.push(fault.name),
        }
    }
    assert!(missed.is_empty(), "undetected: {missed:?}");
}
