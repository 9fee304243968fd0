//! A private Redis: a server of its own, a replica of another, or a node of a Cluster.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::process::{Kind, Process, await_level, folder_in};
use super::resp::ask;

/// A Redis server that evicts nothing, as the product requires.
#[derive(Debug)]
pub struct Redis {
    process: Process,
}

impl Redis {
    /// Starts one in a folder `redis` inside `parent`. With `aof` its data survives [`Redis::kill`] but for the last
    /// second; without, a kill loses everything.
    pub fn start(parent: &Path, aof: bool) -> anyhow::Result<Self> {
        Self::named(parent, "redis", &["--appendonly", if aof { "yes" } else { "no" }])
    }

    /// Starts a replica of `primary` in a folder `name` inside `parent` and waits until it has everything.
    pub fn replica(parent: &Path, name: &str, primary: &Self) -> anyhow::Result<Self> {
        let port = primary.port().to_string();
        // The address is the one the Sentinels know it by.
        let announced = ["--replica-announce-ip", "127.0.0.1", "--repl-diskless-sync-delay", "0"];
        let replica = Self::named(parent, name, &[&["--appendonly", "yes", "--replicaof", "127.0.0.1", &port][..], &announced].concat())?;
        await_level("the replica has everything", || Ok(replica.command(&["INFO", "replication"])?.contains("master_link_status:up")))?;
        Ok(replica)
    }

    /// Starts one with further arguments.
    pub(super) fn named(parent: &Path, name: &str, further: &[&str]) -> anyhow::Result<Self> {
        let further: Vec<String> = further.iter().map(ToString::to_string).collect();
        let arguments = Box::new(move |folder: &Path, port| arguments(folder, port).into_iter().chain(further.clone()).collect());
        let kind = Kind { program: "redis-server", package: "redis-server", arguments, ready };
        Ok(Self { process: Process::start(kind, folder_in(parent, name)?)? })
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Its port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// Sends one command and gives the answer as text, elements of a list joined by spaces; an error answer is an error. Blocks
    /// the calling thread for a few milliseconds.
    pub fn command(&self, words: &[&str]) -> anyhow::Result<String> {
        ask(self.port(), words)
    }

    /// Loses its replicas for good while whoever is connected goes on: it asks newcomers for a password nobody has. What it takes
    /// from here on exists nowhere else, so a kill and a failover lose exactly that.
    pub fn cut_off_replicas(&self) -> anyhow::Result<()> {
        self.command(&["CONFIG", "SET", "requirepass", "nobody knows"])?;
        super::resp::ask_with(self.port(), "nobody knows", &["CLIENT", "KILL", "TYPE", "replica"]).map(drop)
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same port and data, killing it first if it runs.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.process.restart()
    }

    /// SIGSTOP: it accepts connections and answers nothing.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.process.freeze()
    }

    /// SIGCONT.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.process.thaw()
    }
}

fn arguments(folder: &Path, port: u16) -> Vec<String> {
    let port = port.to_string();
    let folder = folder.display().to_string();
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"];
    let varying = ["--port", &port, "--dir", &folder];
    varying.iter().chain(&fixed).map(ToString::to_string).collect()
}

pub(super) fn ready(mut stream: TcpStream) -> io::Result<bool> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    // While the append-only file is read back the answer is `-LOADING …`.
    Ok(&answer == b"+PONG")
}
