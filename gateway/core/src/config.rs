//! The configuration of a deployment: one file that gateway, worker and migration read alike, and the environment that
//! overrides it.
//!
//! Text goes in, a typed [`Config`] or all of its [`Problems`] come out. Nothing here reads a file, an environment or a
//! certificate: the caller brings the text and the variables, and opens what the configuration names. `config/gateway.toml`
//! shows every key.

mod chat;
mod listener;
mod node;
mod payments;
mod policies;
mod problem;
mod proxying;
mod recording;
mod sale;
mod secret;
mod section;
mod stores;
mod syntax;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod vault;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use chat::{Agents, Chat, FrameGuard, Signature};
pub use listener::{Admin, Edge, Tls};
pub use node::{Log, LogFormat, LogLevel, Node};
pub use payments::Payments;
pub use policies::{FailPolicy, Mode, OnFault, Plugins, Policy, SocketRule};
pub use problem::{Place, Problem, Problems};
pub use proxying::{Health, Peer, Upstream};
pub use recording::Recording;
pub use sale::Sale;
pub use secret::Secret;
pub use stores::{Mysql, Nats, Redis};
pub use tokens::{JwksUrl, TokenKey, Tokens};
pub use vault::{Vault, VaultKeys};
pub use worker::Worker;

use crate::route::Route;
use problem::Report;
use section::Section;

/// Everything an operator can set, checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[node]`.
    pub node: Node,
    /// `[edge]`.
    pub edge: Edge,
    /// `[admin]`.
    pub admin: Admin,
    /// `[tokens]`.
    pub tokens: Tokens,
    /// `[upstreams]`, in order of name.
    pub upstreams: Vec<Upstream>,
    /// `[[routes]]`; each names an upstream that exists, and no two claim the same requests.
    pub routes: Vec<Route>,
    /// `[plugins]`.
    pub plugins: Plugins,
    /// `[[policies]]`, in chain order.
    pub policies: Vec<Policy>,
    /// `[lists]`: by name, the keys that are on the list.
    pub lists: BTreeMap<String, Vec<String>>,
    /// `[redis]`.
    pub redis: Redis,
    /// `[nats]`.
    pub nats: Nats,
    /// `[mysql]`.
    pub mysql: Mysql,
    /// `[sale]`.
    pub sale: Sale,
    /// `[payments]`.
    pub payments: Payments,
    /// `[chat]`.
    pub chat: Chat,
    /// `[vault]`.
    pub vault: Vault,
    /// `[worker]`.
    pub worker: Worker,
    /// `[recording]`.
    pub recording: Recording,
    /// `[log]`.
    pub log: Log,
}

impl Config {
    /// Reads `text`, overridden by `environment`. `file` is only a name to blame.
    ///
    /// A variable `SLUICE__EDGE__TLS__CERT` sets `edge.tls.cert`; a string is written plainly, anything else as TOML, and a
    /// list or table is replaced as a whole. Of two variables for one key the later holds, so that a command line can add
    /// its own pairs at the end. Variables without the prefix `SLUICE__` are ignored.
    ///
    /// # Errors
    /// Every problem of the file and the overrides at once.
    pub fn parse(file: &str, text: &str, environment: &[(String, String)]) -> Result<Self, Problems> {
        let report = Report::default();
        let config = Self::read(&Arc::from(file), text, environment, &report);
        report.finish(config)
    }

    fn read(file: &Arc<str>, text: &str, environment: &[(String, String)], report: &Report) -> Self {
        let mut entries = tree::document(file, text, report);
        tree::override_with(&mut entries, environment, report);
        let mut root = Section::root(report, Place::File(file.clone()), entries);
        let upstreams = proxying::upstreams(&mut root);
        let config = Self {
            node: Node::read(root.section("node")),
            edge: Edge::read(root.section("edge")),
            admin: Admin::read(root.section("admin")),
            tokens: Tokens::read(root.section("tokens")),
            routes: proxying::routes(&mut root, &upstreams),
            upstreams,
            plugins: Plugins::read(root.section("plugins")),
            policies: policies::policies(&mut root),
            lists: policies::lists(&mut root),
            redis: Redis::read(root.section("redis")),
            nats: Nats::read(root.section("nats")),
            mysql: Mysql::read(root.section("mysql")),
            sale: Sale::read(root.section("sale")),
            payments: Payments::read(root.section("payments")),
            chat: Chat::read(root.section("chat")),
            vault: Vault::read(root.section("vault")),
            worker: Worker::read(root.section("worker")),
            recording: Recording::read(root.section("recording")),
            log: Log::read(root.section("log")),
        };
        config.check_listeners(&mut root);
        config
    }

    /// Two listeners cannot have one address; port 0 is a new one each time.
    fn check_listeners(&self, root: &mut Section<'_>) {
        let (edge, admin, echo) = (self.edge.listen, self.admin.listen, self.edge.echo);
        if edge.port() != 0 && edge == admin {
            root.blame("admin", format!("`admin.listen` is {admin}, and so is `edge.listen`"), "give each listener its own address");
        }
        if let Some(echo) = echo.filter(|echo| echo.port() != 0 && [edge, admin].contains(echo)) {
            root.blame("edge", format!("`edge.echo` is {echo}, and so is another listener"), "give each listener its own address");
        }
    }
}
