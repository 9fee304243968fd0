//! Who may import whom, read off the manifests and the gateway's modules.
//!
//! The walls between crates are the compiler's; this checks that nobody opens a door by adding a line to a manifest, and
//! that the gateway's modules, which share one crate, keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

/// For each crate, what of ours and which heavy dependencies it may name.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("gateway/core", &[]),
    ("gateway/policy", &["gateway-core", "wasmtime"]),
    ("gateway/guest", &[]),
    ("gateway/kit", &["gateway-core", "gateway-guest", "gateway-policy", "tokio"]),
    ("gateway/stores", &["gateway-core", "redis", "async-nats", "sqlx"]),
    ("gateway/embedded", &["gateway-core", "tokio"]),
    ("gateway/testkit", &["gateway-core", "gateway-embedded", "tokio"]),
    // What a load needs to look past the product: the stores themselves, and nothing of ours that adapts them.
    ("gateway/bench", &["gateway-core", "gateway-testkit", "redis", "sqlx", "tokio"]),
    ("xtask", &["gateway-guest"]),
    (
        "gateway",
        &[
            "gateway-bench",
            "gateway-core",
            "gateway-kit",
            "gateway-policy",
            "gateway-stores",
            "gateway-embedded",
            "pingora-core",
            "pingora-http",
            "pingora-load-balancing",
            "pingora-proxy",
            "tokio",
            "axum",
        ],
    ),
];

/// Dependencies that draw the walls. Anything else may be named by anybody.
const GUARDED: &[&str] = &[
    "gateway-bench",
    "gateway-core",
    "gateway-guest",
    "gateway-kit",
    "gateway-policy",
    "gateway-stores",
    "gateway-embedded",
    "gateway-testkit",
    "wasmtime",
    "redis",
    "async-nats",
    "sqlx",
    "pingora-core",
    "pingora-http",
    "pingora-load-balancing",
    "pingora-proxy",
    "axum",
];

/// For each module of the gateway, the modules it may not use.
const MAY_NOT_USE: &[(&str, &[&str])] = &[
    ("routes", &["cli", "wiring", "admin", "worker", "edge", "socket", "fallback"]),
    ("sale", &["cli", "wiring", "admin", "worker", "socket", "edge", "routes"]),
    ("worker", &["cli", "wiring", "admin", "edge", "routes", "socket"]),
    ("admin", &["cli", "wiring", "worker", "edge", "routes", "socket"]),
    ("socket", &["cli", "wiring", "worker", "admin", "edge", "fallback"]),
    ("fallback", &["cli", "wiring", "worker", "admin", "edge"]),
    ("reception", &["cli", "wiring", "worker", "admin", "edge", "routes", "socket", "fallback"]),
    ("edge", &["cli", "wiring", "worker", "admin"]),
];

/// Test modules that put the real steps on ports in memory.
const IN_MEMORY_TESTS: &[&str] =
    &["reception/tests.rs", "sale/rig.rs", "socket/hub/tests.rs", "worker/chats/tests.rs", "worker/rig.rs", "worker/simulation.rs"];

/// Every arrow that runs the wrong way, as a sentence.
pub(crate) fn wrong_arrows(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (dir, allowed) in MAY_NAME {
        for name in dependencies(&root.join(dir).join("Cargo.toml"))? {
            if GUARDED.contains(&name.as_str()) && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{dir}/Cargo.toml names {name}"));
            }
        }
    }
    for (module, text) in modules(&root.join("gateway/src"))? {
        let (_, forbidden) = MAY_NOT_USE.iter().find(|(name, _)| *name == module.room).copied().unwrap_or(("", &[]));
        for name in forbidden {
            if text.contains(&format!("crate::{name}::")) || text.contains(&format!("use crate::{name};")) {
                wrong.push(format!("{} uses crate::{name}", module.file));
            }
        }
        if module.file != "wiring.rs" && !IN_MEMORY_TESTS.contains(&module.file.as_str()) {
            for adapter in ["gateway_stores", "gateway_embedded"] {
                if text.contains(adapter) {
                    wrong.push(format!("{} names {adapter}; only wiring.rs may", module.file));
                }
            }
        }
    }
    Ok(wrong)
}

fn dependencies(manifest: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("cannot parse {}", manifest.display()))?;
    Ok(table.get("dependencies").and_then(toml::Value::as_table).map(|deps| deps.keys().cloned().collect()).unwrap_or_default())
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Module {
    /// The first component of its path: the room it belongs to.
    room: String,
    file: String,
}

fn modules(src: &Path) -> Result<BTreeMap<Module, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let file = path.strip_prefix(src)?.display().to_string();
                let room = file.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
                found.insert(Module { room, file }, std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn every_arrow_runs_the_right_way() {
        assert_eq!(wrong_arrows(root()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_arrow_is_seen() {
        let temp = std::env::temp_dir().join(format!("sluice-arrows-{}", std::process::id()));
        for (dir, _) in MAY_NAME {
            std::fs::create_dir_all(temp.join(dir)).unwrap();
            std::fs::write(temp.join(dir).join("Cargo.toml"), "[dependencies]\n").unwrap();
        }
        std::fs::create_dir_all(temp.join("gateway/src/routes")).unwrap();
        std::fs::write(temp.join("gateway/core/Cargo.toml"), "[dependencies]\nredis = \"1\"\n").unwrap();
        std::fs::write(temp.join("gateway/src/routes/buy.rs"), "use crate::worker::orders;\nuse gateway_stores::Redis;\n").unwrap();
        let wrong = wrong_arrows(&temp).unwrap();
        std::fs::remove_dir_all(&temp).unwrap();
        assert_eq!(
            wrong,
            [
                "gateway/core/Cargo.toml names redis",
                "routes/buy.rs uses crate::worker",
                "routes/buy.rs names gateway_stores; only wiring.rs may",
            ]
        );
    }
}
