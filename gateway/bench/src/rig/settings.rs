//! The configuration of a rig's processes: the chain of the shipped one, with ceilings that one address running a whole sale
//! does not reach. The policies judge every attempt and refuse none.

use std::path::Path;

use anyhow::ensure;
use gateway_testkit::services::Services;

use super::Shape;

/// The policies of the chain.
const PLUGINS: [&str; 3] = ["jwt-auth", "rate-limit", "anti-fraud"];

/// Token of the admin listeners. They are on loopback and end with the run.
pub const ADMIN_TOKEN: &str = "an-admin-token-of-a-bench";

const CLOSED: &str =
    r#"{ missing = "closed", trap = "closed", timeout = "closed", overload = "closed", bad_verdict = "closed", budgets = "closed" }"#;

/// Every policy of the chain has to be there: a node without one refuses everybody, which a load would take for an answer.
pub(super) fn check_plugins(folder: &Path) -> anyhow::Result<()> {
    for name in PLUGINS {
        let file = folder.join(format!("{name}.wasm"));
        ensure!(file.is_file(), "{} is missing: build the policies with `cargo xtask plugins`, or say --plugins", file.display());
    }
    Ok(())
}

/// Leases and claims are short, so that a run with faults does not wait for the patience that suits production.
pub(super) fn text(shape: &Shape, services: &Services) -> String {
    format!(
        r#"
node.threads = {threads}
node.drain_ms = 4000
edge.listen = "127.0.0.1:0"
edge.keepalive_requests_max = 1000000
admin.listen = "127.0.0.1:0"
admin.token = "{ADMIN_TOKEN}"
tokens.secret = "a-secret-of-a-bench-that-signs-tokens"
sale.order_key = "a-key-of-a-bench-that-makes-order-numbers"
sale.catalog_refresh_ms = 200
worker.reclaim_idle_ms = 1000
worker.lease_ms = 2000
worker.reconcile_ms = 1000
plugins.dir = "{plugins}"
redis.url = "{redis}"
nats.url = "{nats}"
mysql.url = "{mysql}"

[[policies]]
name = "jwt-auth"
timeout_ms = 2000
prefixes = ["/api/", "/ws/", "/im/"]
fail = {CLOSED}

[[policies]]
name = "rate-limit"
timeout_ms = 2000
prefixes = ["/api/"]
fail = {CLOSED}
[[policies.config.budgets]]
name = "per-user"
key = "user"
fallback = "ip"
limit = 1000
window_ms = 1000
scope = "cluster"
[[policies.config.budgets]]
name = "per-ip"
key = "ip"
limit = 1000000
window_ms = 1000
scope = "node"

[[policies]]
name = "anti-fraud"
timeout_ms = 2000
exact = ["/api/seckill/buy"]
fail = {CLOSED}
config = {{ network_limit = 1000000, network_window_ms = 1000 }}
"#,
        threads = shape.threads,
        plugins = shape.plugins.display(),
        redis = services.redis.url(),
        nats = services.nats.url(),
        mysql = services.mariadb.url(),
    )
}
