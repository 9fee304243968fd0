//! `sluice dev`: everything in one process on in-memory ports, with a demo sale that is open now.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use gateway_core::id::{Lot, PrincipalId, ShopId, SkuId};
use gateway_core::principal::Role;
use gateway_core::sale::order_no::order_no;
use gateway_core::sale::{CreateOutcome, NewActivity, NewProduct, PublishOutcome, SkuUpsert};

use crate::cli::load;
use crate::cli::run::{self, Process};
use crate::node::{Demo, Node};
use crate::sale::desk::Desk;
use crate::sale::keeper;
use crate::token::{Grant, MintError, mint};
use crate::wiring::{self, Backing};
use crate::{clock, telemetry, worker};

/// The configuration that is built in; `--config` reads another.
const BUILT_IN: &str = include_str!("../../../config/dev.toml");
/// Units of the demo sale.
const DEMO_STOCK: u32 = 100;
/// How long the demo sale runs.
const DEMO_OPEN: Duration = Duration::from_secs(2 * 3_600);

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where clients connect; port 0 picks a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where operators connect; port 0 picks a free one.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// Adds a listener that echoes every WebSocket message, for the RFC 6455 suite.
    #[arg(long, value_name = "ADDR")]
    echo: Option<SocketAddr>,
    /// A configuration file instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let mut overrides = Vec::new();
    for (key, value) in [("EDGE__LISTEN", options.listen), ("ADMIN__LISTEN", options.admin), ("EDGE__ECHO", options.echo)] {
        if let Some(address) = value {
            overrides.push((format!("SLUICE__{key}"), address.to_string()));
        }
    }
    let config = match &options.config {
        Some(file) => load::config(file, &overrides)?,
        None => load::parse("config/dev.toml", BUILT_IN, &overrides)?,
    };
    run::runtime(&config)?.block_on(async {
        telemetry::start_logging(config.log)?;
        let node = wiring::node(config, Backing::Embedded).await?;
        open_demo_sale(&node).await?;
        let working = tokio::spawn(worker::run(node.clone()));
        let process = Process::start(node.clone()).await?;
        banner(&node, &process)?;
        process.until_stopped().await?;
        let _ = tokio::time::timeout(node.config.node.drain, working).await;
        Ok(())
    })
}

async fn open_demo_sale(node: &Arc<Node>) -> anyhow::Result<()> {
    let sales = &*node.ports.sales;
    let sku = SkuId(1001);
    let start = clock::now();
    let title = "今晚八点 · Tonight's drop".to_owned();
    sales
        .upsert_sku(&SkuUpsert {
            sku,
            name: "降噪头戴耳机 Noise-cancelling headphones".into(),
            price_cents: 29_900,
            add_stock: 10 * DEMO_STOCK,
        })
        .await?;
    let activity = NewActivity {
        title: title.clone(),
        start,
        end: start.plus(DEMO_OPEN),
        pay_ttl_s: 1_800,
        products: vec![NewProduct { sku, price_cents: 9_900, stock: DEMO_STOCK, per_user: 2, shards: 1 }],
    };
    let CreateOutcome::Created(id) = sales.create_activity(&activity).await? else {
        bail!("the demo SKU is missing");
    };
    if sales.publish(id).await? != PublishOutcome::Published {
        bail!("the demo activity cannot be published");
    }
    let record = sales.activity(id).await?.context("the demo activity is missing")?;
    let desk = Desk::of(node);
    for lot in &record.products {
        keeper::preheat(&desk, lot).await?;
    }
    node.catalog.refresh().await?;
    let lot = Lot { activity: id, sku };
    // Set once, before any listener accepts.
    let _ = node.demo.set(Demo { lot, shop: node.config.chat.default_shop, original_price_cents: 29_900, title });
    Ok(())
}

fn banner(node: &Node, process: &Process) -> anyhow::Result<()> {
    let now = clock::now();
    let token = |id: &str, role, shop: Option<ShopId>| -> anyhow::Result<String> {
        let grant = Grant { id: PrincipalId::parse(id)?, role, shop, scope: String::new(), ttl: Duration::from_secs(12 * 3_600) };
        match mint(&node.config.tokens, &grant, now) {
            // Whoever has an issuer of tokens has tokens.
            Err(MintError::NoSecret) => Ok("TOKEN".to_owned()),
            minted => Ok(minted?),
        }
    };
    let user = token("alice", Role::User, None)?;
    let agent = token("a1", Role::Agent, Some(node.config.chat.default_shop))?;
    let demo = node.demo.get().context("the demo sale is open")?;
    let scheme = if node.config.edge.tls.is_some() { "https" } else { "http" };
    let edge = format!("{scheme}://{}", process.edge);
    let admin = process.admin;
    let (activity, sku) = (demo.lot.activity, demo.lot.sku);
    let order_no = order_no(&node.order_key, demo.lot, &PrincipalId::parse("alice")?, 0);
    let text = format!(
        "
Sluice is up. Everything is in memory: its data ends with this process.

  shop         {edge}/
  agent desk   {edge}/desk
  another      {edge}/desk?agent=a2
  admin        http://{admin}/readyz   (token: {admin_token})

  user token   {user}
  agent token  {agent}

Try it: buy one, ask what became of it, look at the sale.

  curl -si {edge}/api/seckill/buy -H 'Authorization: Bearer {user}' -H 'Content-Type: application/json' -d '{{\"activityId\":\"{activity}\",\"skuId\":\"{sku}\",\"qty\":1}}'

  curl -s {edge}/api/seckill/result/{order_no} -H 'Authorization: Bearer {user}'

  curl -s http://{admin}/admin/activities/{activity} -H 'Authorization: Bearer {admin_token}'

Stop it with Ctrl-C.
",
        admin_token = node.config.admin.token.expose(),
    );
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")
}
