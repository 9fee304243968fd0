//! A private Redis Cluster of three primaries.

use std::path::Path;

use super::process::{await_level, free_port};
use super::redis::Redis;

/// First and last slot of each node.
const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// Three primaries without replicas, on loopback.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts them in folders `cluster-0` and so on inside `parent`, with append-only files, and waits until each agrees that
    /// every slot has a node; takes a few seconds.
    pub fn start(parent: &Path) -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for number in 0..SLOTS.len() {
            // The usual bus port, ten thousand above, need not be one.
            let bus = free_port()?.to_string();
            let clustered = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"];
            let announced = ["--cluster-announce-ip", "127.0.0.1", "--cluster-port", &bus, "--appendonly", "yes"];
            nodes.push(Redis::named(parent, &format!("cluster-{number}"), &[clustered, announced].concat())?);
            buses.push(bus);
        }
        for (number, (node, (first, last))) in nodes.iter().zip(SLOTS).enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
            node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last])?;
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string(), &buses[0]])?;
        }
        for node in &nodes {
            await_level("the nodes of the Cluster know each other", || {
                let info = node.command(&["CLUSTER", "INFO"])?;
                Ok(["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"].iter().all(|level| info.contains(level)))
            })?;
        }
        Ok(Self { nodes })
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Its nodes, to look at, kill and restart.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }
}
