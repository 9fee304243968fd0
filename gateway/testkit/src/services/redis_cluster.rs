//! A private Redis Cluster of three primaries.

use std::path::Path;

use super::process::{await_level, free_port};
use super::redis::Redis;

/// First and last slot of each node.
const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// Three primaries on loopback, without replicas unless some are started.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts them in folders `cluster-0` and so on inside `parent`, with append-only files, and waits until each agrees that
    /// every slot has a node; takes a few seconds.
    pub fn start(parent: &Path) -> anyhow::Result<Self> {
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for number in 0..SLOTS.len() {
            let (node, bus) = node(parent, &format!("cluster-{number}"))?;
            nodes.push(node);
            buses.push(bus);
        }
        for (number, (node, (first, last))) in nodes.iter().zip(SLOTS).enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
            node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last])?;
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string(), &buses[0]])?;
        }
        let cluster = Self { nodes };
        cluster.nodes.iter().try_for_each(|node| Self::await_agreement(node, SLOTS.len()))?;
        Ok(cluster)
    }

    /// Starts a replica of a node in a folder `name` inside `parent` and waits until it has everything and every node knows it:
    /// it takes over two to five seconds after the node died.
    pub fn replica(&self, parent: &Path, name: &str, of: &Redis) -> anyhow::Result<Redis> {
        let (replica, bus) = node(parent, name)?;
        of.command(&["CLUSTER", "MEET", "127.0.0.1", &replica.port().to_string(), &bus])?;
        let everybody = || self.nodes.iter().chain([&replica]);
        everybody().try_for_each(|node| Self::await_agreement(node, SLOTS.len() + 1))?;
        replica.command(&["CLUSTER", "REPLICATE", &of.command(&["CLUSTER", "MYID"])?])?;
        await_level("the replica has everything", || Ok(replica.command(&["INFO", "replication"])?.contains("master_link_status:up")))?;
        let followed = format!("slave {}", of.command(&["CLUSTER", "MYID"])?);
        for node in everybody() {
            await_level("every node knows whose replica it is", || Ok(node.command(&["CLUSTER", "NODES"])?.contains(&followed)))?;
        }
        Ok(replica)
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Its primaries, to look at, kill and restart.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    fn await_agreement(node: &Redis, known: usize) -> anyhow::Result<()> {
        let known = format!("cluster_known_nodes:{known}");
        await_level("the nodes of the Cluster know each other", || {
            let info = node.command(&["CLUSTER", "INFO"])?;
            Ok(["cluster_state:ok", "cluster_slots_ok:16384", &known].iter().all(|level| info.contains(level)))
        })
    }
}

/// A node that knows nobody yet, and the port at which others meet it.
fn node(parent: &Path, name: &str) -> anyhow::Result<(Redis, String)> {
    // The usual bus port, ten thousand above, need not be one.
    let bus = free_port()?.to_string();
    let clustered = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"];
    let announced = ["--cluster-announce-ip", "127.0.0.1", "--cluster-port", &bus, "--appendonly", "yes"];
    let synced = ["--repl-diskless-sync-delay", "0"];
    Ok((Redis::named(parent, name, &[&clustered[..], &announced, &synced].concat())?, bus))
}
