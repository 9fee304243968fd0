//! Configuration files of the tests: everything private, every port free, every wait short.

use std::path::PathBuf;

use anyhow::ensure;

use crate::tokens;

/// The token of the admin listener.
pub(crate) const ADMIN_TOKEN: &str = "an-admin-token-of-the-tests";

/// Which stand-in for a verdict a policy has when it cannot be asked.
pub(crate) const CLOSED: &str =
    r#"{ missing = "closed", trap = "closed", timeout = "closed", overload = "closed", bad_verdict = "closed", budgets = "closed" }"#;

/// The other one.
pub(crate) const OPEN: &str =
    r#"{ missing = "open", trap = "open", timeout = "open", overload = "open", bad_verdict = "open", budgets = "open" }"#;

/// What every process of the tests needs. Heartbeats, leases and checks are short, so that a test that kills something does
/// not wait for the patience that suits production.
pub(crate) fn base() -> anyhow::Result<String> {
    let plugins = plugins()?;
    Ok(format!(
        r#"
node.drain_ms = 4000
edge.listen = "127.0.0.1:0"
admin.listen = "127.0.0.1:0"
admin.token = "{ADMIN_TOKEN}"
tokens.secret = "{secret}"
sale.order_key = "a-key-of-the-tests-that-makes-order-numbers"
sale.catalog_refresh_ms = 200
chat.heartbeat_ms = 2000
chat.presence_ttl_ms = 6000
chat.position_check_ms = 1000
worker.reclaim_idle_ms = 1000
worker.lease_ms = 2000
worker.reconcile_ms = 500
sale.pay_grace_ms = 1000
plugins.dir = "{plugins}"
"#,
        secret = tokens::SECRET,
        plugins = plugins.display(),
    ))
}

/// The chain of the shipped development configuration, with ceilings that one address running a whole sale does not reach, and
/// time enough for a machine that runs other tests at once.
pub(crate) fn chain() -> String {
    format!(
        r#"
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
[[policies.config.budgets]]
name = "per-ip"
key = "ip"
limit = 1000000
window_ms = 1000

[[policies]]
name = "anti-fraud"
timeout_ms = 2000
exact = ["/api/seckill/buy"]
fail = {CLOSED}
config = {{ network_limit = 1000000, network_window_ms = 1000 }}
"#
    )
}

/// Where the built policies are: `SLUICE_PLUGINS_DIR`, or `target/plugins` of this repository.
pub(crate) fn plugins() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("SLUICE_PLUGINS_DIR").map_or_else(|| repository().join("target/plugins"), PathBuf::from);
    for name in ["jwt-auth", "rate-limit", "anti-fraud", "conformance"] {
        let file = folder.join(format!("{name}.wasm"));
        ensure!(file.is_file(), "{} is missing: build the policies with `cargo xtask plugins`", file.display());
    }
    Ok(folder)
}

/// The root of this repository.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
