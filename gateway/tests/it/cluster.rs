//! A deployment: private Redis, NATS and MariaDB, gateway nodes and workers, all of which can be killed and restarted while
//! tests talk to them.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail, ensure};
use gateway_testkit::services::Services;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::task::block_in_place;

use crate::admin::Admin;
use crate::conversation::Address;
use crate::edge::Edge;
use crate::ledger::Ledger;
use crate::process::{Process, excerpt, run};
use crate::sale::{Lot, Terms};
use crate::wait::{RECOVERED, until};
use crate::{sale, settings, tokens};

/// A running deployment. Everything ends when it is dropped; what the processes said is shown if a test is failing then.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Member>,
    workers: Vec<Member>,
    /// The three services.
    pub(crate) services: Services,
    files: Files,
}

/// Configuration and logs.
#[derive(Debug)]
struct Files {
    folder: TempDir,
    config: PathBuf,
}

impl Files {
    fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn recording(&self, member: &str) -> PathBuf {
        self.folder.path().join(member).with_extension("recording.jsonl")
    }
}

/// Something that can be taken away without warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The worker of this index.
    Worker(usize),
    /// The gateway node of this index.
    Node(usize),
    /// Redis; its append-only file stays.
    Redis,
    /// NATS; its streams stay.
    Nats,
    /// MariaDB; its data stay.
    MariaDb,
}

impl Cluster {
    /// Starts services, creates the tables, starts `nodes` and `workers`, and waits until every one is ready. `extra` is
    /// added to the configuration: keys first, then tables. Needs the multi-threaded runtime.
    pub(crate) async fn start(nodes: usize, workers: usize, extra: &str) -> anyhow::Result<Self> {
        Self::prepare(nodes, workers, extra)?.started(nodes).await
    }

    /// The same with another Redis than the one of the services.
    pub(crate) async fn start_on(redis_url: &str, nodes: usize, workers: usize) -> anyhow::Result<Self> {
        Self::prepare_on(Some(redis_url), nodes, workers, "")?.started(nodes).await
    }

    async fn started(self, nodes: usize) -> anyhow::Result<Self> {
        let cluster = self;
        cluster.migrate().await?;
        for member in cluster.workers.iter().chain(&cluster.nodes) {
            member.start(&cluster.files).await?;
        }
        for node in 0..nodes {
            cluster.ready(node).await?;
        }
        Ok(cluster)
    }

    /// Starts services and nothing else.
    pub(crate) fn prepare(nodes: usize, workers: usize, extra: &str) -> anyhow::Result<Self> {
        Self::prepare_on(None, nodes, workers, extra)
    }

    fn prepare_on(redis_url: Option<&str>, nodes: usize, workers: usize, extra: &str) -> anyhow::Result<Self> {
        let services = block_in_place(Services::start)?;
        let folder = tempfile::Builder::new().prefix("sluice-cluster-").tempdir()?;
        let config = folder.path().join("sluice.toml");
        let urls = format!(
            "redis.url = \"{}\"\nredis.timeout_ms = 1000\nnats.url = \"{}\"\nnats.timeout_ms = 1000\nmysql.url = \"{}\"\n",
            redis_url.map_or_else(|| services.redis.url(), str::to_owned),
            services.nats.url(),
            services.mariadb.url()
        );
        // Keys have to stand before the first table.
        let (keys, tables) = extra.split_at(extra.find('[').unwrap_or(extra.len()));
        std::fs::write(&config, settings::base()? + &urls + keys + &settings::chain() + tables)?;
        let members = |kind: &'static str, count| (0..count).map(|index| Member::new(kind, index)).collect();
        let (nodes, workers) = (members("serve", nodes), members("worker", workers));
        Ok(Self { nodes, workers, services, files: Files { folder, config } })
    }

    /// Creates the tables.
    pub(crate) async fn migrate(&self) -> anyhow::Result<()> {
        let config = self.files.config.display().to_string();
        let output = run(&["migrate", "--config", &config]).await?;
        ensure!(output.status.success(), "sluice migrate: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Where clients reach node `index` now; a restarted node has a new port.
    pub(crate) fn edge(&self, index: usize) -> SocketAddr {
        self.nodes[index].addresses().edge
    }

    /// For a client that likes node `index`, and takes the other of two when that one is away.
    pub(crate) fn near(self: &Arc<Self>, index: usize) -> Address {
        let cluster = self.clone();
        Box::new(move |attempt| cluster.edge((index + attempt) % 2))
    }

    /// The operators' side of node `index`.
    pub(crate) fn admin(&self, index: usize) -> Admin {
        Admin::new(self.nodes[index].addresses().admin)
    }

    /// The operators' side of worker `index`.
    pub(crate) fn worker_admin(&self, index: usize) -> Admin {
        Admin::new(self.workers[index].addresses().admin)
    }

    /// Opens a sale and waits until every node sells: a node that was asked too early calls a lot unknown for a moment.
    pub(crate) async fn open_sale(&self, sku: u64, terms: Terms) -> anyhow::Result<Lot> {
        let lot = sale::open(&self.admin(0), sku, terms).await?;
        let edge = Edge::new()?;
        for node in 0..self.nodes.len() {
            until(format!("node {node} knows the sale"), RECOVERED, async || {
                let asker = tokens::user(&format!("asker-{:x}", rand::random::<u64>()));
                let answer = edge.buy_units(self.edge(node), &asker, lot, "more-than-anybody-may-have", 9_999).await?;
                Ok((answer.code() == "LIMIT_EXCEEDED").then_some(()))
            })
            .await?;
        }
        Ok(lot)
    }

    /// A connection to the ledger of its own.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        Ledger::open(&self.services.mariadb.url()).await
    }

    /// Waits until node `index` says that it is ready.
    pub(crate) async fn ready(&self, index: usize) -> anyhow::Result<()> {
        let admin = self.admin(index);
        until(format!("node {index} is ready"), RECOVERED, async || {
            let (status, report) = admin.readyz().await?;
            ensure!(status == 200, "{report}");
            Ok(Some(()))
        })
        .await
    }

    /// Takes a part away: SIGKILL.
    pub(crate) fn kill(&self, part: Part) {
        match part {
            Part::Worker(index) => self.workers[index].kill(),
            Part::Node(index) => self.nodes[index].kill(),
            Part::Redis => self.services.redis.kill(),
            Part::Nats => self.services.nats.kill(),
            Part::MariaDb => self.services.mariadb.kill(),
        }
    }

    /// Tells a process to stop, SIGTERM, and waits until it has ended well. It can be restarted.
    pub(crate) async fn stop(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Worker(index) => self.workers[index].stop().await,
            Part::Node(index) => self.nodes[index].stop().await,
            Part::Redis | Part::Nats | Part::MariaDb => bail!("services are killed or frozen"),
        }
    }

    /// Stops a service while its sockets stay open: SIGSTOP.
    pub(crate) fn freeze(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Redis => self.services.redis.freeze(),
            Part::Nats => self.services.nats.freeze(),
            Part::MariaDb => self.services.mariadb.freeze(),
            Part::Worker(_) | Part::Node(_) => bail!("only services are frozen"),
        }
    }

    /// Lets a frozen service run on: SIGCONT.
    pub(crate) fn thaw(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Redis => self.services.redis.thaw(),
            Part::Nats => self.services.nats.thaw(),
            Part::MariaDb => self.services.mariadb.thaw(),
            Part::Worker(_) | Part::Node(_) => bail!("only services are frozen"),
        }
    }

    /// Brings a part back and waits until it answers. Whether the others have noticed is not waited for.
    pub(crate) async fn restart(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Worker(index) => self.workers[index].start(&self.files).await,
            Part::Node(index) => self.nodes[index].start(&self.files).await,
            Part::Redis => block_in_place(|| self.services.redis.restart()),
            Part::Nats => block_in_place(|| self.services.nats.restart()),
            Part::MariaDb => block_in_place(|| self.services.mariadb.restart()),
        }
        .with_context(|| format!("restarting {part:?}"))
    }

    /// Starts node `index` for the first time, after [`Cluster::prepare`].
    pub(crate) async fn start_node(&self, index: usize) -> anyhow::Result<()> {
        self.nodes[index].start(&self.files).await
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> String {
        self.files.config.display().to_string()
    }

    /// The folder of the keys whose bundles every node accepts; empty at first.
    pub(crate) fn keys(&self) -> PathBuf {
        self.files.keys()
    }

    /// What node `index` records of the questions its policies are asked.
    pub(crate) fn recording(&self, index: usize) -> PathBuf {
        self.files.recording(&self.nodes[index].name())
    }

    /// What the processes said, for somebody who looks for a fault.
    fn report(&self) -> String {
        let mut logs: Vec<PathBuf> = std::fs::read_dir(self.files.folder.path())
            .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
            .unwrap_or_default();
        logs.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        logs.iter().map(|log| excerpt(log)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
            self.files.folder.disable_cleanup(true);
        }
    }
}

/// One `sluice serve` or `sluice worker`, over its restarts.
#[derive(Debug)]
struct Member {
    kind: &'static str,
    index: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    addresses: Option<Addresses>,
    starts: usize,
}

#[derive(Debug, Clone, Copy)]
struct Addresses {
    edge: SocketAddr,
    admin: SocketAddr,
}

impl Member {
    fn new(kind: &'static str, index: usize) -> Self {
        Self { kind, index, state: Mutex::default() }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.kind, self.index)
    }

    async fn start(&self, files: &Files) -> anyhow::Result<()> {
        self.kill();
        let starts = {
            let mut state = self.state();
            state.starts += 1;
            state.starts
        };
        let name = self.name();
        let log = files.folder.path().join(format!("{name}.{starts}.log"));
        let config = files.config.display().to_string();
        // What a node keeps is its own, over its restarts.
        let (keys, cache) = (files.keys().display().to_string(), files.folder.path().join(format!("{name}.cache")).display().to_string());
        let recording = files.recording(&name).display().to_string();
        let environment = [
            ("SLUICE__NODE__NAME", name.as_str()),
            ("SLUICE__PLUGINS__KEYS_DIR", &keys),
            ("SLUICE__PLUGINS__CACHE_DIR", &cache),
            ("SLUICE__RECORDING__FILE", &recording),
        ];
        let mut process = Process::start(&[self.kind, "--config", &config], &environment, log)?;
        let admin = process.listening("admin").await?;
        let edge = if self.kind == "serve" { process.listening("edge").await? } else { admin };
        let mut state = self.state();
        state.process = Some(process);
        state.addresses = Some(Addresses { edge, admin });
        Ok(())
    }

    fn kill(&self) {
        self.state().process = None;
    }

    async fn stop(&self) -> anyhow::Result<()> {
        let mut process = self.state().process.take().context("it does not run")?;
        process.terminate()?;
        let status = process.ended(RECOVERED).await?;
        ensure!(status.success(), "{}-{} ended with {status}", self.kind, self.index);
        Ok(())
    }

    /// Its last known addresses; while it is down nothing answers there.
    fn addresses(&self) -> Addresses {
        self.state().addresses.expect("a member is asked where it is after it was started")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A deployment shared by tests that take nothing away: three nodes and a worker.
pub(crate) async fn shared() -> anyhow::Result<Shared> {
    static CLUSTER: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    let cluster = CLUSTER.get_or_try_init(async || Cluster::start(3, 1, "").await.map(Arc::new)).await?;
    Ok(Shared(cluster.clone()))
}

/// A deployment shared by tests of people: three nodes, of which one may be killed, and two workers. Agents are gone and users
/// have waited too long after a moment.
pub(crate) async fn reception() -> anyhow::Result<Shared> {
    static CLUSTER: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    let patience = "chat.agents.gone_after_ms = 3000\nchat.targets.first_response_ms = 1500\n";
    let cluster = CLUSTER.get_or_try_init(async || Cluster::start(3, 2, patience).await.map(Arc::new)).await?;
    Ok(Shared(cluster.clone()))
}

/// A test's hold on a shared deployment, which itself is never dropped.
#[derive(Debug)]
pub(crate) struct Shared(Arc<Cluster>);

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0.report());
        }
    }
}
