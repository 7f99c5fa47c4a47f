//! The Worker that is deployed: the standard agent. Add your own tools and hooks here.

edge_harness::worker!(|agent| agent);
