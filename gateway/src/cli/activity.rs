//! `sluice activity …`: flash sales, from the draft to the settled books, on a running cluster.

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::operator::{Operator, Target, Who, plain, print, talk};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Writes a draft, and publishes it if told to. The SKUs must be there.
    #[command(after_help = "Example:\n  sluice activity create --title \"Tonight's drop\" \\\n    \
        --start 2026-06-01T20:00:00+08:00 --end 2026-06-01T21:00:00+08:00 \\\n    \
        --product sku=1001,price=9900,stock=100,per-user=1 --publish")]
    Create(Create),
    /// Locks its units; workers pre-heat, open, close and settle it from then on.
    #[command(after_help = "Example:\n  sluice activity publish 7")]
    Publish(One),
    /// Puts its sales in force now instead of a few minutes before it starts.
    #[command(after_help = "Example:\n  sluice activity preheat 7")]
    Preheat(One),
    /// Shows where it is: phase, units, shards, and whether the books agree.
    #[command(after_help = "Example:\n  sluice activity status 7\n  sluice activity status 7 --json")]
    Status(One),
    /// Ends it before its time; it is settled when its orders are written.
    #[command(after_help = "Example:\n  sluice activity close 7")]
    Close(Step),
    /// Calls it off before it began; its units are free again.
    #[command(after_help = "Example:\n  sluice activity void 7")]
    Void(Step),
    /// Compares Redis and MySQL now. Exit code 1 when they contradict each other; the compensation list says how.
    #[command(after_help = "Example:\n  sluice activity reconcile 7")]
    Reconcile(One),
    /// Lists those that are published or closing, or were settled in the last day.
    #[command(after_help = "Example:\n  sluice activity list")]
    List(Every),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// Its title.
    #[arg(long)]
    title: String,
    /// First instant of its window: RFC 3339 with an offset, or Unix milliseconds.
    #[arg(long, value_name = "TIME")]
    start: String,
    /// First instant after its window.
    #[arg(long, value_name = "TIME")]
    end: String,
    /// How long an order may stay unpaid, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1_800)]
    pay_ttl: u16,
    /// What is sold: sku=ID,price=CENTS,stock=UNITS and per-user=UNITS (1 if not given). Once per SKU.
    #[arg(long = "product", value_name = "KEY=VALUE,…", required = true, value_parser = product)]
    products: Vec<Value>,
    /// Parts the stock of each SKU is split into, 1 to 16, when one core of Redis is not enough for it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    shards: u8,
    /// Publish it at once.
    #[arg(long)]
    publish: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The activity.
    #[arg(value_name = "ID")]
    id: u64,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Step {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, Args)]
pub(super) struct Every {
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Create(options) => talk(create(options)),
        Command::Publish(one) => talk(step(one, "publish", &[])),
        Command::Preheat(one) => talk(step(one, "preheat", &[])),
        Command::Status(one) => talk(status(one)),
        Command::Close(step) => talk(self::step(&step.one, "close", &[("by", &step.who.name())])),
        Command::Void(step) => talk(self::step(&step.one, "void", &[("by", &step.who.name())])),
        Command::Reconcile(one) => talk(reconcile(one)),
        Command::List(every) => talk(list(every)),
    }
}

/// Reads `sku=1001,price=9900,stock=100,per-user=1`.
fn product(text: &str) -> Result<Value, String> {
    let mut product = json!({});
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let name = match key.trim() {
            "sku" => "skuId",
            "price" => "priceCents",
            "stock" => "stock",
            "per-user" => "perUser",
            other => return Err(format!("{other:?} is none of sku, price, stock and per-user")),
        };
        let value: u64 = value.trim().parse().map_err(|_| format!("{part:?}: a whole number is wanted"))?;
        if !product[name].is_null() {
            return Err(format!("{key} is given twice"));
        }
        product[name] = value.into();
    }
    match ["skuId", "priceCents", "stock"].into_iter().zip(["sku", "price", "stock"]).find(|(name, _)| product[name].is_null()) {
        Some((_, key)) => Err(format!("{key} is missing")),
        None => Ok(product),
    }
}

/// A time as the API takes it; the node says what is wrong with it.
fn time(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
}

async fn create(options: &Create) -> anyhow::Result<()> {
    let operator = Operator::new(&options.target)?;
    let mut products = options.products.clone();
    for product in &mut products {
        product["shards"] = options.shards.into();
    }
    let wanted = json!({
        "title": options.title, "startAt": time(&options.start), "endAt": time(&options.end), "payTtlSeconds": options.pay_ttl,
        "products": products,
    });
    let created = operator.ask_json(Method::POST, &["admin", "activities"], &[], wanted.to_string().into()).await?;
    let id = created["activityId"].as_str().context("the answer has no activityId")?.to_owned();
    let state = if options.publish {
        let path = ["admin", "activities", &id, "publish"];
        operator.ask_json(Method::POST, &path, &[], Vec::new()).await.with_context(|| format!("activity {id} is a draft now"))?;
        "published"
    } else {
        "draft"
    };
    if options.target.json {
        return print(json!({ "activityId": id, "state": state }));
    }
    print(format!("activity {id}: {state}"))
}

async fn step(one: &One, step: &str, query: &[(&str, &str)]) -> anyhow::Result<()> {
    let operator = Operator::new(&one.target)?;
    let answer = operator.ask_json(Method::POST, &["admin", "activities", &one.id.to_string(), step], query, Vec::new()).await?;
    if one.target.json {
        return print(answer);
    }
    match answer["lots"].as_array() {
        Some(lots) => lots.iter().try_for_each(|lot| print(format!("SKU {}: {}", plain(&lot["skuId"]), plain(&lot["result"])))),
        None => print(format!("activity {}: {}", one.id, plain(&answer["state"]))),
    }
}

async fn status(one: &One) -> anyhow::Result<()> {
    let operator = Operator::new(&one.target)?;
    let activity = operator.ask_json(Method::GET, &["admin", "activities", &one.id.to_string()], &[], Vec::new()).await?;
    if one.target.json {
        return print(activity);
    }
    print(line(&activity))?;
    print(format!("  from {} to {}", plain(&activity["startAt"]), plain(&activity["endAt"])))?;
    for product in activity["products"].as_array().into_iter().flatten() {
        let sale = &product["sale"];
        print(format!(
            "  SKU {} {}: {} of {} sold, epoch {}; in Redis {}, {} left, {} events wait",
            plain(&product["skuId"]),
            plain(&product["name"]),
            plain(&product["sold"]),
            plain(&product["stock"]),
            plain(&product["epoch"]),
            sale["state"].as_str().unwrap_or("nothing"),
            sale["left"].as_u64().unwrap_or(0),
            sale["eventsWaiting"].as_u64().unwrap_or(0),
        ))?;
        let shards = product["shards"].as_array().map(Vec::as_slice).unwrap_or_default();
        for shard in shards.iter().filter(|_| shards.len() > 1) {
            let (index, left) = (plain(&shard["shard"]), shard["left"].as_u64().unwrap_or(0));
            print(format!("    shard {index}: {}, {left} left", shard["state"].as_str().unwrap_or("nothing")))?;
        }
        for (name, holds) in product["invariants"].as_object().into_iter().flatten() {
            let word = match holds.as_bool() {
                Some(true) => "holds",
                Some(false) => "DOES NOT HOLD",
                None => "not comparable while something is under way",
            };
            print(format!("    {name}: {word} {}", product["sides"][name]))?;
        }
    }
    Ok(())
}

async fn reconcile(one: &One) -> anyhow::Result<()> {
    let operator = Operator::new(&one.target)?;
    let answer = operator.ask_json(Method::POST, &["admin", "activities", &one.id.to_string(), "reconcile"], &[], Vec::new()).await?;
    let products = answer["products"].as_array().map(Vec::as_slice).unwrap_or_default();
    let broken: usize = products.iter().map(|product| product["differences"].as_array().map_or(0, Vec::len)).sum();
    if one.target.json {
        print(&answer)?;
    } else {
        for product in products {
            let sku = plain(&product["skuId"]);
            for difference in product["differences"].as_array().into_iter().flatten() {
                let name = plain(&difference["invariant"]);
                print(format!("SKU {sku}: {name}: {} expected, {} found", difference["expected"], difference["found"]))?;
            }
        }
        if broken == 0 {
            print("nothing contradicts")?;
        }
    }
    ensure!(broken == 0, "{broken} contradictions; see sluice compensation list");
    Ok(())
}

async fn list(every: &Every) -> anyhow::Result<()> {
    let operator = Operator::new(&every.target)?;
    let answer = operator.ask_json(Method::GET, &["admin", "activities"], &[], Vec::new()).await?;
    if every.target.json {
        return print(answer);
    }
    let Some(activities) = answer["activities"].as_array() else { bail!("the answer has no activities") };
    activities.iter().try_for_each(|activity| print(line(activity)))
}

fn line(activity: &Value) -> String {
    format!(
        "{}  {}  {} of {} sold  {}",
        plain(&activity["activityId"]),
        plain(&activity["phase"]),
        plain(&activity["sold"]),
        plain(&activity["stock"]),
        plain(&activity["title"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_read_in_any_order() {
        let wanted = json!({ "skuId": 1001, "priceCents": 9_900, "stock": 100, "perUser": 2 });
        assert_eq!(product("sku=1001,price=9900,stock=100,per-user=2"), Ok(wanted.clone()));
        assert_eq!(product("per-user=2, stock=100 ,price=9900,sku=1001"), Ok(wanted));
        assert_eq!(product("sku=1,price=0,stock=1"), Ok(json!({ "skuId": 1, "priceCents": 0, "stock": 1 })));
    }

    #[test]
    fn what_is_wrong_with_a_product_is_said() {
        for (text, told) in [
            ("sku=1,price=2", "stock is missing"),
            ("price=1,stock=2", "sku is missing"),
            ("sku=1,price=2,stock=many", "whole number"),
            ("sku=1,price=-2,stock=3", "whole number"),
            ("sku=1,sku=2,price=2,stock=3", "sku is given twice"),
            ("sku=1,price=2,stock=3,colour=4", "colour"),
            ("sku", "KEY=VALUE"),
            ("", "KEY=VALUE"),
        ] {
            let error = product(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_time_is_text_or_milliseconds() {
        assert_eq!(time("1780279200000"), json!(1_780_279_200_000_u64));
        assert_eq!(time("2026-06-01T10:00:00+08:00"), json!("2026-06-01T10:00:00+08:00"));
    }
}
