//! Configuration to running parts: the only module that names an adapter.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use gateway_core::config::{Config, Mode, TokenKey};
use gateway_core::policy::chain::Binding;
use gateway_core::ports::{Policies, PolicyStatus, PortError};
use gateway_core::sale::order_no::OrderKey;
use gateway_embedded::{
    Clock, EmbeddedAdmission, EmbeddedBudgets, EmbeddedBus, EmbeddedChatLedger, EmbeddedNonces, EmbeddedNotices, EmbeddedPresence,
    EmbeddedRegistry, EmbeddedRoaming, EmbeddedSaleLedger,
};
use gateway_policy::{Host, Keys, Lists, PolicySettings, Settings, Verifier, VerifierSettings};
use gateway_stores::{MysqlSettings, MysqlStore, NatsBus, NatsSettings, RedisSettings, RedisStore};

use crate::clock;
use crate::decisions::Decisions;
use crate::health::{Dependency, Health};
use crate::jwks::Jwks;
use crate::node::{Drain, Node, Ports, Sockets};
use crate::recording::Recorder;
use crate::rollouts::{Parts, Rollouts};
use crate::sale::batcher::{Batcher, Batching};
use crate::sale::borrowing::Borrowing;
use crate::sale::buying::Buying;
use crate::sale::catalog::Catalog;
use crate::sale::flags::Flags;
use crate::socket::switchboard::Switchboard;
use crate::telemetry::Metrics;
use crate::vault::{Absent, Safe};

/// Where the ports of a process come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Process memory.
    Embedded,
    /// Redis, NATS and MySQL.
    Services,
}

/// A node over `config`. Does not wait for services: they are named in `/readyz` until they are there.
pub(crate) async fn node(config: Config, backing: Backing) -> anyhow::Result<Arc<Node>> {
    let metrics = Arc::new(Metrics::new().context("cannot register metrics")?);
    let (ports, mut dependencies) = match backing {
        Backing::Embedded => (embedded(), Vec::new()),
        Backing::Services => services(&config, &metrics).await?,
    };
    let ports = if let Some(safe) = Safe::open(&config.vault).await? {
        safe.watch(config.vault.refresh);
        dependencies.push(safe.clone());
        Ports { vault: safe, ..ports }
    } else {
        ports
    };
    let lists = Arc::new(lists(&config)?);
    let verifier = Arc::new(verifier(&config)?.refusing(lists.clone(), &config.tokens.revoked_list));
    let policies = policies(&config, verifier.clone(), lists.clone(), metrics.clone())?;
    let jwks = match &config.tokens.key {
        TokenKey::JwksUrl(settings) => Some(Jwks::start(settings, verifier.clone(), metrics.clone())?),
        TokenKey::Secret(_) | TokenKey::PublicKeyFile(_) | TokenKey::JwksFile(_) => None,
    };
    dependencies.extend(jwks.clone().map(|jwks| jwks as Arc<dyn Dependency>));
    let recorder = Recorder::start(&config, &metrics)?.map(Arc::new);
    let order_key = OrderKey::new(config.sale.order_key.expose().as_bytes()).context("sale.order_key")?;
    let name = name(&config);
    let parts = Parts {
        node: name.clone(),
        registry: ports.registry.clone(),
        policies: policies.clone(),
        lists: lists.clone(),
        metrics: metrics.clone(),
        keep: backing == Backing::Services,
    };
    let catalog = Arc::new(Catalog::new(ports.sales.clone()));
    Ok(Arc::new(Node {
        rollouts: Rollouts::new(&config, parts),
        buying: buying(&config, &ports, &metrics, order_key.clone(), &catalog, &name),
        name,
        catalog,
        bindings: config.policies.iter().map(Binding::from).collect(),
        sockets: Sockets::new(config.chat.sockets_max),
        switchboard: Switchboard::new(&config.chat, ports.bus.clone(), ports.vault.clone()),
        lists,
        demo: std::sync::OnceLock::new(),
        health: Health::start(dependencies),
        local_budgets: Arc::new(EmbeddedBudgets::new(Arc::new(clock::now))),
        decisions: Decisions::default(),
        drain: Drain::default(),
        order_key,
        verifier,
        jwks,
        recorder,
        metrics,
        policies,
        ports,
        config,
    }))
}

fn buying(config: &Config, ports: &Ports, metrics: &Arc<Metrics>, order_key: OrderKey, catalog: &Arc<Catalog>, name: &str) -> Buying {
    let admission = &ports.admission;
    let flags = Arc::new(Flags::new(admission.clone(), ports.bus.clone(), catalog.clone()));
    let sale = &config.sale;
    let batching = Batching { batch_max: sale.batch_max, wait: sale.batch_wait, patience: sale.patience };
    Buying {
        order_key,
        batcher: Batcher::new(admission.clone(), metrics.clone(), batching),
        borrowing: Arc::new(Borrowing::new(admission.clone(), flags.clone(), name)),
        flags,
        patience: sale.patience,
    }
}

/// Whoever shares a name shares leases and consumers, so a name that was not given is unique on this machine.
fn name(config: &Config) -> String {
    if !config.node.name.is_empty() {
        return config.node.name.clone();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "node".into());
    format!("{}-{}", host.trim(), std::process::id())
}

fn embedded() -> Ports {
    let clock: Clock = Arc::new(clock::now);
    Ports {
        admission: Arc::new(EmbeddedAdmission::new(clock.clone())),
        budgets: Arc::new(EmbeddedBudgets::new(clock.clone())),
        bus: Arc::new(EmbeddedBus::new()),
        presence: Arc::new(EmbeddedPresence::new(clock.clone())),
        notices: Arc::new(EmbeddedNotices::new(clock.clone())),
        roaming: Arc::new(EmbeddedRoaming::new(clock.clone())),
        nonces: Arc::new(EmbeddedNonces::new()),
        vault: Arc::new(Absent),
        sales: Arc::new(EmbeddedSaleLedger::new(clock.clone())),
        chats: Arc::new(EmbeddedChatLedger::new(clock)),
        registry: Arc::new(EmbeddedRegistry::new()),
    }
}

async fn services(config: &Config, metrics: &Metrics) -> anyhow::Result<(Ports, Vec<Arc<dyn Dependency>>)> {
    let redis = RedisStore::connect(&RedisSettings {
        timeout: config.redis.timeout,
        reclaim_idle: config.worker.reclaim_idle,
        wait_replicas: config.redis.wait_replicas,
        wait: config.redis.wait,
        ..RedisSettings::new(config.redis.url.expose())
    })
    .context("redis.url")?
    .on_unreplicated({
        let unreplicated = metrics.admit_unreplicated.clone();
        move || unreplicated.inc()
    });
    let nats = NatsBus::connect(NatsSettings { timeout: config.nats.timeout, ..NatsSettings::new(config.nats.url.expose()) })
        .await
        .context("nats.url")?;
    let mysql = mysql(config)?;
    let (redis, nats, mysql) = (Arc::new(redis), Arc::new(nats), Arc::new(mysql));
    let ports = Ports {
        admission: redis.clone(),
        budgets: redis.clone(),
        bus: nats.clone(),
        presence: redis.clone(),
        notices: redis.clone(),
        roaming: redis.clone(),
        nonces: redis.clone(),
        vault: Arc::new(Absent),
        sales: mysql.clone(),
        chats: mysql.clone(),
        registry: nats.clone(),
    };
    let dependencies: Vec<Arc<dyn Dependency>> = vec![Arc::new(Redis(redis)), Arc::new(Nats(nats)), Arc::new(Mysql(mysql))];
    Ok((ports, dependencies))
}

fn mysql(config: &Config) -> anyhow::Result<MysqlStore> {
    let settings = MysqlSettings {
        timeout: config.mysql.timeout,
        connections_max: config.mysql.pool_max,
        ..MysqlSettings::new(config.mysql.url.expose())
    };
    MysqlStore::connect(&settings).context("mysql.url")
}

/// Brings the tables up to date.
pub(crate) async fn migrate(config: &Config) -> anyhow::Result<()> {
    mysql(config)?.migrate().await.context("cannot migrate")
}

/// Loads every configured policy once and says how each fared.
pub(crate) fn check_policies(config: &Config) -> anyhow::Result<Vec<PolicyStatus>> {
    let metrics = Arc::new(Metrics::new().context("cannot register metrics")?);
    Ok(policies(config, Arc::new(verifier(config)?), Arc::new(lists(config)?), metrics)?.status())
}

fn verifier(config: &Config) -> anyhow::Result<Verifier> {
    let read = |file: &std::path::Path| std::fs::read_to_string(file).with_context(|| format!("tokens: cannot read {}", file.display()));
    let tokens = &config.tokens;
    let keys = match &tokens.key {
        TokenKey::Secret(secret) => Keys::Secret(secret.expose().as_bytes().to_vec()),
        TokenKey::PublicKeyFile(file) => Keys::PublicKeyPem(read(file)?),
        TokenKey::JwksFile(file) => Keys::Jwks(read(file)?),
        // Fetched when a node runs; until then every token is refused.
        TokenKey::JwksUrl(_) => Keys::None,
    };
    let settings = VerifierSettings { issuer: tokens.issuer.clone(), audience: tokens.audience.clone(), leeway: tokens.leeway, keys };
    Verifier::new(settings).context("tokens")
}

/// What the configuration says; the registry may replace it.
fn lists(config: &Config) -> anyhow::Result<Lists> {
    let lists = Lists::default();
    for (name, entries) in &config.lists {
        lists.replace(name, entries.iter().cloned()).with_context(|| format!("lists.{name}"))?;
    }
    Ok(lists)
}

fn policies(config: &Config, verifier: Arc<Verifier>, lists: Arc<Lists>, metrics: Arc<Metrics>) -> anyhow::Result<Arc<Host>> {
    let policies = config
        .policies
        .iter()
        .map(|policy| PolicySettings {
            name: policy.name.to_string(),
            plugin: policy.plugin.clone(),
            config_json: policy.config_json.clone(),
            mode: match policy.mode {
                Mode::Warm => gateway_policy::Mode::Warm,
                Mode::Fresh => gateway_policy::Mode::Fresh,
            },
            timeout: policy.timeout,
            memory_bytes_max: policy.memory_bytes_max,
            retire_after_calls: policy.retire_after_calls,
        })
        .collect();
    let settings = Settings {
        dir: config.plugins.dir.clone(),
        policies,
        instances_max: config.plugins.instances_max,
        cache_dir: Some(config.plugins.cache_dir.join("code")),
    };
    let sink = Arc::new(move |policy: &str, counter: &str, value: f64| {
        metrics.policy_counter.with_label_values(&[policy, counter]).inc_by(value);
    });
    Host::start(settings, verifier, lists, sink).context("cannot start the policy host")
}

struct Redis(Arc<RedisStore>);
struct Nats(Arc<NatsBus>);
struct Mysql(Arc<MysqlStore>);

#[async_trait]
impl Dependency for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }
    async fn ping(&self) -> Result<(), PortError> {
        self.0.ping().await
    }
}

#[async_trait]
impl Dependency for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }
    async fn ping(&self) -> Result<(), PortError> {
        self.0.ping().await
    }
}

#[async_trait]
impl Dependency for Mysql {
    fn name(&self) -> &'static str {
        "mysql"
    }
    async fn ping(&self) -> Result<(), PortError> {
        self.0.ping().await
    }
}
