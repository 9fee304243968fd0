//! The socket code of the chat against the RFC 6455 suite: every case but those that only measure speed and those of an
//! extension that is not offered.

use std::process::Stdio;
use std::time::Duration;

use anyhow::ensure;
use tokio::process::Command;
use tokio::time::timeout;

use crate::dev::Dev;
use crate::settings::{base, repository};

/// The suite takes about a minute on an idle machine.
const RUNS_WITHIN: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_the_suite_passes() {
    let suite = suite().unwrap();
    let mut dev = Dev::start_with(&base().unwrap(), &["--echo", "127.0.0.1:0"]).await.unwrap();
    let echo = dev.process.listening("echo").await.unwrap();
    let reports = tempfile::tempdir().unwrap();
    let mut command = Command::new(suite);
    command.args(["-m", "fuzzingclient", "-x", "9.*", "-x", "12.*", "-x", "13.*", "-o"]).arg(reports.path()).arg(echo.to_string());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(RUNS_WITHIN, output).await.expect("the suite ends").unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.lines().any(|line| line == "247 cases passed"), "{said}");
}

/// The suite's program: `SLUICE_KOSOKU`, or where `cargo xtask test` installs it.
fn suite() -> anyhow::Result<std::path::PathBuf> {
    let program = std::env::var_os("SLUICE_KOSOKU").map_or_else(|| repository().join("target/venv/bin/kosoku"), Into::into);
    ensure!(program.is_file(), "{} is missing: `cargo xtask test` installs it", program.display());
    Ok(program)
}
