//! A private deployment with one node and no worker, as `sluice bench rig` starts it.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{http, plugins};
use crate::bench::process::free_address;

/// Ends when it is dropped: its standard input closes.
pub(super) struct Deployment {
    rig: Child,
    admin: SocketAddr,
    token: String,
    config: String,
    /// The sale that was opened last; SKU and activity have different numbers.
    sale: Cell<(u64, u64)>,
    /// Where clients connect.
    pub(super) edge: SocketAddr,
    /// The node's process.
    pub(super) pid: u32,
    /// The private Redis, as host and port.
    pub(super) redis: SocketAddr,
    /// Its process.
    pub(super) redis_pid: u32,
    /// A file with tokens, one a line.
    pub(super) tokens: PathBuf,
}

impl Deployment {
    /// Starts one, on `core` only if one is named.
    pub(super) fn start(root: &Path, sluice: &Path, tokens: u32, core: Option<u32>) -> Result<Self> {
        let mut command = match core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(sluice);
                command
            }
            None => Command::new(sluice),
        };
        command.args(["bench", "rig", "--nodes", "1", "--workers", "0", "--threads", "1", "--tokens", &tokens.to_string(), "--plugins"]);
        let mut rig = command.arg(plugins(root)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start sluice bench rig")?;
        let mut line = String::new();
        BufReader::new(rig.stdout.take().context("the rig has an output")?).read_line(&mut line).context("read where the rig is")?;
        let places: Value = serde_json::from_str(&line).context("sluice bench rig did not start")?;
        let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("{value} is no text"));
        let pid = |value: &Value| value.as_u64().and_then(|pid| u32::try_from(pid).ok()).with_context(|| format!("{value} is no process"));
        let node = &places["nodes"][0];
        Ok(Self {
            rig,
            admin: text(&node["admin"])?.parse()?,
            token: text(&places["adminToken"])?,
            config: text(&places["config"])?,
            sale: Cell::new((0, 0)),
            edge: text(&node["edge"])?.parse()?,
            pid: pid(&node["pid"])?,
            redis: text(&places["redis"])?.trim_start_matches("redis://").parse()?,
            redis_pid: pid(&places["redisPid"])?,
            tokens: text(&places["tokens"])?.into(),
        })
    }

    /// Node and Redis, with all their threads, to one core.
    pub(super) fn pin(&self, core: u32) -> Result<()> {
        for pid in [self.pid, self.redis_pid] {
            let pinned =
                Command::new("taskset").args(["-a", "-c", "-p", &core.to_string(), &pid.to_string()]).stdout(Stdio::null()).status();
            ensure!(pinned.context("start taskset")?.success(), "cannot pin process {pid}");
        }
        Ok(())
    }

    /// Opens a sale of `units`; the body of an attempt at one.
    pub(super) fn open_sale(&self, units: u32) -> Result<String> {
        let sku = self.sale.get().1 + 1;
        let ask = |path: &str, body: Value| http::ask(self.admin, &self.token, "POST", path, &body.to_string());
        ask("/admin/skus", json!({ "skuId": sku.to_string(), "name": "bench", "priceCents": 100, "stock": units }))?;
        let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
        let wanted = json!({
            "title": "bench", "startAt": now - 5_000, "endAt": now + 24 * 3_600_000, "payTtlSeconds": 36_000,
            "products": [{ "skuId": sku.to_string(), "priceCents": 100, "stock": units, "perUser": 1 }],
        });
        let created = ask("/admin/activities", wanted)?;
        let activity: u64 = created["activityId"].as_str().and_then(|id| id.parse().ok()).context("an activity has an id")?;
        for step in ["publish", "preheat"] {
            ask(&format!("/admin/activities/{activity}/{step}"), json!({}))?;
        }
        self.sale.set((activity, sku));
        Ok(json!({ "activityId": activity.to_string(), "skuId": sku.to_string(), "qty": 1 }).to_string())
    }

    /// Events of the last sale that wait to be written.
    pub(super) fn events_waiting(&self) -> Result<u32> {
        Ok(self.redis_cli(&["XLEN", &self.key("events")])?.trim().parse()?)
    }

    /// Bytes that Redis has in use.
    pub(super) fn used_memory(&self) -> Result<f64> {
        let info = self.redis_cli(&["INFO", "memory"])?;
        let bytes = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
        bytes.context("INFO names no used_memory")
    }

    /// Bytes of the last sale's buyers and events.
    pub(super) fn key_memory(&self) -> Result<f64> {
        let bytes = |name| -> Result<f64> { Ok(self.redis_cli(&["MEMORY", "USAGE", &self.key(name), "SAMPLES", "0"])?.trim().parse()?) };
        Ok(bytes("buyers")? + bytes("events")?)
    }

    /// A worker of this deployment, which ends when it is dropped.
    pub(super) fn worker(&self, sluice: &Path) -> Result<Worker> {
        let admin = free_address()?;
        let mut command = Command::new(sluice);
        command.args(["worker", "--config", &self.config]).env("RUST_LOG", "error");
        command.env("SLUICE__NODE__NAME", "worker-0").env("SLUICE__ADMIN__LISTEN", admin.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("start sluice worker")?;
        Ok(Worker { child, admin })
    }

    fn key(&self, name: &str) -> String {
        let (activity, sku) = self.sale.get();
        format!("seckill:{{{activity}:{sku}}}:{name}")
    }

    fn redis_cli(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-h", &self.redis.ip().to_string(), "-p", &self.redis.port().to_string()]).args(arguments);
        let output = command.output().context("start redis-cli")?;
        ensure!(output.status.success(), "redis-cli {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        drop(self.rig.stdin.take());
        let _ = self.rig.wait();
    }
}

/// A running worker.
pub(super) struct Worker {
    child: Child,
    admin: SocketAddr,
}

impl Worker {
    /// Orders it has written; none before it listens.
    pub(super) fn written(&self) -> f64 {
        http::metric(self.admin, "sluice_orders_persisted_total").unwrap_or(0.0)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
