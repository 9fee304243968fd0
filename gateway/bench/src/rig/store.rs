//! The private Redis, as a process: its CPU time, and its log on disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use redis::{Client, InfoDict};
use tokio::time::timeout;

use super::cpu::Meter;

/// It answered `PING` a moment ago.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// How long its log was at some instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisLog {
    file: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    client: Client,
    folder: PathBuf,
    meter: Mutex<Meter>,
}

impl Store {
    /// For the Redis behind `url`, which runs.
    pub(super) async fn new(url: &str) -> anyhow::Result<Self> {
        let client = Client::open(url)?;
        let mut connection = connect(&client).await?;
        let (_, folder): (String, String) = redis::cmd("CONFIG").arg(&["GET", "dir"]).query_async(&mut connection).await?;
        let store = Self { client, folder: Path::new(&folder).join("appendonlydir"), meter: Mutex::default() };
        store.started().await?;
        Ok(store)
    }

    /// It was started, again or for the first time.
    pub(super) async fn started(&self) -> anyhow::Result<()> {
        let mut connection = connect(&self.client).await?;
        let info: InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let pid = info.get("process_id").context("INFO names no process_id")?;
        self.meter().starts(pid);
        Ok(())
    }

    /// It is about to be killed.
    pub(super) fn ends(&self) {
        self.meter().ends();
    }

    pub(super) fn pid(&self) -> u32 {
        self.meter().pid().unwrap_or_default()
    }

    pub(super) fn cpu(&self) -> Duration {
        self.meter().total()
    }

    /// How long the log is now.
    pub(super) fn log(&self) -> anyhow::Result<RedisLog> {
        let file = newest_log(&self.folder)?;
        let bytes = fs::metadata(&file)?.len();
        Ok(RedisLog { file, bytes })
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts the log back to what it was, while nobody writes to it; says how many bytes that cost. A log that was rewritten since is
/// left alone.
pub(super) fn cut(log: &RedisLog) -> anyhow::Result<u64> {
    let Ok(metadata) = fs::metadata(&log.file) else { return Ok(0) };
    let lost = metadata.len().saturating_sub(log.bytes);
    if lost > 0 {
        File::options().write(true).open(&log.file)?.set_len(log.bytes)?;
    }
    Ok(lost)
}

/// The log is a base and increments, numbered; the highest is written to.
fn newest_log(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let numbered = entries.filter_map(Result::ok).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number: u64 = name.strip_prefix("appendonly.aof.")?.strip_suffix(".incr.aof")?.parse().ok()?;
        Some((number, entry.path()))
    });
    let newest = numbered.max().with_context(|| format!("no append-only file in {}", folder.display()))?;
    Ok(newest.1)
}

async fn connect(client: &Client) -> anyhow::Result<MultiplexedConnection> {
    let connecting = client.get_multiplexed_async_connection();
    timeout(ANSWERS_WITHIN, connecting).await.context("Redis does not answer")?.context("connecting to Redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_number_is_the_log_that_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["appendonly.aof.2.incr.aof", "appendonly.aof.10.incr.aof", "appendonly.aof.11.base.rdb", "appendonly.aof.manifest"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(newest_log(folder.path()).unwrap(), folder.path().join("appendonly.aof.10.incr.aof"));
    }

    #[test]
    fn a_cut_takes_the_end_and_nothing_when_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let log = RedisLog { file: folder.path().join("log"), bytes: 3 };
        assert_eq!(cut(&log).unwrap(), 0, "no file");
        fs::write(&log.file, "12345").unwrap();
        assert_eq!(cut(&log).unwrap(), 2);
        assert_eq!(fs::read_to_string(&log.file).unwrap(), "123");
        assert_eq!(cut(&log).unwrap(), 0, "nothing left to take");
    }
}
