//! A policy exchanged every 50 ms under full load: how many requests failed, and what it leaves behind.
//!
//! Live and previous version change places by a rollback, which is what an operator would do in a hurry: a record is written,
//! the node follows it, and the table of generations is replaced.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::process::Process;
use crate::bench::{Load, machine, report};

use super::proxy::{Rig, Variant};

/// Time between two exchanges.
const EVERY: Duration = Duration::from_millis(50);

/// Longest time one exchange may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The admin token in xtask/bench/sluice.toml.
const TOKEN: &str = "bench-admin";

pub(super) fn run(root: &Path, load: &Load) -> Result<()> {
    let rig = Rig::start(root, &load.profile)?;
    let (mut server, edge, admin, log) = rig.sluice(root, Variant::SluicePolicies)?;
    server.listening(edge, &log)?;
    server.listening(admin, &log)?;
    second_version(&rig, admin)?;

    rig.load(edge, load.connections, 2)?;
    let before = server.resident_mib()?;
    let (quiet, _) = measured(&rig, edge, load, &server)?;
    let done = AtomicBool::new(false);
    let (swaps, swapped) = thread::scope(|scope| -> Result<_> {
        let swapper = scope.spawn(|| swap(admin, &done));
        let swapped = measured(&rig, edge, load, &server);
        done.store(true, Ordering::Relaxed);
        let swaps = swapper.join().map_err(|_| anyhow::anyhow!("the swapper panicked"))??;
        Ok((swaps, swapped?))
    })?;
    let (cpu, requests) = swapped;
    let after = server.resident_mib()?;
    ensure!(swaps > 0, "nothing was swapped");
    let text = format!(
        "{}, {}. {} connections, {} s.\n\n\
         | | |\n|---|---|\n| exchanges | {swaps}, every {} ms |\n| requests answered | {requests} |\n| requests failed | 0 |\n\
         | CPU per request, beside the same load without exchanges | {:.2} × |\n| memory before, after | {before} MiB, {after} MiB |\n",
        machine::describe(),
        machine::version("rustc", &["--version"]),
        load.connections,
        load.seconds,
        EVERY.as_millis(),
        cpu / quiet,
    );
    report::publish(root, "swap", &text)
}

/// CPU per request in microseconds, and requests. A request that is not answered with 200 is an error.
fn measured(rig: &Rig, edge: SocketAddr, load: &Load, server: &Process) -> Result<(f64, u64)> {
    let before = server.cpu_seconds()?;
    let (requests, _) = rig.load(edge, load.connections, load.seconds)?;
    #[expect(clippy::cast_precision_loss, reason = "requests of one run are few")]
    Ok(((server.cpu_seconds()? - before) * 1e6 / requests as f64, requests))
}

/// Signs a second version of `rate-limit`, pushes and promotes it; the one in the folder is the one before.
fn second_version(rig: &Rig, admin: SocketAddr) -> Result<()> {
    let author = rig.dir.join("author");
    let folder = author.join("rate-limit");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut component = fs::read(rig.plugins.join("rate-limit.wasm")).context("read rate-limit.wasm; `cargo xtask plugins` makes it")?;
    // A custom section changes the digest and nothing else.
    component.extend([0, 3, 1, b'v', 2]);
    fs::write(folder.join("rate-limit.wasm"), component).context("write rate-limit.wasm")?;
    fs::write(folder.join("config.json"), r#"{"budgets": []}"#).context("write config.json")?;
    let sluice = |arguments: &[&str]| -> Result<()> {
        let output = Command::new(&rig.sluice)
            .args(arguments)
            .current_dir(&author)
            .env("SLUICE_ADMIN", format!("http://{admin}"))
            .env("SLUICE_ADMIN_TOKEN", TOKEN)
            .output()
            .context("start sluice")?;
        ensure!(output.status.success(), "sluice {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    sluice(&["plugin", "sign", "rate-limit"])?;
    copy_keys(&author.join(".sluice/keys"), &rig.dir.join("keys"))?;
    sluice(&["plugin", "push", "rate-limit"])?;
    sluice(&["plugin", "rollout", "rate-limit", "--mode", "shadow"])?;
    sluice(&["plugin", "promote", "rate-limit"])
}

fn copy_keys(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    let keys: Vec<PathBuf> = fs::read_dir(from).context("read the author's keys")?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    for key in keys {
        let name = key.file_name().context("a key has a name")?;
        fs::copy(&key, to.join(name)).with_context(|| format!("copy {}", key.display()))?;
    }
    Ok(())
}

/// Rolls back, and back again, until `done`; returns how often.
fn swap(admin: SocketAddr, done: &AtomicBool) -> Result<u64> {
    let mut swaps = 0;
    while !done.load(Ordering::Relaxed) {
        let started = Instant::now();
        roll_back(admin)?;
        swaps += 1;
        thread::sleep(EVERY.saturating_sub(started.elapsed()));
    }
    Ok(swaps)
}

fn roll_back(admin: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(admin).context("reach the admin listener")?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).context("set a deadline")?;
    let request = format!(
        "POST /admin/plugins/rate-limit/rollback HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).context("ask for a rollback")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read the answer")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "a rollback was answered with {answer}");
    Ok(())
}
