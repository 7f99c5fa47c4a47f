//! What the client needs of a deployment.

use crate::ports::{AllowedHosts, Clock, ConsentStore, Entropy, Http, Sealer, Secrets};
use futures::future::LocalBoxFuture;
use std::rc::Rc;

/// What all connections need.
pub struct Ports {
    /// Outbound HTTP.
    pub http: Rc<dyn Http>,
    /// The secrets of the tenants.
    pub secrets: Rc<dyn Secrets>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The hosts that definitions may name.
    pub hosts: AllowedHosts,
    /// The consent of users at servers.
    pub consents: Rc<dyn ConsentStore>,
    /// Encrypts consent.
    pub sealer: Rc<dyn Sealer>,
    /// Runs work that does not end with the call that has started it.
    pub spawn: Box<dyn Fn(LocalBoxFuture<'static, ()>)>,
    /// The source of randomness.
    pub entropy: Rc<dyn Entropy>,
    /// The address of the deployment, to which authorization servers send users back.
    pub public_url: Option<String>,
}
