//! docs/WRITING_A_PLUGIN.md, followed to the letter: every shell block is run, and every line it promises has to be printed.
//! The rules of `plugins/examples` in other languages keep the same promises.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::edge::{Answer, Edge};
use crate::process;
use crate::settings::{ADMIN_TOKEN, repository};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{SOON, until};

const GUIDE: &str = include_str!("../../../docs/WRITING_A_PLUGIN.md");

/// One block: the first compiles an SDK on a machine that runs other tests at once.
const BLOCK_ENDS_WITHIN: Duration = Duration::from_secs(1_200);

/// A shell block and what it says it prints.
#[derive(Debug)]
struct Step<'a> {
    script: &'a str,
    promised: Vec<&'a str>,
}

/// The shell blocks of `text` in order, each with the lines of the `text` block behind it.
fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in text.split("\n```").skip(1).step_by(2) {
        if let Some(script) = block.strip_prefix("sh\n") {
            steps.push(Step { script, promised: Vec::new() });
        } else if let Some((lines, step)) = block.strip_prefix("text\n").zip(steps.last_mut()) {
            step.promised.extend(lines.lines());
        }
    }
    steps
}

/// An author's shell in an empty folder.
#[derive(Debug)]
struct Author {
    folder: TempDir,
    environment: Vec<(&'static str, OsString)>,
}

impl Author {
    fn new() -> anyhow::Result<Self> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_sluice"));
        let mut path = program.parent().context("a program lies in a folder")?.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").context("PATH")?);
        // What cargo makes is kept for the next run: nothing else of this run depends on it.
        let target = fs::canonicalize(repository())?.join("target/author");
        // Whoever has built this repository needs no network any more.
        let environment = vec![("PATH", path), ("CARGO_TARGET_DIR", target.into_os_string()), ("CARGO_NET_OFFLINE", "true".into())];
        Ok(Self { folder: tempfile::Builder::new().prefix("sluice-author-").tempdir()?, environment })
    }

    /// Puts the cluster where the guide says a cluster is.
    fn operates(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let config = self.folder.path().join("config");
        fs::create_dir_all(&config)?;
        fs::create_dir_all(cluster.keys())?;
        symlink(cluster.keys(), config.join("keys"))?;
        symlink(cluster.config(), config.join("gateway.toml"))?;
        symlink(cluster.recording(0), self.folder.path().join("recording.jsonl"))?;
        self.environment.push(("SLUICE_ADMIN", cluster.admin(0).url("").into()));
        self.environment.push(("SLUICE_ADMIN_TOKEN", ADMIN_TOKEN.into()));
        Ok(())
    }

    async fn run(&self, script: &str) -> anyhow::Result<Output> {
        run("sh", &["-eu", "-c", script], self.folder.path(), &self.environment).await
    }

    /// Runs a step and holds it to its promise.
    async fn follow(&self, step: &Step<'_>) -> anyhow::Result<()> {
        let output = self.run(step.script).await?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = format!("{}\n{printed}{}", step.script, String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "ended with {}: {said}", output.status);
        for promised in &step.promised {
            ensure!(printed.lines().any(|line| is_like(line, promised)), "did not print {promised:?}: {said}");
        }
        Ok(())
    }
}

/// Whether `line` is `promised`, in which each `…` stands for anything.
fn is_like(line: &str, promised: &str) -> bool {
    let mut rest = line;
    let mut parts = promised.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let mut ended = true;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        ended = part.is_empty();
    }
    rest.is_empty() || (ended && promised.contains('…'))
}

async fn run(program: &str, arguments: &[&str], folder: &Path, environment: &[(&str, OsString)]) -> anyhow::Result<Output> {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        // The variables of this test's own cargo would turn the author's cargo into it.
        if name_text.starts_with("SLUICE") || name_text.starts_with("CARGO_") || name_text == "RUST_LOG" {
            command.env_remove(&name);
        }
    }
    command.args(arguments).current_dir(folder).envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(BLOCK_ENDS_WITHIN, command.output()).await;
    ended.with_context(|| format!("{program} {arguments:?} did not end"))?.with_context(|| format!("start {program}"))
}

/// The binding the guide gives its policy, with time enough for a machine that runs other tests at once, and a route behind it.
fn binding(upstream: &Upstream) -> String {
    let block = GUIDE.split("\n```toml\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap_or_default();
    let block = block.replace("name = \"demo\"\n", "name = \"demo\"\ntimeout_ms = 2000\n");
    format!(
        "{block}\n[recording]\npermille = 1000\n[upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n\
         [[routes]]\nname = \"fine\"\nprefix = \"/api/fine\"\nupstream = \"all\"\n",
        upstream.address
    )
}

/// What a blocked client is answered on both nodes, by the last digit of the user's id.
async fn answers(cluster: &Cluster) -> anyhow::Result<Vec<[u16; 2]>> {
    let edge = Edge::new()?;
    let mut answers = Vec::new();
    for digit in 0..10 {
        let mut statuses = [0; 2];
        for (node, status) in statuses.iter_mut().enumerate() {
            let request = edge.http.get(format!("http://{}/api/fine", cluster.edge(node)));
            let request = request.bearer_auth(tokens::user(&format!("user-{digit}"))).header("x-client-id", "scraper-7");
            *status = Answer::of(request).await?.status;
        }
        answers.push(statuses);
    }
    Ok(answers)
}

fn both(of: impl Fn(usize) -> u16) -> Vec<[u16; 2]> {
    (0..10).map(|digit| [of(digit); 2]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_can_be_followed() {
    let steps = steps(GUIDE);
    assert!(steps.len() >= 12 && steps.last().unwrap().script.contains("plugin rollback"), "{steps:?}");
    let mut author = Author::new().unwrap();
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let cluster = Cluster::start(2, 0, &binding(&upstream)).await.unwrap();
    author.operates(&cluster).unwrap();
    for step in steps {
        author.follow(&step).await.unwrap();
        let wanted = match step.script {
            script if script.contains("--tail 0-4") => both(|digit| if digit <= 4 { 429 } else { 403 }),
            script if script.contains("plugin rollback") => both(|_| 403),
            script if script.contains("--mode shadow\nsluice plugin promote") => both(|_| 403),
            script if script.contains("plugin promote") => both(|_| 429),
            _ => continue,
        };
        assert_eq!(answers(&cluster).await.unwrap(), wanted, "{}", step.script);
        until("the questions are recorded", SOON, async || {
            let recorded = fs::read_to_string(cluster.recording(0)).unwrap_or_default();
            Ok(recorded.contains(r#""demo""#).then_some(()))
        })
        .await
        .unwrap();
    }
}

/// `sluice plugin …` on an example, and what it printed.
async fn example(language: &str, command: &[&str]) -> anyhow::Result<String> {
    let folder = repository().join("plugins/examples").join(language);
    let folder = fs::canonicalize(&folder)?.display().to_string();
    let arguments = [&["plugin"], command, &[folder.as_str()]].concat();
    let output = run(env!("CARGO_BIN_EXE_sluice"), &arguments, Path::new("."), &[]).await?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "sluice {arguments:?}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    Ok(printed)
}

/// Builds an example once for all tests.
async fn built(language: &'static str) -> anyhow::Result<()> {
    static C: OnceCell<()> = OnceCell::const_new();
    static JAVASCRIPT: OnceCell<()> = OnceCell::const_new();
    let once = if language == "c" { &C } else { &JAVASCRIPT };
    once.get_or_try_init(async || example(language, &["build"]).await.map(drop)).await.copied()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_c_passes_the_vectors_of_the_rust_one() {
    built("c").await.unwrap();
    let printed = example("c", &["test"]).await.unwrap();
    assert!(printed.ends_with("8 passed, 0 failed\n"), "{printed}");
    let checked = example("c", &["check"]).await.unwrap();
    assert!(checked.contains("capabilities  lists.contains\n"), "no more than it uses: {checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_javascript_passes_the_vectors_of_the_rust_one() {
    let modules = repository().join("plugins/examples/js/node_modules");
    assert!(modules.is_dir(), "run `npm ci` in plugins/examples/js: `cargo xtask test` does");
    built("js").await.unwrap();
    let printed = example("js", &["test"]).await.unwrap();
    assert!(printed.ends_with("8 passed, 0 failed\n"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_answers_otherwise_is_named_and_fails_the_command() {
    built("c").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("c");
    fs::create_dir(&plugin).unwrap();
    let example = repository().join("plugins/examples/c");
    for file in ["c.wasm", "config.json", "Makefile"] {
        fs::copy(example.join(file), plugin.join(file)).unwrap();
    }
    let wrong = "cases:\n  - name: nobody is blocked\n    expect: { refuse: { code: BLOCKED } }\n  - { name: fine, expect: proceed }\n";
    fs::write(plugin.join("vectors.yaml"), wrong).unwrap();
    let mut command = Command::from(process::command());
    let output = command.args(["plugin", "test"]).arg(&plugin).output().await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("FAILED nobody is blocked\n") && printed.ends_with("1 passed, 1 failed\n"), "{printed}");
    assert!(printed.contains(r#"got {"proceed":{"tags":["no-client"]}}"#), "{printed}");
}

#[test]
fn a_promise_is_a_line_with_gaps() {
    assert!(is_like("9 passed, 0 failed", "9 passed, 0 failed"));
    assert!(!is_like("19 passed, 0 failed", "9 passed, 0 failed"));
    assert!(is_like("demo (abc), signed by 0f", "demo (…), signed by …"));
    assert!(!is_like("demo (abc), signed by 0f, twice", "demo (…), signed"));
}
