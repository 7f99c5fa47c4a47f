//! Derives the world of a run from a seed.

use crate::{
    dice::Dice,
    scenario::{ContextScenario, PeopleScenario, Scenario, SessionScenario, SubagentsScenario, draw_run},
};
use edge_harness::standard::ContextSettings;

/// Derives a world with one session, which is a run.
pub fn of(seed: u64) -> Scenario {
    // Not the dice of the seed's other world.
    let mut dice = Dice::new(seed ^ 0x7275_6e73);
    let run = draw_run(&mut dice);
    let crashes = dice.pick(&[0, 0, 1, 2, 4, 6]);
    let refusals = dice.pick(&[0, 0, 0, 1, 2]);
    let from = dice.below(20_000);
    let outage = dice.chance(20).then(|| (from, from + dice.within(10, 8_000)));
    let session = SessionScenario {
        tenant: "acme".into(),
        id: format!("run_{:032}", 1).as_str().into(),
        user: "ada".into(),
        turns: Vec::new(),
        tasks: Vec::new(),
        acts: Vec::new(),
        followed: false,
        crashes: (0..crashes).map(|_| dice.within(1, 400)).collect(),
        refusals: (0..refusals).map(|_| (dice.below(60), dice.pick(&[1, 1, 2, 5]))).collect(),
        erased: false,
        rules: None,
        restarts: dice.chance(50),
        leaves: run.leaves > 0,
        slow: false,
    };
    Scenario {
        quiet: false,
        sessions: vec![session],
        directory_down: None,
        blobs_down: None,
        ledger_down: outage,
        ledger_unanswered: (0..dice.pick(&[0, 0, 1, 2])).map(|_| dice.below(20_000)).collect(),
        falls_back: false,
        lends_again: false,
        context: ContextScenario {
            settings: ContextSettings::None,
            room: 1_000_000,
            claimed_room: 1_000_000,
            percent: 100,
            flush: false,
            one_shots: Vec::new(),
        },
        people: PeopleScenario { ttl_s: (run.leaves > 0).then_some(15), ..PeopleScenario::default() },
        subagents: SubagentsScenario::default(),
        run: Some(run),
        dice,
    }
}
