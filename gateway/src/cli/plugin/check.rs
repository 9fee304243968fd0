//! `sluice plugin check`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use gateway_core::policy::bundle::COMPONENT_BYTES_MAX;
use gateway_kit::Plugin;
use gateway_kit::check::{self, Difference, Report};

use super::{Folder, list, print};

/// A node answers from memory or disk; a component of the largest size takes a moment on a slow link.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    folder: Folder,
    /// The live component, to compare with.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    live: Option<PathBuf>,
    /// A node's admin listener, to compare with what is live there.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// Its token. Default: SLUICE_ADMIN_TOKEN.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let plugin = Plugin::open(&options.folder.folder)?;
    let live = match (&options.live, &options.admin) {
        (Some(file), _) => Some(std::fs::read(file).with_context(|| format!("read the live component {}", file.display()))?),
        (None, Some(admin)) => fetch(admin, &token(options)?, &plugin.name)?,
        (None, None) => None,
    };
    let report = check::run(&plugin, live.as_deref())?;
    if options.json {
        print(&serde_json::to_string(&report).context("cannot print")?)?;
    } else {
        show(&report)?;
        if options.admin.is_some() && live.is_none() {
            print(&format!("live          no bundle of {} is live there", plugin.name))?;
        }
    }
    if report.problems.is_empty() { Ok(()) } else { bail!("{}", report.problems.join("; ")) }
}

fn show(report: &Report) -> anyhow::Result<()> {
    let digest = report.digest.short();
    match &report.asks {
        Some(asks) => {
            print(&format!("{} {} ({digest})", report.plugin, asks.version))?;
            print(&format!("phases        {}", list(&asks.phases)))?;
            print(&format!("headers       {}", list(&asks.headers)))?;
        }
        None => print(&format!("{} ({digest})", report.plugin))?,
    }
    print(&format!("capabilities  {}", list(&report.capabilities)))?;
    print(&format!("size          {} bytes", report.bytes))?;
    print(&format!("schema        {}", if report.has_schema { "inside" } else { "none: operators are not told what is wrong where" }))?;
    print(&format!("config.json   {}", if report.problems.is_empty() { "accepted" } else { "REFUSED" }))?;
    match &report.against_live {
        Some(difference) => against(difference),
        None => Ok(()),
    }
}

fn against(difference: &Difference) -> anyhow::Result<()> {
    let version = difference.live_version.as_deref().unwrap_or("it does not take this configuration");
    print(&format!("live          {version} ({})", difference.live.short()))?;
    print(&format!("  asks more   {}", list(&difference.added)))?;
    print(&format!("  asks less   {}", list(&difference.removed)))
}

fn token(options: &Options) -> anyhow::Result<String> {
    let token = options.token.clone().or_else(|| std::env::var("SLUICE_ADMIN_TOKEN").ok());
    token.context("--admin wants --token, the node's admin.token, or the variable SLUICE_ADMIN_TOKEN")
}

/// The component that is live on a node; `None` when no bundle is.
fn fetch(admin: &str, token: &str, plugin: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let url = format!("{}/admin/plugins/{plugin}/component", admin.trim_end_matches('/'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(async {
        // The tree has two crypto providers, so one has to be named; whoever was first chose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().context("cannot make a client")?;
        let mut answer = client.get(&url).bearer_auth(token).send().await.with_context(|| format!("ask {url}; is a node there?"))?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            401 | 403 => bail!("{url}: the node does not believe this token; --token is its admin.token"),
            status => bail!("{url}: status {status}"),
        }
        let mut component = Vec::new();
        while let Some(part) = answer.chunk().await.with_context(|| format!("read {url}"))? {
            component.extend_from_slice(&part);
            ensure!(component.len() <= COMPONENT_BYTES_MAX, "{url}: more than {COMPONENT_BYTES_MAX} bytes");
        }
        Ok(Some(component))
    })
}
