//! `sluice bench sockets`, on a node of its own or on a peer.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::peer::Peer;
use super::{keep, plugins};

/// What is asked of `sluice bench sockets`.
pub(super) struct Sockets<'a> {
    pub(super) root: &'a Path,
    pub(super) sluice: &'a Path,
    /// Where the peers' packages are, if they are anywhere.
    pub(super) modules: Option<&'a PathBuf>,
}

/// Figures of Sluice and of each peer, which is `None` where it is not to be had.
pub(super) struct Beside {
    pub(super) ours: Value,
    pub(super) peers: [Option<Value>; 2],
}

impl Beside {
    /// Figure `name` of Sluice, divided by that of a peer.
    pub(super) fn ratio(&self, peer: usize, name: &str) -> Option<f64> {
        Some(self.ours[name].as_f64()? / self.peers[peer].as_ref()?[name].as_f64()?)
    }
}

impl Sockets<'_> {
    /// What a node does.
    pub(super) fn ours(&self, name: &str, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.sluice);
        command.args(["bench", "sockets", "--json", "--plugins"]).arg(plugins(self.root)).args(arguments);
        keep(self.root, name, command)
    }

    /// What a node does, and what each peer does with `same`.
    pub(super) fn beside(&self, name: &str, arguments: &[&str], same: impl Fn(&Value) -> Vec<String>) -> Result<Beside> {
        let ours = self.ours(name, arguments)?;
        let mut peers = [None, None];
        if let Some(modules) = self.modules {
            for (peer, found) in Peer::ALL.into_iter().zip(&mut peers) {
                let measured = self.peer(peer, modules, name, arguments, &same(&ours));
                *found = measured.inspect_err(|error| eprintln!("without {}: {error:#}", peer.name())).ok();
            }
        }
        Ok(Beside { ours, peers })
    }

    fn peer(&self, peer: Peer, modules: &Path, name: &str, arguments: &[&str], further: &[String]) -> Result<Value> {
        let running = peer.start(self.root, modules).with_context(|| format!("start {}", peer.name()))?;
        let mut command = Command::new(self.sluice);
        command.args(["bench", "sockets", "--json", "--server", &running.address.to_string(), "--pid", &running.pid().to_string()]);
        command.args(arguments).args(further);
        keep(self.root, &format!("{name}-{}", peer.name()), command)
    }
}
