//! The demo pages in a real browser, driven by `tests/browser`.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::dev::Dev;
use crate::settings::repository;

const RUNS_WITHIN: Duration = Duration::from_secs(240);

/// The shipped development configuration, on free ports and with the built policies of this run.
async fn demo() -> Dev {
    let shipped = std::fs::read_to_string(repository().join("config/dev.toml")).unwrap();
    let plugins = format!("[plugins]\ndir = \"{}\"\n", crate::settings::plugins().unwrap().display());
    let config = shipped.replace("[plugins]\n", &plugins).replace("format = \"text\"", "format = \"json\"");
    Dev::start_with(&config, &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_works_in_a_browser() {
    let folder = repository().join("tests/browser");
    assert!(folder.join("node_modules/playwright-core").is_dir(), "run `npm ci` in {}: `cargo xtask test` does", folder.display());
    let dev = demo().await;
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=tap"])
        .current_dir(&folder)
        .env("SLUICE_EDGE_URL", format!("http://{}", dev.edge))
        .env("SLUICE_SCREENSHOTS", repository().join("target/screenshots"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(RUNS_WITHIN, command.output()).await.expect("the browser tests end").expect("node is installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
