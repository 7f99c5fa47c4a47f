//! Runs one turn of the agent in `my-agent/`, in memory:
//!
//! ```sh
//! cargo run --no-default-features --example custom
//! ```

#[path = "my-agent/src/curfew.rs"]
mod curfew;
#[path = "my-agent/src/dice.rs"]
mod dice;

use curfew::Curfew;
use dice::Dice;
use edge_harness::testkit::TestSession;
use std::time::Duration;

fn main() {
    let session = TestSession::new(|agent| agent.tool(Dice).hook(Curfew));
    session.clock.advance(Duration::from_hours(12));
    println!("{}", session.ask("/tool dice {\"sides\": 6, \"count\": 3}"));
}
