//! One `sluice` process: started with its log in a file, asked for its addresses, killed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{LOOK_EVERY, READY_WITHIN};

/// What the processes say: what goes wrong, and where they listen. A line for each request would be a part of its cost.
const LOGGED: &str = "warn,gateway::cli::run=info,pingora_core=error,pingora_proxy=error,async_nats=error";

/// Lines of a log that are shown when a process does not start.
const LINES_SHOWN: usize = 20;

/// `sluice`, blind to the settings of whoever runs the bench.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLUICE") {
            command.env_remove(name);
        }
    }
    command.env("RUST_LOG", LOGGED).stdin(Stdio::null());
    command
}

/// Runs a command of `sluice` that ends by itself.
pub(super) async fn run(program: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::from(command(program));
    command.args(arguments).kill_on_drop(true);
    let what = || format!("sluice {}", arguments.join(" "));
    let output = timeout(READY_WITHIN, command.output()).await.with_context(|| format!("{} did not end", what()))?.with_context(what)?;
    ensure!(output.status.success(), "{}: {}", what(), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A running `sluice`, killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `sluice` with its log in the new file `log`.
    pub(super) fn start(program: &Path, arguments: &[&str], environment: &[(&str, String)], log: PathBuf) -> anyhow::Result<Self> {
        let errors = File::create_new(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut child = command(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        match guard(child.id()) {
            Ok(guard) => Ok(Self { child, guard, log }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where the listener `kind` (`edge` or `admin`) accepts.
    pub(super) async fn listening(&mut self, kind: &str) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let log = fs::read_to_string(&self.log)?;
            if let Some(address) = log.lines().find_map(|line| address(line, kind)) {
                return Ok(address);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("sluice ended with {status}:\n{}", tail(&log));
            }
            ensure!(Instant::now() < deadline, "sluice does not say where {kind} listens:\n{}", tail(&log));
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Killed before it can see its pipe close, so it never signals a process id that has been given to somebody else.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// A bench that is killed drops nothing, so a shell waits for the pipe from this process to close and kills `pid` then.
fn guard(pid: u32) -> anyhow::Result<Child> {
    Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$0" 2>/dev/null"#, &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting the guard shell")
}

fn address(line: &str, kind: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let tells = line["message"] == "listening" && line["kind"] == kind;
    tells.then(|| line["address"].as_str()?.parse().ok()).flatten()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_where_it_listens() {
        let line = r#"{"message":"listening","kind":"edge","address":"127.0.0.1:8080"}"#;
        assert_eq!(address(line, "edge"), Some(SocketAddr::from(([127, 0, 0, 1], 8080))));
        assert_eq!(address(line, "admin"), None);
        assert_eq!(address("panicked at", "edge"), None);
    }
}
