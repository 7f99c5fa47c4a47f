//! What the client of remote agents needs of a deployment.

use crate::ports::{AllowedHosts, Clock, Http, Secrets};
use futures::future::LocalBoxFuture;
use std::rc::Rc;

/// What remote agents need of a deployment.
pub struct RemotePorts {
    /// Outbound HTTP.
    pub http: Rc<dyn Http>,
    /// The secrets of the tenants.
    pub secrets: Rc<dyn Secrets>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The hosts that definitions may name.
    pub hosts: AllowedHosts,
    /// Runs work that does not end with the call that has started it.
    pub spawn: Box<dyn Fn(LocalBoxFuture<'static, ()>)>,
}
