//! An agent of your own: the standard agent with one more tool and one more hook.

mod banned;
mod dice;

use banned::Banned;
use dice::Dice;

edge_harness::worker!(|agent| agent.tool(Dice).hook(Banned(&["mallory"])));
