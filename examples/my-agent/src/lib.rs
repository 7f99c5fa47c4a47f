//! An agent of your own: the standard agent with one more tool and one more hook.

mod curfew;
mod dice;

use curfew::Curfew;
use dice::Dice;

edge_harness::worker!(|agent| agent.tool(Dice).hook(Curfew));
