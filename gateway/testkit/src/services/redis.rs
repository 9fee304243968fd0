//! A private Redis.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::process::{Kind, Process, folder_in};

/// A Redis server that evicts nothing, as the product requires.
#[derive(Debug)]
pub struct Redis {
    process: Process,
}

impl Redis {
    /// Starts one in a folder `redis` inside `parent`. With `aof` its data survives [`Redis::kill`] but for the last
    /// second; without, a kill loses everything.
    pub fn start(parent: &Path, aof: bool) -> anyhow::Result<Self> {
        let arguments =
            if aof { |folder: &Path, port| arguments(folder, port, "yes") } else { |folder: &Path, port| arguments(folder, port, "no") };
        let kind = Kind { program: "redis-server", package: "redis-server", arguments, ready };
        Ok(Self { process: Process::start(kind, folder_in(parent, "redis")?)? })
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.process.port())
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

fn arguments(folder: &Path, port: u16, aof: &str) -> Vec<String> {
    let port = port.to_string();
    let folder = folder.display().to_string();
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"];
    let varying = ["--port", &port, "--dir", &folder, "--appendonly", aof];
    varying.iter().chain(&fixed).map(ToString::to_string).collect()
}

fn ready(mut stream: TcpStream) -> io::Result<bool> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    // While the append-only file is read back the answer is `-LOADING …`.
    Ok(&answer == b"+PONG")
}
