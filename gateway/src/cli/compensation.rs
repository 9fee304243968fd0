//! `sluice compensation …`: what could not be done, and what an operator decides about it.

use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::operator::{Operator, Target, Who, plain, print, talk};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Lists what waits for a decision.
    #[command(after_help = "Example:\n  sluice compensation list\n  sluice compensation list --all --json")]
    List(List),
    /// Tries it again: a refund is due at once; a chat message is queued again; counters of MySQL are mended from the orders, Redis
    /// from MySQL.
    #[command(after_help = "Example:\n  sluice compensation retry 12 --note \"the payment service is back\"")]
    Retry(Decide),
    /// Dismisses it: it was seen to by hand, or does not matter.
    #[command(after_help = "Example:\n  sluice compensation discard 12 --note \"refunded by hand, ticket 4711\"")]
    Discard(Decide),
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Decided ones too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Decide {
    /// Its number in the list.
    #[arg(value_name = "ID")]
    id: u64,
    /// Why, for whoever asks later.
    #[arg(long, default_value = "")]
    note: String,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(options) => talk(list(options)),
        Command::Retry(options) => talk(decide(options, "retry")),
        Command::Discard(options) => talk(decide(options, "discard")),
    }
}

async fn list(options: &List) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let mut after = "0".to_owned();
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let mut query = vec![("after", after.as_str())];
        if options.all {
            query.push(("all", "true"));
        }
        let mut page = operator.ask_json(Method::GET, &["admin", "compensations"], &query, Vec::new()).await?;
        let found = page["compensations"].as_array_mut().context("the answer has no compensations")?;
        if options.target.json {
            entries.append(found);
        } else {
            found.iter().try_for_each(|entry| print(line(entry)))?;
        }
        // Numbers only rise, so this ends where the list does.
        match page["next"].as_u64() {
            Some(next) => after = next.to_string(),
            None => break,
        }
    }
    if options.target.json { print(json!({ "compensations": entries })) } else { Ok(()) }
}

async fn decide(options: &Decide, step: &str) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let wish = json!({ "by": options.who.name(), "note": options.note });
    let path = ["admin", "compensations", &options.id.to_string(), step];
    let answer = operator.ask_json(Method::POST, &path, &[], wish.to_string().into()).await?;
    if options.target.json { print(answer) } else { print(line(&answer)) }
}

fn line(entry: &Value) -> String {
    let [id, state, kind, source, error] = ["id", "state", "kind", "source", "error"].map(|name| plain(&entry[name]));
    let decided = match entry["decision"].as_object() {
        Some(_) => format!(
            "  by {} at {}: {}",
            plain(&entry["decision"]["by"]),
            plain(&entry["decision"]["at"]),
            plain(&entry["decision"]["note"])
        ),
        None => String::new(),
    };
    format!("{id}  {state}  {kind} {source}  {error}{decided}")
}
