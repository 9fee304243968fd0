//! What the tests of rollouts share: a cluster whose `demo` policy comes from signed bundles, a key that signs them, and users
//! who ask.
//!
//! Two guests serve as rules: `rate-limit` with a ceiling nobody reaches, which lets everything pass, and `conformance`, which
//! does what the field `x-conformance` says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use gateway_core::policy::Digest;
use gateway_core::policy::bundle::{Label, SigningSeed, seal};
use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::edge::{Answer, Edge};
use crate::process::run;
use crate::settings::{self, ADMIN_TOKEN, OPEN};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};

/// The key that nodes of the tests trust.
pub(crate) fn key() -> SigningSeed {
    SigningSeed::new(&[7; 32])
}

/// Puts the key where a node looks for it.
pub(crate) fn trust(keys: &Path, key: &SigningSeed) -> anyhow::Result<()> {
    std::fs::create_dir_all(keys)?;
    Ok(std::fs::write(keys.join(format!("{}.pub", key.id())), key.public_key())?)
}

/// The configuration of the `demo` policy behind the usual chain: requests pass without it.
pub(crate) fn demo(upstream: &Upstream) -> String {
    format!(
        r#"
[[policies]]
name = "demo"
timeout_ms = 2000
prefixes = ["/api/fine"]
fail = {OPEN}
[[policies.config.budgets]]
name = "high"
key = "ip"
limit = 1000000
window_ms = 1000

[upstreams.all]
peers = [{{ addr = "{address}" }}]
[[routes]]
name = "fine"
prefix = "/api/fine"
upstream = "all"
"#,
        address = upstream.address
    )
}

/// A rule in a bundle.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The version's digest.
    pub(crate) digest: Digest,
    /// The bundle.
    pub(crate) bundle: Vec<u8>,
    folder: TempDir,
}

impl Rule {
    /// Lets everything pass. Rules of other marks are other versions.
    pub(crate) fn lenient(mark: &str) -> anyhow::Result<Self> {
        Self::sealed("rate-limit", mark, &key())
    }

    /// Does what the field `x-conformance` says.
    pub(crate) fn obedient(mark: &str) -> anyhow::Result<Self> {
        Self::sealed("conformance", mark, &key())
    }

    /// The guest `guest`, signed by `key`.
    pub(crate) fn sealed(guest: &str, mark: &str, key: &SigningSeed) -> anyhow::Result<Self> {
        let component = std::fs::read(settings::plugins()?.join(guest).with_extension("wasm"))?;
        let component = rebuilt(&component, mark.as_bytes());
        let digest = Digest::of(&component);
        let label = Label {
            plugin: "demo".into(),
            version: mark.into(),
            component: digest.clone(),
            phases: vec!["request".into()],
            headers: Vec::new(),
            capabilities: Vec::new(),
        };
        let bundle = seal(&label, &component, key)?;
        let folder = tempfile::Builder::new().prefix("sluice-rule-").tempdir()?;
        std::fs::write(folder.path().join("demo.bundle"), &bundle)?;
        Ok(Self { digest, bundle, folder })
    }

    /// The bundle in a file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("demo.bundle")
    }
}

/// The same component with another digest: a custom section, which changes nothing, at its end.
fn rebuilt(component: &[u8], mark: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"build";
    let size = u8::try_from(1 + NAME.len() + mark.len()).expect("one byte of LEB128 is enough");
    assert!(size < 0x80);
    [component, &[0, size, 5], NAME, mark].concat()
}

/// An operator's command line at one admin listener.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    /// The same listener for calls that no command makes.
    pub(crate) admin: Admin,
}

impl Operator {
    /// `sluice` with these arguments; what it printed. A command that fails is an error with what it said.
    pub(crate) async fn sluice(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let url = self.admin.url("");
        let output = run(&[arguments, &["--admin", &url, "--token", ADMIN_TOKEN]].concat()).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "sluice {arguments:?}: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `sluice plugin push`.
    pub(crate) async fn push(&self, rule: &Rule) -> anyhow::Result<String> {
        self.sluice(&["plugin", "push", &rule.file().display().to_string()]).await
    }

    /// Pushes `rule` and makes it live.
    pub(crate) async fn make_live(&self, rule: &Rule) -> anyhow::Result<()> {
        self.push(rule).await?;
        self.sluice(&["plugin", "rollout", "demo", "--mode", "shadow", "--version", &rule.digest.as_str()[..12]]).await?;
        self.sluice(&["plugin", "promote", "demo"]).await?;
        Ok(())
    }

    /// What the registry says about `demo`.
    pub(crate) async fn record(&self) -> anyhow::Result<Value> {
        let all = self.admin.get("/admin/plugins").await?;
        let plugins = all["plugins"].as_array().context("plugins")?;
        plugins.iter().find(|plugin| plugin["plugin"] == "demo").cloned().with_context(|| format!("no demo in {all}"))
    }

    /// What this node runs for the policy `demo`.
    pub(crate) async fn policy(&self) -> anyhow::Result<Value> {
        let all = self.admin.get("/admin/plugins").await?;
        let policies = all["policies"].as_array().context("policies")?;
        policies.iter().find(|policy| policy["name"] == "demo").cloned().with_context(|| format!("no demo in {all}"))
    }

    /// One metric, with its labels as they are written; 0 while there is none.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let text = reqwest::Client::builder().no_proxy().build()?.get(self.admin.url("/metrics")).send().await?.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are small whole numbers")]
        Ok(value.unwrap_or(0.0) as u64)
    }
}

/// An upstream that answers everything.
pub(crate) async fn upstream() -> anyhow::Result<Upstream> {
    Upstream::start(Conduct::Answer("fine")).await
}

/// What `user` is answered when the guest is told to behave so.
pub(crate) async fn ask(http: &Edge, edge: SocketAddr, user: &str, behaviour: &str) -> anyhow::Result<Answer> {
    let request = http.http.get(format!("http://{edge}/api/fine")).bearer_auth(tokens::user(user)).header("x-conformance", behaviour);
    Answer::of(request).await
}
