//! One `sluice serve` or `sluice worker`, over its restarts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cpu::Meter;
use super::process::Process;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A gateway node.
    Node,
    /// A worker.
    Worker,
}

impl Kind {
    /// The command that starts it.
    fn command(self) -> &'static str {
        match self {
            Self::Node => "serve",
            Self::Worker => "worker",
        }
    }
}

/// Where a member listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    /// Where clients connect; of a worker, the same as `admin`.
    pub(super) edge: SocketAddr,
    /// Where operators connect.
    pub(super) admin: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Member {
    kind: Kind,
    index: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    addresses: Option<Addresses>,
    meter: Meter,
    starts: usize,
}

impl Member {
    pub(super) fn new(kind: Kind, index: usize) -> Self {
        Self { kind, index, state: Mutex::default() }
    }

    /// Starts it, or starts it again, and waits until it listens. Its logs, and what it keeps over restarts, are in `folder`.
    pub(super) async fn start(&self, program: &Path, config: &Path, folder: &Path) -> anyhow::Result<()> {
        self.kill();
        let starts = {
            let mut state = self.state();
            state.starts += 1;
            state.starts
        };
        let name = format!("{}-{}", self.kind.command(), self.index);
        let own = |what: &str| folder.join(format!("{name}.{what}")).display().to_string();
        let environment = [("SLUICE__NODE__NAME", name.clone()), ("SLUICE__PLUGINS__CACHE_DIR", own("cache"))];
        let arguments = [self.kind.command(), "--config", &config.display().to_string()];
        let log = folder.join(format!("{name}.{starts}.log"));
        let mut process = Process::start(program, &arguments, &environment, log)?;
        let admin = process.listening("admin").await?;
        let edge = match self.kind {
            Kind::Node => process.listening("edge").await?,
            Kind::Worker => admin,
        };
        let mut state = self.state();
        state.meter.starts(process.pid());
        state.process = Some(process);
        state.addresses = Some(Addresses { edge, admin });
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.meter.ends();
        state.process = None;
    }

    /// Its last known addresses; while it is down nothing answers there.
    pub(super) fn addresses(&self) -> Addresses {
        self.state().addresses.expect("a rig hands out its members after they were started")
    }

    /// Its process, while one runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.state().meter.pid()
    }

    /// CPU time over all its processes.
    pub(super) fn cpu(&self) -> Duration {
        self.state().meter.total()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
