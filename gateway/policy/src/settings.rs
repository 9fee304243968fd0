//! What an operator says about policies, and why a host cannot start with it.

use std::path::PathBuf;
use std::time::Duration;

/// Where plugins lie and which policies they serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of `<plugin>.wasm`; watched for changes, created when it is not there.
    pub dir: PathBuf,
    /// Every policy of the node, each under its own name.
    pub policies: Vec<PolicySettings>,
    /// Most guest instances alive at once, over all policies; at least 1. Each holds address space for 4 GiB, but only the
    /// memory it touches.
    pub instances_max: u32,
    /// Where compiled code is kept between starts; `None` keeps none. Made when it is not there; refused when others may
    /// write to it.
    pub cache_dir: Option<PathBuf>,
}

/// A plugin in one role, with one configuration. One plugin may serve several policies.
#[derive(Debug, Clone)]
pub struct PolicySettings {
    /// The policy's name in routes, metrics and decision records.
    pub name: String,
    /// Its plugin, the file `<dir>/<plugin>.wasm`.
    pub plugin: String,
    /// What `configure` is called with: a JSON document.
    pub config_json: String,
    /// Whether instances are used again.
    pub mode: Mode,
    /// Time one call may run, and, apart from that, wait for an instance; making one counts as running.
    pub timeout: Duration,
    /// Most linear memory of one instance, in bytes.
    pub memory_bytes_max: usize,
    /// Calls after which a warm instance is replaced; bounds what a leaking guest can hold.
    pub retire_after_calls: u32,
}

impl PolicySettings {
    /// A policy with the defaults of the configuration file: warm, 20 ms, 16 MiB, 10,000 calls.
    #[must_use]
    pub fn new(name: &str, plugin: &str, config_json: &str) -> Self {
        Self {
            name: name.to_owned(),
            plugin: plugin.to_owned(),
            config_json: config_json.to_owned(),
            mode: Mode::Warm,
            timeout: Duration::from_millis(20),
            memory_bytes_max: 16 << 20,
            retire_after_calls: 10_000,
        }
    }
}

/// How instances live. The same question gets the same verdict either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Kept after a call and used again; replaced after `retire_after_calls`, a trap, a timeout or a refused allocation.
    Warm,
    /// Made for one call. Slower, and nothing a guest remembers survives.
    Fresh,
}

/// Why the host could not start. A plugin that is missing or broken is not among the reasons: its policy answers with a
/// fault, and the fail policy of each route decides.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The settings contradict themselves.
    #[error("policies: {0}")]
    Settings(String),
    /// wasmtime refused the machine or the limits.
    #[error("policies: the engine does not start (is the address space limited? it reserves 4 GiB per instance)")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The plugin folder can neither be read nor made.
    #[error("policies: open the plugin folder {}", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The folder for compiled code cannot be used, or is not private.
    #[error("policies: use the folder for compiled code {}", dir.display())]
    Cache {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The plugin folder cannot be watched.
    #[error("policies: watch the plugin folder {}", dir.display())]
    Watch {
        /// The folder.
        dir: PathBuf,
        /// What the watcher said; often a limit of `fs.inotify`.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A thread could not be started.
    #[error("policies: start the {thread} thread")]
    Thread {
        /// Which one.
        thread: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl Settings {
    /// Refuses what could not work, before anything is started.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        let refuse = |problem: String| Err(HostError::Settings(problem));
        if self.instances_max == 0 {
            return refuse("instances_max is at least 1".to_owned());
        }
        for (index, policy) in self.policies.iter().enumerate() {
            let name = &policy.name;
            if name.is_empty() || self.policies[..index].iter().any(|earlier| earlier.name == *name) {
                return refuse(format!("the name {name:?} is empty or taken"));
            }
            // The plugin becomes a file name below `dir`.
            if policy.plugin.is_empty() || !policy.plugin.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
                return refuse(format!("{name}: the plugin {:?} is not [A-Za-z0-9_-]+", policy.plugin));
            }
            if policy.timeout.is_zero() || policy.memory_bytes_max == 0 || policy.retire_after_calls == 0 {
                return refuse(format!("{name}: timeout, memory and calls are above zero"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> bool {
        let policies = vec![PolicySettings::new("a", "p", "{}"), PolicySettings::new("b", "p", "{}")];
        let mut settings = Settings { dir: PathBuf::new(), policies, instances_max: 1, cache_dir: None };
        change(&mut settings);
        settings.check().is_err()
    }

    #[test]
    fn refuses_settings_that_cannot_work() {
        assert!(!refused(|_| ()));
        assert!(refused(|s| s.instances_max = 0));
        assert!(refused(|s| s.policies[1].name = "a".to_owned()));
        assert!(refused(|s| s.policies[1].name.clear()));
        for plugin in ["", "../up", "a/b", "a.wasm"] {
            assert!(refused(|s| s.policies[0].plugin = plugin.to_owned()), "{plugin}");
        }
        assert!(refused(|s| s.policies[0].timeout = Duration::ZERO));
        assert!(refused(|s| s.policies[0].memory_bytes_max = 0));
        assert!(refused(|s| s.policies[0].retire_after_calls = 0));
    }
}
