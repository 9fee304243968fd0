//! A private deployment: Redis, NATS and MariaDB, gateway nodes and workers, any of which can be killed and brought back.
//!
//! Everything listens on loopback and lives in temporary folders; all of it ends when the rig is dropped, and also when the
//! process that started it is killed. Called by the benches.

mod admin;
mod chaos;
mod cpu;
mod keep;
mod member;
mod process;
mod settings;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use gateway_testkit::services::Services;
use serde::Serialize;
use tempfile::TempDir;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use self::cpu::Meter;
use self::member::{Kind, Member};
use self::store::Store;
use crate::load::Client;

pub use admin::Admin;
pub use chaos::Plan;
pub(crate) use cpu::{of as cpu_of, resident as resident_of};
pub use keep::{Options, keep};
pub use settings::ADMIN_TOKEN;
pub use store::RedisLog;

/// A process that starts, or comes back, on a machine that is busy with a load.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks at something that is starting.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is started.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The `sluice` to run.
    pub program: PathBuf,
    /// Folder of the built policies.
    pub plugins: PathBuf,
    /// Gateway nodes.
    pub nodes: usize,
    /// Workers.
    pub workers: usize,
    /// Threads of each process; 0 is one per core.
    pub threads: usize,
}

/// Something that can be taken away without warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The worker of this index.
    Worker(usize),
    /// The gateway node of this index.
    Node(usize),
    /// Redis.
    Redis,
    /// NATS; its streams stay.
    Nats,
    /// MariaDB; its data stay.
    MariaDb,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Worker(index) => write!(f, "worker {index}"),
            Self::Node(index) => write!(f, "node {index}"),
            Self::Redis => f.write_str("Redis"),
            Self::Nats => f.write_str("NATS"),
            Self::MariaDb => f.write_str("MariaDB"),
        }
    }
}

/// CPU time since the rig was started, over all restarts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// Of all gateway nodes.
    pub gateway: Duration,
    /// Of all workers.
    pub worker: Duration,
    /// Of Redis.
    pub redis: Duration,
    /// Of NATS.
    pub nats: Duration,
    /// Of MariaDB.
    pub mariadb: Duration,
    /// Of this process, which makes the load.
    pub load: Duration,
}

impl Cpu {
    /// What was spent after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            gateway: self.gateway.saturating_sub(earlier.gateway),
            worker: self.worker.saturating_sub(earlier.worker),
            redis: self.redis.saturating_sub(earlier.redis),
            nats: self.nats.saturating_sub(earlier.nats),
            mariadb: self.mariadb.saturating_sub(earlier.mariadb),
            load: self.load.saturating_sub(earlier.load),
        }
    }
}

/// Where everything is, for tools that are pointed at a rig.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Places {
    /// The configuration that every process reads.
    pub config: PathBuf,
    /// Token of the admin listeners.
    pub admin_token: &'static str,
    /// Redis.
    pub redis: String,
    /// Its process id.
    pub redis_pid: u32,
    /// MariaDB.
    pub mysql: String,
    /// NATS.
    pub nats: String,
    /// Gateway nodes.
    pub nodes: Vec<NodePlace>,
}

/// Where a node is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlace {
    /// Where clients connect.
    pub edge: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
    /// Its process id.
    pub pid: u32,
}

/// A running deployment. Needs the multi-threaded runtime.
#[derive(Debug)]
pub struct Rig {
    // Processes first: they end before what they use.
    nodes: Vec<Member>,
    workers: Vec<Member>,
    store: Store,
    nats: Mutex<Meter>,
    mariadb: Mutex<Meter>,
    services: Services,
    folder: PathBuf,
    config: PathBuf,
    program: PathBuf,
    /// Removes the folder when it is dropped, last of all.
    cleanup: Mutex<TempDir>,
}

impl Rig {
    /// Starts the services, creates the tables, starts the processes, and waits until every node is ready.
    pub async fn start(shape: &Shape) -> anyhow::Result<Self> {
        settings::check_plugins(&shape.plugins)?;
        let services = block_in_place(Services::start)?;
        let cleanup = tempfile::Builder::new().prefix("sluice-bench-").tempdir()?;
        let folder = cleanup.path().to_owned();
        let config = folder.join("sluice.toml");
        std::fs::write(&config, settings::text(shape, &services)).with_context(|| format!("writing {}", config.display()))?;
        let store = Store::new(&services.redis.url()).await?;
        let members = |kind, count| (0..count).map(|index| Member::new(kind, index)).collect();
        let (nodes, workers) = (members(Kind::Node, shape.nodes), members(Kind::Worker, shape.workers));
        let (nats, mariadb) = (Mutex::default(), Mutex::default());
        let program = shape.program.clone();
        let rig = Self { nodes, workers, store, nats, mariadb, services, folder, config, program, cleanup: Mutex::new(cleanup) };
        meter(&rig.nats).starts(rig.services.nats.pid()?);
        meter(&rig.mariadb).starts(rig.services.mariadb.pid()?);
        process::run(&rig.program, &["migrate", "--config", &rig.config.display().to_string()]).await?;
        for member in rig.workers.iter().chain(&rig.nodes) {
            rig.start_member(member).await?;
        }
        rig.recovered().await?;
        Ok(rig)
    }

    /// The configuration file that every process reads.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Gateway nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Where clients reach node `index` now, or reached it while it is down.
    #[must_use]
    pub fn edge(&self, index: usize) -> SocketAddr {
        self.nodes[index].addresses().edge
    }

    /// The operators' side of node `index`.
    #[must_use]
    pub fn admin(&self, index: usize) -> Admin {
        Admin::new(self.nodes[index].addresses().admin)
    }

    /// How to reach the ledger.
    #[must_use]
    pub fn mysql(&self) -> String {
        self.services.mariadb.url()
    }

    /// Where everything is.
    pub async fn places(&self) -> anyhow::Result<Places> {
        let nodes = self.nodes.iter().map(|node| {
            let (addresses, pid) = (node.addresses(), node.pid().context("a node does not run")?);
            anyhow::Ok(NodePlace { edge: addresses.edge, admin: addresses.admin, pid })
        });
        Ok(Places {
            config: self.config.clone(),
            admin_token: ADMIN_TOKEN,
            redis: self.services.redis.url(),
            redis_pid: self.store.pid(),
            mysql: self.services.mariadb.url(),
            nats: self.services.nats.url(),
            nodes: nodes.collect::<anyhow::Result<_>>()?,
        })
    }

    /// CPU time so far.
    #[must_use]
    pub fn cpu(&self) -> Cpu {
        let sum = |members: &[Member]| members.iter().map(Member::cpu).sum();
        Cpu {
            gateway: sum(&self.nodes),
            worker: sum(&self.workers),
            redis: self.store.cpu(),
            nats: meter(&self.nats).total(),
            mariadb: meter(&self.mariadb).total(),
            load: cpu::of(std::process::id()),
        }
    }

    /// Resident memory of node `index` in bytes.
    pub fn resident(&self, index: usize) -> anyhow::Result<u64> {
        cpu::resident(self.nodes[index].pid().context("the node does not run")?)
    }

    /// Takes a part away: SIGKILL.
    pub fn kill(&self, part: Part) {
        match part {
            Part::Worker(index) => self.workers[index].kill(),
            Part::Node(index) => self.nodes[index].kill(),
            Part::Redis => {
                self.store.ends();
                self.services.redis.kill();
            }
            Part::Nats => {
                meter(&self.nats).ends();
                self.services.nats.kill();
            }
            Part::MariaDb => {
                meter(&self.mariadb).ends();
                self.services.mariadb.kill();
            }
        }
    }

    /// Brings a part back and waits until it answers. Whether the others have noticed is not waited for.
    pub async fn restart(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Worker(index) => self.bring_back(&self.workers[index]).await,
            Part::Node(index) => self.bring_back(&self.nodes[index]).await,
            Part::Redis => {
                block_in_place(|| self.services.redis.restart())?;
                self.store.started().await
            }
            Part::Nats => block_in_place(|| {
                self.services.nats.restart()?;
                meter(&self.nats).starts(self.services.nats.pid()?);
                Ok(())
            }),
            Part::MariaDb => block_in_place(|| {
                self.services.mariadb.restart()?;
                meter(&self.mariadb).starts(self.services.mariadb.pid()?);
                Ok(())
            }),
        }
        .with_context(|| format!("bringing {part} back"))
    }

    /// Waits until every node calls itself ready, which includes everything it depends on.
    pub async fn recovered(&self) -> anyhow::Result<()> {
        for node in 0..self.nodes.len() {
            self.ready(node).await?;
        }
        Ok(())
    }

    /// How much Redis has written to its log so far.
    pub fn redis_log(&self) -> anyhow::Result<RedisLog> {
        self.store.log()
    }

    /// While Redis is down: what it wrote after `log` was lost with the machine, as it may be when the log is flushed once a
    /// second.
    pub fn redis_loses(&self, log: &RedisLog) -> anyhow::Result<u64> {
        store::cut(log)
    }

    /// What the processes said, for somebody who looks for a fault, in a folder that stays.
    pub fn keep_logs(&self) -> &Path {
        self.cleanup.lock().unwrap_or_else(PoisonError::into_inner).disable_cleanup(true);
        &self.folder
    }

    async fn start_member(&self, member: &Member) -> anyhow::Result<()> {
        member.start(&self.program, &self.config, &self.folder).await
    }

    /// As a supervisor does: what cannot start because a service is away is started again.
    async fn bring_back(&self, member: &Member) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match self.start_member(member).await {
                Err(_) if Instant::now() < deadline => sleep(LOOK_EVERY).await,
                done => return done,
            }
        }
    }

    async fn ready(&self, node: usize) -> anyhow::Result<()> {
        let (admin, deadline) = (self.admin(node), Instant::now() + READY_WITHIN);
        loop {
            let answer = admin.get("/readyz").await;
            match answer {
                Ok(_) => return Ok(()),
                Err(error) => ensure!(Instant::now() < deadline, "node {node} is not ready: {error:#}"),
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

fn meter(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client for operators' calls: few, and each may include a store that is coming back.
fn operators_client() -> Client {
    Client::new(4, Duration::from_secs(20))
}
