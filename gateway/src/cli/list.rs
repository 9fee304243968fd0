//! `sluice list push|show`: lists that policies look keys up in, on a running cluster.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use crate::cli::operator::{Operator, Patience, Progress, Target, Who, print, talk};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Replaces a list on every node: one entry a line.
    #[command(
        after_help = "Examples:\n  sluice list push block-users blocked.txt\n  grep -v u7 blocked.txt | sluice list push block-users -"
    )]
    Push(Push),
    /// Prints a list, one entry a line.
    #[command(after_help = "Example:\n  sluice list show block-users")]
    Show(Show),
}

#[derive(Debug, Args)]
pub(super) struct Push {
    /// The list.
    name: String,
    /// The file; - is standard input.
    file: PathBuf,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The list.
    name: String,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Push(options) => talk(push(options)),
        Command::Show(options) => talk(show(options)),
    }
}

async fn push(options: &Push) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let text = read(&options.file)?;
    let path = ["admin", "lists", &options.name];
    let answer = operator.ask_json(Method::PUT, &path, &[("by", &options.who.name())], text).await?;
    if options.target.json {
        print(&answer)?;
    } else {
        print(format!("{}: {} entries", options.name, answer["entries"]))?;
    }
    let digest: String = answer["digest"].as_str().unwrap_or_default().chars().take(12).collect();
    operator.until_every_node(&options.patience, "have it", |node| progress(node, &options.name, &digest)).await
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    }
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text).context("cannot read standard input")?;
    Ok(text)
}

fn progress(node: &Value, name: &str, digest: &str) -> Progress {
    let report = &node["lists"][name];
    match report["error"].as_str() {
        _ if report["digest"] == digest => Progress::Done,
        Some(error) if report["tried"] == digest => Progress::Failed(error.to_owned()),
        Some(_) | None => Progress::Waiting,
    }
}

async fn show(options: &Show) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let text = operator.ask(Method::GET, &["admin", "lists", &options.name], &[], Vec::new()).await?;
    if options.target.json {
        let entries: Vec<&str> = std::str::from_utf8(&text).context("the list is not text")?.lines().collect();
        return print(serde_json::json!({ "name": options.name, "entries": entries }));
    }
    std::io::stdout().write_all(&text).context("cannot print")
}
