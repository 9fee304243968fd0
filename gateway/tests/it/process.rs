//! One `sluice` process: started with its log in a file, asked for its addresses, killed, told to stop, awaited.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::wait::{SOON, until};

/// Lines of a log that are shown when a test fails.
const LINES_SHOWN: usize = 40;

/// `sluice`, blind to the settings of whoever runs the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLUICE") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command of `sluice` that ends by itself; one that does not is killed and is an error.
pub(crate) async fn run(arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::from(command());
    command.args(arguments).kill_on_drop(true);
    tokio::time::timeout(SOON, command.output()).await.with_context(|| format!("sluice {arguments:?}: did not end"))?.context("sluice")
}

/// A running `sluice`, killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    guard: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `sluice` with its log in the new file `log`.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)], log: PathBuf) -> anyhow::Result<Self> {
        let errors = File::create_new(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut child = command()
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .context("starting sluice")?;
        match guard(child.id()) {
            Ok(guard) => Ok(Self { child, guard, log }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Where the listener `kind` (`edge`, `admin` or `echo`) accepts.
    pub(crate) async fn listening(&mut self, kind: &str) -> anyhow::Result<SocketAddr> {
        let Self { child, log, .. } = self;
        until(format!("{} says where {kind} listens", log.display()), SOON, async || {
            if let Some(status) = child.try_wait()? {
                bail!("it ended with {status}\n{}", excerpt(log));
            }
            Ok(fs::read_to_string(&*log)?.lines().find_map(|line| address(line, kind)))
        })
        .await
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        let status = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()]).status()?;
        ensure!(status.success(), "cannot send SIGTERM");
        Ok(())
    }

    /// How it ended.
    pub(crate) async fn ended(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        until("sluice ends", within, async || Ok(self.child.try_wait()?)).await
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Everything it said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Killed before it can see its pipe close, so it never signals a process id that has been given to somebody else.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// A test run that is killed drops nothing, so a shell waits for the pipe from this process to close and kills `pid` then.
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

/// What somebody who looks for a fault wants to see of a log: everything but requests that went well, and of that the end.
pub(crate) fn excerpt(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let went_well = |line: &str| line.contains(r#""target":"access""#) && !line.contains(r#""status":5"#);
    let lines: Vec<&str> = text.lines().filter(|line| !went_well(line)).collect();
    let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    format!("--- {}, {} of {} lines\n{}\n", log.display(), shown.len(), text.lines().count(), shown.join("\n"))
}
