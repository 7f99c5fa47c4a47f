//! The lists of tools of the servers of an agent.

use super::connect::{self, ConnectTool};
use super::connection::Connection;
use super::error::McpError;
use super::oauth;
use super::offer_tool::OfferTool;
use super::offers::{Kind, Offers};
use super::ports::Ports;
use super::server::McpServer;
use super::tool::McpTool;
use crate::agent::DynTool;
use crate::ports::{AllowedHosts, Log, directory::DirectoryResult, within};
use crate::types::{AgentRef, ConsentGiven, ConsentPage, ConsentReply, TenantId, Timestamp, UserId};
use futures::future::join_all;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

/// How long a server may take for its list.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 128;
/// Maximum size of what the model reads about the tools of a server, in bytes.
const MAX_TOOLS_BYTES: usize = 256 << 10;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 4;
/// How long a list is used, unless the server says it.
const TTL: Duration = Duration::from_mins(5);
/// The least and the most that a server can say.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_hours(1));
/// How long a server that has failed is left alone.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// Lists the tools of servers, for all agents.
pub struct McpServers {
    ports: Rc<Ports>,
    log: Rc<dyn Log>,
}

/// What the servers of an agent have listed.
#[derive(Clone, Default)]
pub struct Listings {
    of_servers: Vec<Listing>,
    /// The names of servers that the agent cannot have, each with the reason.
    left_out: Vec<(String, String)>,
}

#[derive(Clone)]
struct Listing {
    connection: Rc<Connection>,
    tools: Vec<Rc<McpTool>>,
    /// What the server offers besides tools.
    offers: Offers,
    /// Until when the list is used.
    fresh_until: Timestamp,
    /// Why the server has no list.
    failure: Option<String>,
}

impl Listings {
    /// Returns the tools of one server after the other. Those of a server that needs consent begin with the one that asks
    /// for it. The tools for what servers offer besides tools follow.
    pub fn tools(&self) -> Vec<Rc<dyn DynTool>> {
        let of_server = |listing: &Listing| -> Vec<Rc<dyn DynTool>> {
            let connection = &listing.connection;
            // A user who is connected has it, too: a call of it may have waited while another session connected the user.
            let connect = connection.server().asks_for_consent();
            let connect = connect.then(|| Rc::new(ConnectTool(Rc::clone(connection))) as Rc<dyn DynTool>);
            let own = listing.tools.iter().map(|tool| Rc::clone(tool) as Rc<dyn DynTool>);
            connect.into_iter().chain(own).collect()
        };
        let for_offers = Kind::ALL.into_iter().filter_map(|kind| self.tool_for(kind));
        self.of_servers.iter().flat_map(of_server).chain(for_offers).collect()
    }

    /// Returns the tool for what servers offer of a kind, if one of them does and its definition keeps the tool.
    fn tool_for(&self, kind: Kind) -> Option<Rc<dyn DynTool>> {
        let offers =
            |listing: &&Listing| listing.offers.has(kind) && listing.connection.server().keeps(kind.tool());
        let servers: Vec<_> =
            self.of_servers.iter().filter(offers).map(|listing| Rc::clone(&listing.connection)).collect();
        (!servers.is_empty()).then(|| Rc::new(OfferTool::new(kind, servers)) as Rc<dyn DynTool>)
    }

    /// Adds servers that the agent cannot have, each with the reason.
    pub fn with_left_out(self, left_out: Vec<(String, String)>) -> Self {
        Self { left_out, ..self }
    }

    /// Returns the servers without a list, and those that were left out, each with the reason.
    pub fn failures(&self) -> Vec<(String, String)> {
        let failure =
            |listing: &Listing| Some((listing.connection.name().to_owned(), listing.failure.clone()?));
        self.of_servers.iter().filter_map(failure).chain(self.left_out.iter().cloned()).collect()
    }

    /// Returns whether a server should be asked again.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.of_servers.iter().any(|listing| listing.fresh_until <= now)
    }

    /// Returns whether the list of a server has to be read before the next turn.
    pub fn is_outdated(&self) -> bool {
        self.of_servers.iter().any(|listing| listing.connection.is_outdated())
    }

    /// Returns whether an agent with these tools equals one with others.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_tools = |(one, other): (&Listing, &Listing)| {
            Rc::ptr_eq(&one.connection, &other.connection)
                && one.failure.is_some() == other.failure.is_some()
                && one.offers == other.offers
                && one.tools.len() == other.tools.len()
                && one.tools.iter().zip(&other.tools).all(|(one, other)| one.is_same(other))
        };
        let same_number = self.of_servers.len() == other.of_servers.len();
        same_number
            && self.left_out == other.left_out
            && self.of_servers.iter().zip(&other.of_servers).all(same_tools)
    }
}

impl McpServers {
    /// Creates the client.
    pub fn new(ports: Ports, log: Rc<dyn Log>) -> Self {
        Self { ports: Rc::new(ports), log }
    }

    /// Returns the hosts that definitions may name.
    pub fn hosts(&self) -> &AllowedHosts {
        &self.ports.hosts
    }

    /// Returns the metadata of the client of OAuth, if the deployment has a public address.
    pub fn client_metadata(&self) -> Option<Value> {
        self.ports.public_url.as_deref().map(oauth::metadata)
    }

    /// Keeps what an authorization server has sent back until the user confirms it. Returns what the browser of the user shows;
    /// `None` if there is no such request for consent, or not any more.
    ///
    /// # Errors
    /// The store fails.
    pub async fn park_consent(&self, reply: &ConsentReply) -> Result<Option<ConsentPage>, McpError> {
        oauth::park(&self.ports, reply).await
    }

    /// Lists up to `limit` servers with which users of a tenant are connected, or one of them is: those after this one.
    ///
    /// # Errors
    /// The store fails.
    pub async fn consents(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&ConsentGiven>,
        limit: usize,
    ) -> DirectoryResult<Vec<ConsentGiven>> {
        self.ports.consents.tokens(tenant, user, after, limit).await
    }

    /// Deletes the consent of a tenant's users, or of one.
    ///
    /// # Errors
    /// The store fails.
    pub async fn erase_consent(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<()> {
        self.ports.consents.erase(tenant, user).await
    }

    /// Lists the tools of the servers of an agent for a user, all at once. Of `known` lists, those that are still fresh are used. A
    /// server that fails keeps its known tools.
    pub async fn list(
        &self,
        (tenant, user): (&TenantId, &UserId),
        agent: &AgentRef,
        servers: &BTreeMap<String, McpServer>,
        known: &Listings,
    ) -> Listings {
        let list = async |(name, server): (&String, &McpServer)| {
            // A server of the shared files may have changed.
            let is_same =
                |connection: &Connection| connection.name() == name && connection.server() == server;
            let known = known.of_servers.iter().find(|listing| is_same(&listing.connection));
            let now = self.ports.clock.now();
            let is_fresh =
                |listing: &&Listing| listing.fresh_until > now && !listing.connection.is_outdated();
            if let Some(fresh) = known.filter(is_fresh) {
                return fresh.clone();
            }
            let new = || Connection::new(name, (tenant, user), server.clone(), Rc::clone(&self.ports));
            let connection = known.map_or_else(|| Rc::new(new()), |known| Rc::clone(&known.connection));
            connection.set_outdated(false);
            let listed = within(self.ports.clock.as_ref(), LIST_TIMEOUT, self.tools(&connection)).await;
            let listed = listed.unwrap_or(Err(McpError::Slow(LIST_TIMEOUT)));
            let (now, offers) = (self.ports.clock.now(), connection.offers());
            match listed {
                Ok((tools, ttl)) => {
                    let fresh_until = now + ttl;
                    Listing { connection, tools, offers, fresh_until, failure: None }
                }
                Err(error) if connection.needs_consent(&error).is_some() => {
                    let tools = known.map(|known| known.tools.clone()).unwrap_or_default();
                    let fresh_until = now + RETRY_AFTER;
                    Listing { connection, tools, offers, fresh_until, failure: None }
                }
                Err(error) => {
                    let reason = error.for_log();
                    self.log.line(&json!({
                        "event": "mcp.unavailable", "tenant": tenant, "agent": agent.id, "version": agent.version,
                        "server": name, "reason": reason,
                    }));
                    let tools = known.map(|known| known.tools.clone()).unwrap_or_default();
                    let has_none = tools.is_empty() && offers == Offers::default();
                    let failure = has_none.then_some(reason);
                    let fresh_until = now + RETRY_AFTER;
                    Listing { connection, tools, offers, fresh_until, failure }
                }
            }
        };
        Listings { of_servers: join_all(servers.iter().map(list)).await, left_out: Vec::new() }
    }

    /// Asks a server for its tools. Returns how long the list can be used, too.
    async fn tools(&self, connection: &Rc<Connection>) -> Result<(Vec<Rc<McpTool>>, Duration), McpError> {
        let (mut tools, mut ttl) = (Vec::new(), None::<Duration>);
        let connect = connection.server().asks_for_consent().then(|| connect::name(connection.name()));
        let mut names = BTreeSet::from_iter(connect);
        let (mut cursor, mut left) = (None::<String>, MAX_TOOLS_BYTES);
        for _ in 0..MAX_PAGES {
            let params = cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into()));
            let Some(page) = connection.list("tools/list", Map::from_iter(params)).await? else { break };
            let Some(listed) = page.get("tools").and_then(Value::as_array) else {
                return Err(McpError::Malformed("its list has no tools"));
            };
            for tool in listed.iter().filter(|tool| connection.server().keeps(McpTool::name_of(tool))) {
                if tools.len() == MAX_TOOLS {
                    self.left_out(connection, "the server has too many tools");
                    break;
                }
                let tool = match McpTool::new(Rc::clone(connection), tool) {
                    Ok(tool) => tool,
                    Err(why) => {
                        self.left_out(connection, why);
                        continue;
                    }
                };
                match left.checked_sub(tool.bytes()) {
                    None => {
                        self.left_out(connection, "the schemas and descriptions of the server are too large")
                    }
                    Some(_) if !names.insert(tool.spec().name) => {
                        self.left_out(connection, "another tool has this name");
                    }
                    Some(rest) => {
                        left = rest;
                        tools.push(Rc::new(tool));
                    }
                }
            }
            let said = page.get("ttlMs").and_then(Value::as_u64).map(Duration::from_millis);
            ttl = ttl.into_iter().chain(said).min();
            cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() || tools.len() == MAX_TOOLS {
                break;
            }
        }
        // A server may list its tools in another order each time, and the prompt must not change with it.
        tools.sort_by_cached_key(|tool| tool.spec().name);
        Ok((tools, ttl.unwrap_or(TTL).clamp(TTL_RANGE.0, TTL_RANGE.1)))
    }

    fn left_out(&self, connection: &Connection, reason: &str) {
        self.log.line(&json!({
            "event": "mcp.tool_left_out", "tenant": connection.tenant(), "server": connection.name(), "reason": reason,
        }));
    }
}
