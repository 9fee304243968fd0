//! The pages in a real browser, driven by `tests/browser`: the demo on one process, widget and desk on a cluster.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use crate::cluster::{Cluster, Part};
use crate::dev::Dev;
use crate::settings::repository;
use crate::tokens;

const RUNS_WITHIN: Duration = Duration::from_secs(240);

/// The shipped development configuration, on free ports and with the built policies of this run.
async fn demo() -> Dev {
    let shipped = std::fs::read_to_string(repository().join("config/dev.toml")).unwrap();
    let plugins = format!("[plugins]\ndir = \"{}\"\n", crate::settings::plugins().unwrap().display());
    let config = shipped.replace("[plugins]\n", &plugins).replace("format = \"text\"", "format = \"json\"");
    Dev::start_with(&config, &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).await.unwrap()
}

/// Runs `files` of `tests/browser` with Node's test runner.
async fn run(files: &[&str], environment: &[(&str, String)]) {
    let folder = repository().join("tests/browser");
    assert!(folder.join("node_modules/playwright-core").is_dir(), "run `npm ci` in {}: `cargo xtask test` does", folder.display());
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=tap"])
        .args(files)
        .current_dir(&folder)
        .env("SLUICE_SCREENSHOTS", repository().join("target/screenshots"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(RUNS_WITHIN, command.output()).await.expect("the browser tests end").expect("node is installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_works_in_a_browser() {
    let dev = demo().await;
    let files = ["chat-client.test.mjs", "chat-state.test.mjs", "purchase.test.mjs", "types.test.mjs", "demo.test.mjs"];
    run(&files, &[("SLUICE_EDGE_URL", format!("http://{}", dev.edge))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn widget_and_desk_work_on_a_cluster_of_which_a_node_dies() {
    let cluster = Arc::new(Cluster::start(2, 1, "").await.unwrap());
    let nodes = format!("{},{}", cluster.edge(0), cluster.edge(1));
    let control = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = control.local_addr().unwrap();
    let obeying = tokio::spawn(obey(control, cluster.clone()));
    let environment = [("SLUICE_NODES", nodes), ("SLUICE_SECRET", tokens::SECRET.to_owned()), ("SLUICE_CONTROL", address.to_string())];
    run(&["cluster.test.mjs"], &environment).await;
    obeying.abort();
}

/// Does to the cluster what the browser's tests ask for, a line at a time.
async fn obey(control: TcpListener, cluster: Arc<Cluster>) {
    while let Ok((stream, _)) = control.accept().await {
        let mut stream = BufReader::new(stream);
        let mut asked = String::new();
        let _ = stream.read_line(&mut asked).await;
        let answer = match asked.trim() {
            "kill 0" => {
                cluster.kill(Part::Node(0));
                "done\n"
            }
            _ => "what?\n",
        };
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}
