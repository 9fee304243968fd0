//! `[plugins]`, `[[policies]]` and `[lists]`: which policies run where, and what their failures mean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::section::Section;
use super::syntax;
use crate::id::ShopId;
use crate::policy::condition::{Condition, HeaderTest};
use crate::principal::Role;

/// Where plugins come from and how many may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugins {
    /// The folder of `<plugin>.wasm` files.
    pub dir: PathBuf,
    /// Most guest instances alive at once, over all policies.
    pub instances_max: u32,
    /// The folder of the public keys whose bundles are accepted: `*.pub`, one key each.
    pub keys_dir: PathBuf,
    /// The folder for what this node keeps: the last good bundles and compiled code. Nobody else may read or write it.
    pub cache_dir: PathBuf,
}

impl Plugins {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            dir: section.text("dir", "target/plugins").into(),
            instances_max: section.number("instances_max", 200, 1..=10_000),
            keys_dir: section.text("keys_dir", "config/keys").into(),
            cache_dir: section.text("cache_dir", "target/plugin-cache").into(),
        }
    }
}

/// A rule in force: a plugin, its configuration, where it applies and what its failure means. The order of policies in
/// the file is the order of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name in decision records and metrics.
    pub name: Arc<str>,
    /// The plugin's file name without `.wasm`.
    pub plugin: String,
    /// Requests whose path begins so; `/api/` matches `/api/x` and not `/api`.
    pub prefixes: Vec<String>,
    /// Requests with exactly this path.
    pub exact: Vec<String>,
    /// When it applies on those paths.
    pub condition: Condition,
    /// Whether its verdicts have any effect.
    pub enforce: bool,
    /// Which generation judges the messages of an open socket.
    pub sockets: SocketRule,
    /// Whether an instance serves more than one call.
    pub mode: Mode,
    /// Time one call may take.
    pub timeout: Duration,
    /// Most bytes of memory of one instance.
    pub memory_bytes_max: usize,
    /// Calls after which a warm instance is replaced.
    pub retire_after_calls: u32,
    /// What happens when there is no verdict.
    pub fail: FailPolicy,
    /// What the guest is configured with: a JSON object as text.
    pub config_json: String,
}

/// Life of a guest instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reused until it is retired.
    Warm,
    /// One call, then gone.
    Fresh,
}

/// Which generation of a policy judges the messages of an open socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRule {
    /// The one that is live when a message comes.
    NextMessage,
    /// The one that was live when the socket was opened.
    Pin,
}

/// What happens when a policy gives no verdict, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailPolicy {
    /// No generation could be loaded.
    pub missing: OnFault,
    /// The guest trapped.
    pub trap: OnFault,
    /// The guest used up its time.
    pub timeout: OnFault,
    /// No instance was free in time.
    pub overload: OnFault,
    /// The answer broke a rule of the host.
    pub bad_verdict: OnFault,
    /// The budgets it charges cannot be reached.
    pub budgets: OnFault,
}

/// What stands in for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFault {
    /// The request goes on.
    Open,
    /// The request is refused.
    Closed,
}

/// Reads every policy, in chain order.
pub(super) fn policies(root: &mut Section<'_>) -> Vec<Policy> {
    let mut names = BTreeSet::new();
    root.sections("policies").into_iter().filter_map(|section| Policy::read(section, &mut names)).collect()
}

impl Policy {
    fn read(mut section: Section<'_>, names: &mut BTreeSet<String>) -> Option<Self> {
        const PATH: &str = "an absolute path without `..`, `//` and percent signs, e.g. \"/api/\"";
        let name = section.required("name", syntax::LABEL, syntax::label);
        if let Some(name) = name.as_ref().filter(|name| !names.insert((*name).clone())) {
            section.blame(
                "name",
                format!("\"{name}\" is taken by another policy"),
                "give each policy a name of its own; `plugin` may repeat",
            );
        }
        let plugin = section.optional("plugin", syntax::LABEL, syntax::label).or_else(|| name.clone());
        let prefixes = section.list("prefixes", PATH, syntax::path);
        let exact = section.list("exact", PATH, syntax::path);
        if prefixes.is_empty() && exact.is_empty() {
            section.blame("prefixes", "names no path, and neither does `exact`", "say where the policy applies; \"/\" is everywhere");
        }
        let mode = section.choice("mode", Mode::Warm, &[("warm", Mode::Warm), ("fresh", Mode::Fresh)]);
        let timeout = section.millis("timeout_ms", 20, 1..=10_000);
        let memory_bytes_max = section.number("memory_mb", 16_usize, 1..=1_024) * 1_048_576;
        let retire_after_calls = section.number("retire_after_calls", 10_000, 1..=100_000_000);
        let condition = condition(section.section("when"));
        let enforce = section.flag("enforce", true);
        let sockets =
            section.choice("sockets", SocketRule::NextMessage, &[("next-message", SocketRule::NextMessage), ("pin", SocketRule::Pin)]);
        let fail = FailPolicy::read(section.section("fail"));
        let config_json = section.json("config");
        Some(Self {
            name: name?.into(),
            plugin: plugin?,
            prefixes,
            exact,
            condition,
            enforce,
            sockets,
            mode,
            timeout,
            memory_bytes_max,
            retire_after_calls,
            fail: fail?,
            config_json,
        })
    }
}

fn condition(mut section: Section<'_>) -> Condition {
    let shop = |text: &str| ShopId::parse(text).ok().filter(|shop| shop.0 > 0);
    Condition {
        methods: section.list("methods", "methods in upper case, e.g. \"POST\"", syntax::method),
        headers: section.list(
            "headers",
            "header names in lower case, with or without a value: \"x-beta\", \"x-beta=1\"",
            HeaderTest::parse,
        ),
        roles: section.list("roles", "\"user\", \"agent\" or \"admin\"", Role::parse),
        scopes: section.list("scopes", "scopes without spaces", |text| (!text.is_empty() && !text.contains(' ')).then(|| text.to_owned())),
        shops: section.list("shops", "shop ids as text, e.g. \"7\"", shop),
        percent: section.optional_number("percent", 1..=100),
    }
}

impl FailPolicy {
    fn read(mut section: Section<'_>) -> Option<Self> {
        let mut read = |key| section.required_choice(key, &[("open", OnFault::Open), ("closed", OnFault::Closed)]);
        let (missing, trap, timeout) = (read("missing"), read("trap"), read("timeout"));
        let (overload, bad_verdict, budgets) = (read("overload"), read("bad_verdict"), read("budgets"));
        Some(Self { missing: missing?, trap: trap?, timeout: timeout?, overload: overload?, bad_verdict: bad_verdict?, budgets: budgets? })
    }
}

/// Reads the lists that policies look keys up in.
pub(super) fn lists(root: &mut Section<'_>) -> BTreeMap<String, Vec<String>> {
    root.named_lists("lists")
}
