//! The peer: nginx, one worker, Lua, a pool of connections to Redis, and a script of three keys.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::process::{Process, free_address};
use crate::bench::proxy::fill;

pub(super) struct Peer {
    /// nginx; its worker is a child.
    pub(super) process: Process,
    /// Where it listens.
    pub(super) address: SocketAddr,
    redis: SocketAddr,
}

impl Peer {
    /// Starts nginx on `core`, in front of `redis`.
    pub(super) fn start(root: &Path, redis: &SocketAddr, core: u32) -> Result<Self> {
        let dir = root.join("target/bench");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let (address, log) = (free_address()?, dir.join("peer.log"));
        let script = root.join("xtask/bench/peer-script.lua").display().to_string();
        let sha = redis_cli(redis, &["-x", "SCRIPT", "LOAD"], Some(&script))?;
        let values = [
            ("{dir}", dir.display().to_string()),
            ("{port}", address.port().to_string()),
            ("{redis}", redis.port().to_string()),
            ("{sha}", sha.trim().to_owned()),
        ];
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let config = dir.join("peer.conf");
        fs::write(&config, fill(root, "peer.conf", &values)?).context("write peer.conf")?;
        let command = ["nginx", "-c", &config.display().to_string(), "-p", &dir.display().to_string()];
        let mut process = Process::start("nginx", core, &command, &log)?;
        process.listening(address, &log)?;
        Ok(Self { process, address, redis: *redis })
    }

    /// Forgets every buyer and puts `units` up for sale.
    pub(super) fn open_sale(&mut self, units: u32) -> Result<()> {
        let forget = "for _, key in ipairs(redis.call('KEYS', 'peer:*')) do redis.call('UNLINK', key) end \
                      return redis.call('SET', 'peer:stock', ARGV[1])";
        redis_cli(&self.redis, &["EVAL", forget, "0", &units.to_string()], None).map(drop)
    }
}

fn redis_cli(redis: &SocketAddr, arguments: &[&str], input: Option<&str>) -> Result<String> {
    let mut command = Command::new("redis-cli");
    command.args(["-h", &redis.ip().to_string(), "-p", &redis.port().to_string()]).args(arguments);
    if let Some(file) = input {
        command.stdin(fs::File::open(file).with_context(|| format!("open {file}"))?);
    }
    let output = command.output().context("start redis-cli")?;
    ensure!(output.status.success(), "redis-cli: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
