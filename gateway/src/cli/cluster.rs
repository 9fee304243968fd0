//! `sluice plugin push|list|rollout|promote|rollback`: a plugin's way onto a running cluster, and back.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::operator::{Operator, Patience, Progress, Target, Who, print, talk};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Stores a signed bundle in the cluster's registry, and waits until every node has it and trusts it.
    #[command(
        after_help = "Examples:\n  sluice plugin push demo\n  sluice plugin push demo/demo.bundle --admin http://10.0.0.7:9090 --token …"
    )]
    Push(Push),
    /// What runs, what is on trial, and which versions there are.
    #[command(after_help = "Example:\n  sluice plugin list")]
    List(List),
    /// Puts a version on trial: as a shadow, whose verdicts are only compared, or as a canary, which judges some of the users.
    #[command(
        after_help = "Examples:\n  sluice plugin rollout demo --mode shadow\n  sluice plugin rollout demo --mode canary --tail 0-4\n  sluice plugin rollout demo --mode canary --percent 10 --version 0123456789ab"
    )]
    Rollout(Rollout),
    /// Makes the version on trial the live one, for everybody.
    #[command(after_help = "Example:\n  sluice plugin promote demo")]
    Promote(Promote),
    /// Ends the trial; without one, goes back to the version before.
    #[command(after_help = "Example:\n  sluice plugin rollback demo --why \"refuses too many\"")]
    Rollback(Rollback),
}

#[derive(Debug, Args)]
pub(super) struct Push {
    /// A plugin's folder, in which `sluice plugin sign` left NAME.bundle, or a bundle.
    #[arg(value_name = "NAME|FILE.bundle")]
    what: PathBuf,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Asked beside the live version; nothing but a comparison comes of it.
    Shadow,
    /// Judges the users that --tail or --percent names.
    Canary,
}

#[derive(Debug, Args)]
pub(super) struct Rollout {
    /// The plugin.
    name: String,
    /// The beginning of a version's digest, at least 8 digits. Default: the newest that was pushed.
    #[arg(long, value_name = "DIGEST", default_value = "latest")]
    version: String,
    /// How it is tried.
    #[arg(long)]
    mode: Mode,
    /// A canary for users whose id ends in one of these digits, such as 0-4 or 1,3,7-9.
    #[arg(long, value_name = "DIGITS", conflicts_with = "percent")]
    tail: Option<String>,
    /// A canary for this part of the users, 1 to 100, which stays the same and only grows when the number does.
    #[arg(long, value_name = "PERCENT")]
    percent: Option<u8>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

/// What ends the trial by itself. What is not given has the node's default.
#[derive(Debug, Args)]
#[command(next_help_heading = "What ends the trial by itself")]
struct Limits {
    /// Calls before rates are judged. Default: 100.
    #[arg(long, value_name = "CALLS")]
    min_calls: Option<u64>,
    /// Part of its calls that may trap or break a rule, 0 to 1. Default: 0.01.
    #[arg(long, value_name = "RATE")]
    trap_rate: Option<f64>,
    /// Part of its calls that may run out of time, 0 to 1. Default: 0.01.
    #[arg(long, value_name = "RATE")]
    timeout_rate: Option<f64>,
    /// How far the part it refuses may be from the live version's, 0 to 1. Default: 0.1.
    #[arg(long, value_name = "RATE")]
    refusal_shift: Option<f64>,
    /// How many times the live version's p99 its own may be. Default: 4.
    #[arg(long, value_name = "FACTOR")]
    p99_factor: Option<f64>,
}

#[derive(Debug, Args)]
pub(super) struct Promote {
    /// The plugin.
    name: String,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {
    /// The plugin.
    name: String,
    /// Why, for its history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

/// Runs one of them to its end.
pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Push(options) => talk(push(options)),
        Command::List(options) => talk(list(options)),
        Command::Rollout(options) => talk(roll_out(options)),
        Command::Promote(Promote { name, who, patience, target }) => {
            talk(step(target, patience, name, "promote", &json!({ "by": who.name() }), "run it for everybody"))
        }
        Command::Rollback(Rollback { name, why, who, patience, target }) => {
            talk(step(target, patience, name, "rollback", &json!({ "by": who.name(), "why": why }), "are back"))
        }
    }
}

async fn push(options: &Push) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let file = bundle_of(&options.what)?;
    let bundle = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let answer = operator.ask_json(Method::POST, &["admin", "plugins"], &[("by", &options.who.name())], bundle).await?;
    let plugin = answer["plugin"].as_str().unwrap_or_default();
    let version = short(&answer["version"]);
    if options.target.json {
        print(&answer)?;
    } else {
        let known = if answer["new"] == true { "pushed" } else { "already there" };
        print(format!("{plugin} {version} ({}) {known}", answer["label"]["version"].as_str().unwrap_or_default()))?;
    }
    let revision = answer["revision"].as_u64().unwrap_or(0);
    operator.until_every_node(&options.patience, "have it and trust it", |node| progress(node, plugin, revision)).await
}

/// The bundle that `what` names: itself, or the one `sign` left in the folder.
fn bundle_of(what: &Path) -> anyhow::Result<PathBuf> {
    if what.is_file() {
        return Ok(what.to_owned());
    }
    let name = what.file_name().with_context(|| format!("{} names no plugin", what.display()))?;
    let file = what.join(name).with_extension("bundle");
    if !file.is_file() {
        bail!("{} is not there; `sluice plugin sign {}` makes it", file.display(), what.display());
    }
    Ok(file)
}

async fn roll_out(options: &Rollout) -> anyhow::Result<()> {
    let limits = &options.limits;
    let given = [
        ("minCalls", limits.min_calls.map(Value::from)),
        ("trapRate", limits.trap_rate.map(Value::from)),
        ("timeoutRate", limits.timeout_rate.map(Value::from)),
        ("refusalShift", limits.refusal_shift.map(Value::from)),
        ("p99Factor", limits.p99_factor.map(Value::from)),
    ];
    let limits: serde_json::Map<String, Value> = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let mode = match options.mode {
        Mode::Shadow => "shadow",
        Mode::Canary => "canary",
    };
    let body = json!({
        "version": options.version, "mode": mode, "tail": options.tail, "percent": options.percent, "limits": limits,
        "by": options.who.name(),
    });
    step(&options.target, &options.patience, &options.name, "rollout", &body, "have it on trial").await
}

async fn step(target: &Target, patience: &Patience, name: &str, step: &str, body: &Value, what: &str) -> anyhow::Result<()> {
    let operator = Operator::new(target)?;
    let answer = operator.ask_json(Method::POST, &["admin", "plugins", name, step], &[], body.to_string().into_bytes()).await?;
    if target.json {
        print(&answer)?;
    } else {
        let said = answer["history"].as_array().and_then(|history| history.last()).map(|step| &step["what"]);
        print(format!("{name}: {}", said.and_then(Value::as_str).unwrap_or("done")))?;
    }
    let revision = answer["revision"].as_u64().unwrap_or(0);
    operator.until_every_node(patience, what, |node| progress(node, name, revision)).await
}

/// How `node` is getting on with the record of `plugin` at `revision`.
fn progress(node: &Value, plugin: &str, revision: u64) -> Progress {
    let report = &node["plugins"][plugin];
    if report.is_null() {
        return Progress::Aside;
    }
    let at = |key: &str| report[key].as_u64().unwrap_or(0);
    match report["error"].as_str() {
        Some(error) if at("tried") >= revision => Progress::Failed(error.to_owned()),
        None if at("revision") >= revision => Progress::Done,
        Some(_) | None => Progress::Waiting,
    }
}

async fn list(options: &List) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let mut answer = operator.ask_json(Method::GET, &["admin", "plugins"], &[], Vec::new()).await?;
    let nodes = operator.ask_json(Method::GET, &["admin", "nodes"], &[], Vec::new()).await?;
    if options.target.json {
        answer["nodes"] = nodes["nodes"].clone();
        answer["summary"] = nodes["summary"].clone();
        return print(&answer);
    }
    for plugin in answer["plugins"].as_array().into_iter().flatten() {
        let trial = &plugin["candidate"];
        let on_trial = if trial.is_null() {
            String::new()
        } else {
            let cohort = trial["cohort"].as_str().map(|cohort| format!(" for {cohort}")).unwrap_or_default();
            format!(", on trial {} as {}{cohort}", short(&trial["version"]), trial["mode"].as_str().unwrap_or_default())
        };
        print(format!("{}: live {}{on_trial}", plugin["plugin"].as_str().unwrap_or_default(), short(&plugin["live"])))?;
        for version in plugin["versions"].as_array().into_iter().flatten() {
            let text = |key: &str| version[key].as_str().unwrap_or_default();
            print(format!("  {}  {}  pushed {} by {}", short(&version["version"]), text("author"), text("pushed"), text("by")))?;
        }
    }
    for line in nodes["summary"].as_array().into_iter().flatten() {
        print(line.as_str().unwrap_or_default())?;
    }
    for node in nodes["nodes"].as_array().into_iter().flatten() {
        let errors =
            node["plugins"].as_object().into_iter().flatten().filter_map(|(plugin, report)| Some((plugin, report["error"].as_str()?)));
        for (plugin, error) in errors {
            print(format!("{} cannot follow {plugin}: {error}", node["name"].as_str().unwrap_or("?")))?;
        }
    }
    if let Some(error) = answer["registry"]["error"].as_str() {
        print(error)?;
    }
    Ok(())
}

/// As many digits of a digest as tell versions apart.
fn short(digest: &Value) -> String {
    digest.as_str().unwrap_or_default().chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_done_when_it_follows_the_record_and_failed_when_it_tried_and_could_not() {
        let node = |revision: u64, tried: u64, error: Option<&str>| json!({ "plugins": { "demo": { "revision": revision, "tried": tried, "error": error } } });
        for (revision, tried, error, wanted) in [
            (7, 7, None, Progress::Done),
            (9, 9, None, Progress::Done),
            (6, 7, None, Progress::Waiting),
            (6, 6, Some("an error of before"), Progress::Waiting),
            (6, 7, Some("no key"), Progress::Failed("no key".into())),
            (7, 7, Some("newest"), Progress::Failed("newest".into())),
        ] {
            assert_eq!(progress(&node(revision, tried, error), "demo", 7), wanted, "{revision} {tried} {error:?}");
        }
        assert_eq!(progress(&node(0, 0, None), "other", 7), Progress::Aside);
    }

    #[test]
    fn a_bundle_is_a_file_or_lies_in_the_folder_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = folder.path().join("demo");
        assert!(bundle_of(&plugin).is_err());
        std::fs::create_dir(&plugin).unwrap();
        let error = bundle_of(&plugin).unwrap_err().to_string();
        assert!(error.contains("sluice plugin sign"), "{error}");
        let bundle = plugin.join("demo.bundle");
        std::fs::write(&bundle, "x").unwrap();
        assert_eq!(bundle_of(&plugin).unwrap(), bundle);
        assert_eq!(bundle_of(&bundle).unwrap(), bundle);
    }
}
