//! A private NATS server.

use std::io::{self, BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;

use super::process::{Kind, Process, folder_in};

/// A NATS server with JetStream on disk.
#[derive(Debug)]
pub struct Nats {
    process: Process,
}

impl Nats {
    /// Starts one in a folder `nats` inside `parent`.
    pub fn start(parent: &Path) -> anyhow::Result<Self> {
        let kind = Kind { program: "nats-server", package: "nats-server", arguments: Box::new(arguments), ready };
        Ok(Self { process: Process::start(kind, folder_in(parent, "nats")?)? })
    }

    /// How to reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.process.port())
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid()
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
    ["-a", "127.0.0.1", "-p", &port, "-js", "-sd", &folder].map(ToOwned::to_owned).into()
}

fn ready(stream: TcpStream) -> io::Result<bool> {
    // The server speaks first: `INFO {…}`, once its listener and JetStream are up.
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.starts_with("INFO ") && line.contains("\"jetstream\":true"))
}
