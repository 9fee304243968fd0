//! Private copies of the three services, and of a Redis with replicas, Sentinels or as a Cluster, for tests and drills: started on free loopback ports with their data in a
//! temporary folder, killed and restarted at will, gone when the handle or the process that started them is gone.
//!
//! What never happens here: touching a system service, a fixed port, an address other than loopback, a wait without a
//! deadline. A missing program is an error that names its Debian package; nothing is skipped.

mod mariadb;
mod nats;
mod process;
mod redis;
mod redis_cluster;
mod resp;
mod sentinels;

use tempfile::TempDir;

pub use mariadb::MariaDb;
pub use nats::Nats;
pub use redis::Redis;
pub use redis_cluster::RedisCluster;
pub use sentinels::Sentinels;

/// One of each.
#[derive(Debug)]
pub struct Services {
    /// Redis with an append-only file.
    pub redis: Redis,
    /// NATS with JetStream.
    pub nats: Nats,
    /// MariaDB with an empty database.
    pub mariadb: MariaDb,
    // Declared last so that the folder goes after the services that live in it.
    _folder: TempDir,
}

impl Services {
    /// Starts all three and waits until each answers; takes about three seconds. Blocks the calling thread.
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sluice-services-").tempdir()?;
        let mariadb = MariaDb::start(folder.path())?;
        let redis = Redis::start(folder.path(), true)?;
        let nats = Nats::start(folder.path())?;
        Ok(Self { redis, nats, mariadb, _folder: folder })
    }
}
