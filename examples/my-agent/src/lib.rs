//! An agent of your own: the standard agent with one more tool and one more hook.

mod dice;
mod table_limit;

use dice::Dice;
use table_limit::TableLimit;

edge_harness::worker!(|agent| agent.tool(Dice).hook(TableLimit));
