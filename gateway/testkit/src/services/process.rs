//! One service process: found, started on a free port, awaited, frozen, killed, restarted. The services beside this
//! file say which program, which arguments, and how it shows that it is ready.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// MariaDB on a busy two-core machine has needed twelve seconds; five times that is a fault.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks at a service that is starting.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// A process stops as soon as each of its threads is scheduled.
const FROZEN_WITHIN: Duration = Duration::from_secs(10);

/// One look must not eat the whole wait.
const PROBE_WITHIN: Duration = Duration::from_millis(500);

/// A port that was free a moment ago may be taken; three in a row are not bad luck.
const PORTS_TRIED_MAX: u32 = 3;

/// What distinguishes one kind of service from another.
pub(super) struct Kind {
    /// Program name.
    pub program: &'static str,
    /// Debian package that has it.
    pub package: &'static str,
    /// Arguments for a data folder and a port.
    pub arguments: Arguments,
    /// Whether the service behind the connection answers; the connection has a read timeout.
    pub ready: fn(TcpStream) -> io::Result<bool>,
}

pub(super) type Arguments = Box<dyn Fn(&Path, u16) -> Vec<String> + Send + Sync>;

/// A service that runs, or ran and can run again on the same port and data.
pub(super) struct Process {
    kind: Kind,
    folder: PathBuf,
    port: u16,
    running: Mutex<Option<Running>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("program", &self.kind.program).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Process {
    /// Starts a service on a free port with its data in `folder`, which exists, and waits until it is ready.
    pub(super) fn start(kind: Kind, folder: PathBuf) -> anyhow::Result<Self> {
        let mut process = Self { kind, folder, port: 0, running: Mutex::new(None) };
        let mut tried = 0;
        loop {
            process.port = free_port()?;
            tried += 1;
            match process.restart() {
                Ok(()) => return Ok(process),
                Err(_) if tried < PORTS_TRIED_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The process that runs.
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.running().as_ref().context("the service does not run")?.child.id())
    }

    /// Kills the process if it runs, starts it again and waits until it is ready.
    pub(super) fn restart(&self) -> anyhow::Result<()> {
        let mut running = self.running();
        *running = None;
        let mut started = Running::spawn(&self.kind, &self.folder, self.port)?;
        self.await_ready(&mut started)?;
        *running = Some(started);
        Ok(())
    }

    /// Kills the process without warning; its data stays.
    pub(super) fn kill(&self) {
        *self.running() = None;
    }

    /// Stops the process from running while its sockets stay open: a service that hangs.
    pub(super) fn freeze(&self) -> anyhow::Result<()> {
        let pid = self.signal("STOP")?;
        // The signal reaches the threads one after another; until the last has stopped, the service may still answer.
        let deadline = Instant::now() + FROZEN_WITHIN;
        while !is_stopped(pid)? {
            ensure!(Instant::now() < deadline, "{} did not stop within {FROZEN_WITHIN:?}", self.kind.program);
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// Lets a frozen process run on.
    pub(super) fn thaw(&self) -> anyhow::Result<()> {
        self.signal("CONT").map(drop)
    }

    /// Sends a signal; says to which process.
    fn signal(&self, name: &str) -> anyhow::Result<u32> {
        let running = self.running();
        let pid = running.as_ref().context("the service does not run")?.child.id();
        let status = Command::new("sh").args(["-c", "kill -\"$0\" \"$1\"", name, &pid.to_string()]).status()?;
        ensure!(status.success(), "kill -{name} {pid} failed");
        Ok(pid)
    }

    fn await_ready(&self, started: &mut Running) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = started.child.try_wait()? {
                bail!("{} ended with {status} while starting:\n{}", self.kind.program, log_tail(&self.folder));
            }
            let looked = TcpStream::connect_timeout(&address, PROBE_WITHIN).and_then(|stream| {
                stream.set_read_timeout(Some(PROBE_WITHIN))?;
                (self.kind.ready)(stream)
            });
            if matches!(looked, Ok(true)) {
                return Ok(());
            }
            std::thread::sleep(POLL_EVERY);
        }
        bail!("{} was not ready within {READY_WITHIN:?}:\n{}", self.kind.program, log_tail(&self.folder))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child and its guard; dropping it kills the child.
struct Running {
    child: Child,
    guard: Child,
}

impl Running {
    fn spawn(kind: &Kind, folder: &Path, port: u16) -> anyhow::Result<Self> {
        let program = find(kind.program, kind.package)?;
        let log = File::options().create(true).append(true).open(log_path(folder))?;
        let mut child = Command::new(&program)
            .args((kind.arguments)(folder, port))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        match guard(child.id(), folder) {
            Ok(guard) => Ok(Self { child, guard }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // First the child, which is ours to reap, then the guard: it is killed before it can see its pipe close, so it
        // never signals a process id that has been given to somebody else.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// Statics are not dropped when a test binary ends, and a killed one drops nothing. The guard's standard input is a pipe
/// from this process: when it closes, the guard kills the service and removes its folder.
fn guard(pid: u32, folder: &Path) -> anyhow::Result<Child> {
    const SCRIPT: &str = r#"read -r _; kill -9 "$0" 2>/dev/null; rm -rf -- "$1"; rmdir -- "${1%/*}" 2>/dev/null"#;
    Command::new("sh")
        .args(["-c", SCRIPT, &pid.to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting the guard shell")
}

/// Where a program is; service programs live outside an ordinary user's path.
pub(super) fn find(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let found = places.map(|place| place.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("`{program}` is not installed; on Debian: apt-get install --no-install-recommends {package}"))
}

/// Whether this process is root's: MariaDB wants to be told that this is meant.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Whether every thread of a process is stopped by a signal: state `T`, the first word after the name in parentheses.
fn is_stopped(pid: u32) -> io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        if !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A fresh folder for a service inside `parent`.
pub(super) fn folder_in(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let folder = parent.join(name);
    fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Looks at a level again and again until it is reached.
pub(super) fn await_level(what: &str, mut look: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    let mut seen = Ok(false);
    while Instant::now() < deadline {
        seen = look();
        if matches!(seen, Ok(true)) {
            return Ok(());
        }
        std::thread::sleep(POLL_EVERY);
    }
    seen?;
    bail!("not within {READY_WITHIN:?}: {what}")
}

/// A port nobody listens on at this moment.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("service.log")
}

/// The last lines a service said.
fn log_tail(folder: &Path) -> String {
    let log = fs::read(log_path(folder)).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
