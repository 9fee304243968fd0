//! The peers: `ws` and `uwebsockets` from npm, each behind a program of ten lines that sends what one socket says to all the others.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::process::{Process, free_address};

/// Where a peer runs; the load is wherever there is room.
const CORE: u32 = 0;

/// A server of somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Ws,
    Uwebsockets,
}

impl Peer {
    pub(super) const ALL: [Self; 2] = [Self::Ws, Self::Uwebsockets];

    /// Its package.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ws => "ws",
            Self::Uwebsockets => "uwebsockets",
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Ws => "8.23.0",
            Self::Uwebsockets => "3.0.6",
        }
    }

    /// Starts it on a free port.
    pub(super) fn start(self, root: &Path, modules: &Path) -> Result<Running> {
        let (address, log) = (free_address()?, root.join("target/bench/chat").join(format!("{}.log", self.name())));
        let program = root.join("xtask/bench").join(format!("{}.cjs", self.name())).display().to_string();
        let modules = format!("NODE_PATH={}", modules.display());
        let command = ["env", &modules, "node", &program, &address.port().to_string()];
        let mut process = Process::start(self.name(), CORE, &command, &log)?;
        process.listening(address, &log)?;
        Ok(Running { process, address })
    }
}

/// A peer that listens.
pub(super) struct Running {
    process: Process,
    pub(super) address: SocketAddr,
}

impl Running {
    /// taskset and env become the program.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// The folder with both packages, installed on first use.
pub(super) fn modules(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/bench-peers");
    let modules = folder.join("node_modules");
    if !Peer::ALL.iter().all(|peer| modules.join(peer.name()).is_dir()) {
        eprintln!("installing ws and uwebsockets to target/bench-peers");
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let packages = Peer::ALL.map(|peer| format!("{}@{}", peer.name(), peer.version()));
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"]).arg(&folder).args(packages);
        ensure!(npm.status().context("start npm")?.success(), "npm cannot install the peers");
    }
    Ok(modules)
}
