//! Runs one turn of the agent in `my-agent/`, in memory:
//!
//! ```sh
//! cargo run --no-default-features --example custom
//! ```

#[path = "my-agent/src/dice.rs"]
mod dice;
#[path = "my-agent/src/table_limit.rs"]
mod table_limit;

use dice::Dice;
use edge_harness::testkit::TestSession;
use table_limit::TableLimit;

fn main() {
    let session = TestSession::new(|agent| agent.tool(Dice).hook(TableLimit));
    println!("{}", session.ask("/tool dice {\"sides\": 6, \"count\": 3}"));
}
