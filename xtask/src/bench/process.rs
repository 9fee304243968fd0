//! A measured process: pinned to a core, its CPU time readable, ended when dropped.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a process may take to accept its first connection.
const START: Duration = Duration::from_secs(30);

/// The unit of /proc/<pid>/stat, fixed in the kernel's interface on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A child process on one core.
pub(super) struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts `command` on `core`; what it says goes to `log`.
    pub(super) fn start(name: &str, core: u32, command: &[&str], log: &Path) -> Result<Self> {
        let out = fs::File::create(log).with_context(|| format!("create {}", log.display()))?;
        let err = out.try_clone().context("share the log")?;
        let child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .args(command)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Its process id; taskset becomes the program.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `address` accepts connections.
    pub(super) fn listening(&mut self, address: SocketAddr, log: &Path) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            if let Some(status) = self.child.try_wait().context("wait")? {
                bail!("{} ended with {status}: {}", self.name, fs::read_to_string(log).unwrap_or_default());
            }
            if started.elapsed() > START {
                bail!("{} does not listen on {address}: {}", self.name, fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// CPU time of the process and its ended children so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let mut pids = vec![self.child.id()];
        // nginx works in a child of its master.
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        pids.extend(fs::read_to_string(children).unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        pids.iter().map(|pid| cpu_seconds_of(*pid)).sum()
    }

    /// Resident memory in MiB.
    pub(super) fn resident_mib(&self) -> Result<u64> {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).context("read statm")?;
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("statm has no second number")?;
        Ok((pages * 4096) >> 20)
    }
}

/// CPU time of one process so far, in seconds.
pub(super) fn cpu_seconds_of(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read stat")?;
    // The second field is a name in parentheses that may hold anything.
    let (_, rest) = stat.rsplit_once(')').context("stat has no name")?;
    let number = |index: usize| rest.split_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = number(11).zip(number(12)).context("stat has no times")?;
    Ok((user + system) / TICKS_PER_SECOND)
}

impl Drop for Process {
    fn drop(&mut self) {
        // taskset becomes the program, so this ends the program itself.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An address nobody listens on.
pub(super) fn free_address() -> Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).context("find a free port")
}
