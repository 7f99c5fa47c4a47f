//! Runs one turn of the agent in `my-agent/`, in memory:
//!
//! ```sh
//! cargo run --no-default-features --example custom
//! ```

#[path = "my-agent/src/banned.rs"]
mod banned;
#[path = "my-agent/src/dice.rs"]
mod dice;

use banned::Banned;
use dice::Dice;
use edge_harness::testkit::TestSession;

fn main() {
    let session = TestSession::new(|agent| agent.tool(Dice).hook(Banned(&["mallory"])));
    println!("{}", session.ask("/tool dice {\"sides\": 6, \"count\": 3}"));
}
