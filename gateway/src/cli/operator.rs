//! An operator's end of the admin API: where it is, who asks, and waiting until every node has done what was asked.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::{Client, Method, Url};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Where a development process listens.
const DEFAULT_ADMIN: &str = "http://127.0.0.1:9090";

/// What a development process takes.
const DEFAULT_TOKEN: &str = "dev-admin";

/// Longest call: a large bundle on its way to the registry.
const CALL_MAX: Duration = Duration::from_secs(90);

/// Between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct Target {
    /// The admin listener of any node of the cluster. Default: SLUICE_ADMIN, or http://127.0.0.1:9090.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// Its token. Default: SLUICE_ADMIN_TOKEN, or dev-admin where the listener is on this machine.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Print a JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Who {
    /// Who takes the step, for its history. Default: USER.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Who {
    /// The name.
    pub(super) fn name(&self) -> String {
        self.by.clone().or_else(|| variable("USER")).unwrap_or_else(|| "admin".to_owned())
    }
}

#[derive(Debug, Args)]
pub(super) struct Patience {
    /// Longest wait, in seconds, until every node has followed; 0 waits for none.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    wait: u64,
}

/// How a node is getting on with what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Done.
    Done,
    /// Not yet.
    Waiting,
    /// It tried, and this is why it could not.
    Failed(String),
    /// It has nothing to do.
    Aside,
}

/// A connection to an admin listener.
pub(super) struct Operator {
    client: Client,
    url: Url,
    token: String,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Operator {
    /// Whoever `target` and the environment name.
    pub(super) fn new(target: &Target) -> anyhow::Result<Self> {
        let text = target.admin.clone().or_else(|| variable("SLUICE_ADMIN")).unwrap_or_else(|| DEFAULT_ADMIN.to_owned());
        let url = Url::parse(&text).with_context(|| format!("--admin {text} is not a URL; an example is {DEFAULT_ADMIN}"))?;
        ensure!(matches!(url.scheme(), "http" | "https") && url.host_str().is_some(), "--admin {text} is not an http:// or https:// URL");
        let token = target.token.clone().or_else(|| variable("SLUICE_ADMIN_TOKEN"));
        // The public token of development goes nowhere but to this machine.
        let Some(token) = token.or_else(|| is_loopback(&url).then(|| DEFAULT_TOKEN.to_owned())) else {
            bail!("{text} wants a token: give --token, or set SLUICE_ADMIN_TOKEN");
        };
        // The tree has two crypto providers, so one has to be named; whoever was first chose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().timeout(CALL_MAX).no_proxy().build().context("cannot make an HTTP client")?;
        Ok(Self { client, url, token })
    }

    /// The answer's body as bytes; a refusal is an error that says what the node said.
    pub(super) async fn ask(&self, method: Method, path: &[&str], query: &[(&str, &str)], body: Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| anyhow::anyhow!("{} is not a base of paths", self.url))?.pop_if_empty().extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.client.request(method, url).bearer_auth(&self.token).body(body);
        let response = request.send().await.with_context(|| format!("cannot reach {}; is a node running there?", self.url))?;
        let status = response.status();
        let bytes = response.bytes().await.with_context(|| format!("the answer of {} broke off", self.url))?;
        if status.is_success() {
            return Ok(bytes.into());
        }
        let said: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match (said["code"].as_str(), said["message"].as_str()) {
            (Some(code), Some(message)) => bail!("{message} ({code})"),
            _ => bail!("{} answered {status}", self.url),
        }
    }

    /// The same for an answer that is JSON.
    pub(super) async fn ask_json(&self, method: Method, path: &[&str], query: &[(&str, &str)], body: Vec<u8>) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.ask(method, path, query, body).await?).context("the answer is not JSON")
    }

    /// Waits until every node that is not gone has done it, telling on standard error who has not; an error names those that
    /// failed or did not in time.
    pub(super) async fn until_every_node(
        &self,
        patience: &Patience,
        what: &str,
        progress: impl Fn(&Value) -> Progress,
    ) -> anyhow::Result<()> {
        if patience.wait == 0 {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_secs(patience.wait);
        let mut told = String::new();
        loop {
            let answer = self.ask_json(Method::GET, &["admin", "nodes"], &[], Vec::new()).await?;
            let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let states: Vec<(&str, Progress)> = nodes
                .iter()
                .filter(|node| node["gone"] != true)
                .map(|node| (node["name"].as_str().unwrap_or("?"), progress(node)))
                .filter(|(_, progress)| *progress != Progress::Aside)
                .collect();
            let done = states.iter().filter(|(_, progress)| *progress == Progress::Done).count();
            let line = format!("{done} of {} nodes {what}", states.len());
            if line != told {
                writeln!(std::io::stderr(), "{line}").context("cannot print")?;
                told.clone_from(&line);
            }
            if done == states.len() {
                ensure!(done > 0, "no node reports; it will be followed when one starts");
                return Ok(());
            }
            let settled = states.iter().all(|(_, progress)| *progress != Progress::Waiting);
            if settled || Instant::now() >= deadline {
                let missing: Vec<String> = states
                    .into_iter()
                    .filter_map(|(name, progress)| match progress {
                        Progress::Failed(why) => Some(format!("{name}: {why}")),
                        Progress::Waiting => Some(format!("{name}: not within {} s", patience.wait)),
                        Progress::Done | Progress::Aside => None,
                    })
                    .collect();
                bail!("only {line}; the others do not:\n  {}", missing.join("\n  "));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Runs one conversation to its end.
pub(super) fn talk<T>(conversation: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?.block_on(conversation)
}

/// One line on standard output.
pub(super) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot print")
}

/// A value as people read it: text without its quotes, and without what a terminal would obey.
pub(super) fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(admin: &str, token: Option<&str>) -> Target {
        Target { admin: Some(admin.to_owned()), token: token.map(str::to_owned), json: false }
    }

    #[test]
    fn the_public_token_goes_to_this_machine_alone() {
        for near in ["http://127.0.0.1:9090", "http://localhost:1", "http://[::1]:9090/"] {
            assert_eq!(Operator::new(&target(near, None)).map(|operator| operator.token).ok().as_deref(), Some(DEFAULT_TOKEN), "{near}");
        }
        for far in ["http://10.0.0.1:9090", "https://admin.example", "http://127.0.0.1.example:9090"] {
            assert!(Operator::new(&target(far, None)).is_err(), "{far}");
            assert!(Operator::new(&target(far, Some("secret"))).is_ok(), "{far}");
        }
        for wrong in ["127.0.0.1:9090", "ftp://127.0.0.1", ""] {
            assert!(Operator::new(&target(wrong, Some("secret"))).is_err(), "{wrong}");
        }
    }
}
