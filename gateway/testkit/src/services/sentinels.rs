//! Three private Sentinels that watch one Redis and promote a replica of it a second after it died.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::process::{Kind, Process, await_level, folder_in};
use super::redis::{Redis, ready};
use super::resp::ask;

/// What the Sentinels call the primary.
const NAME: &str = "main";

/// Two of three decide.
const COUNT: usize = 3;

/// Three Sentinels.
#[derive(Debug)]
pub struct Sentinels {
    nodes: Vec<Process>,
}

impl Sentinels {
    /// Starts them in folders `sentinel-0` and so on inside `parent`, and waits until they know each other and the replicas that
    /// `primary` has by now; takes a few seconds.
    pub fn start(parent: &Path, primary: &Redis) -> anyhow::Result<Self> {
        let nodes = (0..COUNT).map(|number| sentinel(parent, number, primary.port())).collect::<anyhow::Result<Vec<_>>>()?;
        let replication = primary.command(&["INFO", "replication"])?;
        let replicas = replication.lines().find_map(|line| line.strip_prefix("connected_slaves:")).context("a number of replicas")?;
        let known = format!("slaves={},sentinels={COUNT}", replicas.trim());
        for node in &nodes {
            await_level("the Sentinels know each other", || Ok(ask(node.port(), &["INFO", "sentinel"])?.contains(&known)))?;
        }
        Ok(Self { nodes })
    }

    /// How to reach the primary through them.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The port of the server that the first of them holds for the primary.
    pub fn primary_port(&self) -> anyhow::Result<u16> {
        let node = self.nodes.first().context("a Sentinel")?;
        let address = ask(node.port(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let (_, port) = address.split_once(' ').context("host and port")?;
        Ok(port.parse()?)
    }

    /// Kills one of them, 0 to 2; the others go on.
    pub fn kill(&self, number: usize) {
        if let Some(node) = self.nodes.get(number) {
            node.kill();
        }
    }
}

fn sentinel(parent: &Path, number: usize, primary: u16) -> anyhow::Result<Process> {
    let folder = folder_in(parent, &format!("sentinel-{number}"))?;
    // Sentinels write what they learn into their configuration.
    let config = format!(
        "sentinel monitor {NAME} 127.0.0.1 {primary} 2\nsentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 5000\n"
    );
    fs::write(config_path(&folder), config)?;
    let kind = Kind { program: "redis-server", package: "redis-server", arguments: Box::new(arguments), ready };
    Process::start(kind, folder)
}

fn arguments(folder: &Path, port: u16) -> Vec<String> {
    let (config, port) = (config_path(folder), port.to_string());
    [&config, "--sentinel", "--bind", "127.0.0.1", "--port", &port, "--dir", &folder.display().to_string()].map(ToOwned::to_owned).into()
}

fn config_path(folder: &Path) -> String {
    folder.join("sentinel.conf").display().to_string()
}
