//! `sluice plugin replay`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use gateway_core::config::Config;
use gateway_kit::replay::{Change, Line, Replay, Summary};
use serde_json::json;

use super::print;
use crate::cli::load;

#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    /// The version to ask: a plugin's folder, or a component.
    #[arg(value_name = "FOLDER|FILE.wasm")]
    plugin: PathBuf,
    /// What nodes recorded (recording.file).
    #[arg(long, value_name = "FILE")]
    recording: PathBuf,
    /// Ask again what this policy was asked. Otherwise: every policy of the plugin.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Where the policy's configuration is: a gateway's (.toml), which also fills the lists, or the policy's own (.json).
    /// Otherwise: config.json of the folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON objects, one a line: each change, then the summary.
    #[arg(long)]
    json: bool,
}

/// What a policy is configured with.
enum Configuration {
    /// The same for every policy.
    Own(String),
    /// What a gateway says.
    Gateway(Box<Config>),
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let (plugin, file) = component(&options.plugin)?;
    let component = std::fs::read(&file)
        .with_context(|| format!("cannot read {}; `sluice plugin build` makes the component of a folder", file.display()))?;
    let configuration = Configuration::read(options)?;
    let wanted = |line: &Line| options.policy.as_ref().map_or(line.plugin == plugin, |policy| line.policy == *policy);
    let replay = Replay {
        component: &component,
        recording: &options.recording,
        wanted: &wanted,
        config: &|policy| configuration.of(policy),
        lists: configuration.lists(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let summary =
        runtime.block_on(replay.run(|change| print(&if options.json { json!({ "change": change }).to_string() } else { told(change) })))?;
    let Summary { asked, changed, others, .. } = summary;
    if asked == 0 {
        let whose = options.policy.as_ref().map_or(format!("the plugin {plugin}"), |policy| format!("the policy {policy}"));
        bail!("{} asks nothing of {whose}: its {others} lines are of others; name one with --policy", options.recording.display());
    }
    print(&if options.json { json!({ "summary": summary }).to_string() } else { summed(&summary) })?;
    if changed > 0 {
        bail!("{changed} of {asked} verdicts would be others");
    }
    Ok(())
}

/// The plugin's name and its component.
fn component(plugin: &Path) -> anyhow::Result<(String, PathBuf)> {
    let named = |path: &Path| path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
    let whole = plugin.canonicalize().with_context(|| format!("cannot find {}", plugin.display()))?;
    let name = named(&whole).with_context(|| format!("{} has no name", plugin.display()))?;
    let file = if whole.is_dir() { whole.join(&name).with_extension("wasm") } else { whole };
    Ok((name, file))
}

impl Configuration {
    fn read(options: &Options) -> anyhow::Result<Self> {
        let beside = options.plugin.join("config.json");
        match &options.config {
            Some(file) if file.extension().is_some_and(|extension| extension == "toml") => {
                Ok(Self::Gateway(Box::new(load::config(file, &[])?)))
            }
            Some(file) => Ok(Self::Own(std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?)),
            None if beside.is_file() => {
                Ok(Self::Own(std::fs::read_to_string(&beside).with_context(|| format!("cannot read {}", beside.display()))?))
            }
            None => Ok(Self::Own("{}".to_owned())),
        }
    }

    fn of(&self, policy: &str) -> anyhow::Result<String> {
        match self {
            Self::Own(config) => Ok(config.clone()),
            Self::Gateway(config) => match config.policies.iter().find(|configured| *configured.name == *policy) {
                Some(configured) => Ok(configured.config_json.clone()),
                None => bail!("the configuration has no policy {policy}; the recording has"),
            },
        }
    }

    fn lists(&self) -> BTreeMap<String, Vec<String>> {
        match self {
            Self::Own(_) => BTreeMap::new(),
            Self::Gateway(config) => config.lists.clone(),
        }
    }
}

fn told(change: &Change) -> String {
    let Change { trace_id, phase, policy, difference, old, new } = change;
    let spelt = |verdict| serde_json::to_string(verdict).unwrap_or_default();
    format!("{trace_id} {policy} {phase}: {difference}\n  old {}\n  new {}", spelt(old), spelt(new))
}

fn summed(summary: &Summary) -> String {
    let Summary { asked, changed, differences, others, unreadable } = summary;
    let why: Vec<String> = differences.iter().map(|(word, count)| format!("{word} {count}")).collect();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
    format!("{asked} asked, {changed} changed{why}; {others} of other policies, {unreadable} unreadable")
}
