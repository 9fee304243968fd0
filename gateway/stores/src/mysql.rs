//! MySQL or MariaDB: a pool of connections, and the transactions that decide.
//!
//! The ports are beside this file. The sale ledger is `sales`: `catalogue` (SKUs, activities), `lots` and `leases`, `orders`,
//! `payments`, `stock`, `outbox` and `letters`; the chat ledger is `chats` and `messages`. What never happens here: a decision
//! outside a transaction, or a stock counter changed without its guard.

mod catalogue;
mod chats;
mod json;
mod leases;
mod letters;
mod lots;
mod orders;
mod outbox;
mod payments;
mod rows;
mod sales;
mod stock;
mod time;

use std::fmt;
use std::time::Duration;

use gateway_core::ports::{PortErrorKind, PortResult, Store};
use sqlx::migrate::MigrateError;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Error, Executor as _, MySqlPool};

use crate::error::{Failure, failed, within};

/// How often a transaction is tried that lost a deadlock or a race for a unique key.
const ATTEMPTS_MAX: u32 = 3;

/// A migration may rebuild a table.
const MIGRATE_MAX: Duration = Duration::from_secs(600);

/// How to use a MySQL.
#[derive(Clone)]
pub struct MysqlSettings {
    /// `mysql://user:password@host:port/database`.
    pub url: String,
    /// How long one call may take, its retries included; 2 s unless set.
    pub timeout: Duration,
    /// Connections at most; 16 unless set.
    pub connections_max: u32,
}

impl MysqlSettings {
    /// The defaults for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout: Duration::from_secs(2), connections_max: 16 }
    }
}

impl fmt::Debug for MysqlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("MysqlSettings")
            .field("timeout", &self.timeout)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// [`SaleLedger`](gateway_core::ports::SaleLedger) and [`ChatLedger`](gateway_core::ports::ChatLedger) on MySQL 8.0.16 or
/// MariaDB 10.11, or later. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MysqlStore {
    pool: MySqlPool,
    timeout: Duration,
}

impl MysqlStore {
    /// A store that connects when it is needed. Must be called in a Tokio runtime. Fails only when the URL makes no sense.
    pub fn connect(settings: &MysqlSettings) -> PortResult<Self> {
        let options: MySqlConnectOptions =
            settings.url.parse().map_err(|source: Error| failed("read the MySQL settings", Trouble::Sql(source)))?;
        // `timezone` makes the server write and read every instant in UTC, whatever its own zone is.
        let options = options.charset("utf8mb4").timezone(Some("+00:00".to_owned())).pipes_as_concat(false).no_engine_substitution(false);
        let lock_wait_s = settings.timeout.as_secs().max(1);
        let session = format!(
            "set session transaction isolation level read committed; \
             set session sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', \
             innodb_lock_wait_timeout = {lock_wait_s}"
        );
        let pool = MySqlPoolOptions::new()
            .max_connections(settings.connections_max)
            // Waiting for a connection takes at most half of the time: with the database gone that is when a call fails,
            // and with it overloaded the other half is left for the work.
            .acquire_timeout(settings.timeout / 2)
            .after_connect(move |connection, _| {
                let session = session.clone();
                Box::pin(async move { connection.execute(sqlx::AssertSqlSafe(session)).await.map(drop) })
            })
            .connect_lazy_with(options);
        Ok(Self { pool, timeout: settings.timeout })
    }

    /// Brings the tables up to date. Safe to run from several nodes at once.
    pub async fn migrate(&self) -> PortResult<()> {
        within(MIGRATE_MAX, "migrate the tables", async {
            let mut connection = self.pool.acquire().await?;
            // The lock goes with the connection, however this ends.
            connection.close_on_drop();
            // Not the migrator's own lock: it waits for -1 seconds, which MariaDB takes for a mistake, and locks nothing.
            let (locked,): (Option<i64>,) = sqlx::query_as("select get_lock(concat('sluice-', md5(database())), ?)")
                .bind(MIGRATE_MAX.as_secs())
                .fetch_one(&mut *connection)
                .await?;
            if locked != Some(1) {
                return Err(Trouble::Sql(Error::PoolTimedOut));
            }
            let mut migrations = sqlx::migrate!("../../migrations");
            Ok(migrations.set_locking(false).run_direct(None, &mut *connection, false).await?)
        })
        .await
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> PortResult<()> {
        let ask = async { sqlx::query("select 1").execute(&self.pool).await.map(drop).map_err(Trouble::from) };
        within(self.timeout, "ping MySQL", ask).await
    }

    /// What is wrong with the server's configuration, one sentence each; none when all is well.
    pub async fn warnings(&self) -> PortResult<Vec<String>> {
        let read = async {
            let variables = "select @@version, cast(@@innodb_flush_log_at_trx_commit as unsigned), cast(@@log_bin as unsigned), \
                             cast(@@sync_binlog as unsigned)";
            Ok(sqlx::query_as::<_, (String, u64, u64, u64)>(variables).fetch_one(&self.pool).await?)
        };
        let (version, flush, binlog, sync_binlog) = within::<_, Trouble>(self.timeout, "read the MySQL configuration", read).await?;
        let mut warnings = Vec::new();
        if flush != 1 {
            warnings
                .push(format!("{version}: innodb_flush_log_at_trx_commit is {flush}, so a committed order or message can vanish; set 1"));
        }
        if binlog != 0 && sync_binlog != 1 {
            warnings.push(format!("{version}: sync_binlog is {sync_binlog}, so a replica can miss a committed order or message; set 1"));
        }
        Ok(warnings)
    }

    /// Runs a transaction within the deadline, again when it lost a race it can win the next time.
    async fn transact<T, F>(&self, doing: &'static str, attempt: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        within(self.timeout, doing, async {
            let mut attempts = 0;
            loop {
                attempts += 1;
                match attempt().await {
                    Err(trouble) if trouble.is_race() && attempts < ATTEMPTS_MAX => {
                        tracing::debug!(doing, attempts, error = %trouble, "lost a race, trying again");
                    }
                    answer => return answer,
                }
            }
        })
        .await
    }
}

/// What goes wrong with MySQL.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the lease is no longer held")]
    Fenced,
    #[error("more than {0} at once")]
    TooMany(usize),
    #[error("the table holds what nobody of ours wrote: {0}")]
    Damaged(&'static str),
    #[error("the database refused")]
    Sql(#[from] Error),
    #[error("the migration failed")]
    Migrate(#[from] MigrateError),
}

impl Trouble {
    /// A deadlock (1213), a lock not granted in time (1205), or a row somebody else inserted first (1062).
    fn is_race(&self) -> bool {
        matches!(self.number(), Some(1062 | 1205 | 1213))
    }

    /// MySQL's error number.
    fn number(&self) -> Option<u16> {
        match self {
            Self::Sql(error) | Self::Migrate(MigrateError::Execute(error)) => {
                Some(error.as_database_error()?.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?.number())
            }
            Self::Fenced | Self::TooMany(_) | Self::Damaged(_) | Self::Migrate(_) => None,
        }
    }
}

impl Failure for Trouble {
    const STORE: Store = Store::Mysql;

    fn kind(&self) -> PortErrorKind {
        if let Some(number) = self.number() {
            // Besides lost races: too many connections, shutting down, read-only while another server takes over, a
            // connection that was killed.
            let passing =
                self.is_race() || matches!(number, 1040 | 1053 | 1077 | 1079 | 1203 | 1290 | 1317 | 1792 | 1836 | 1927 | 3024 | 4031);
            return if passing { PortErrorKind::Unavailable } else { PortErrorKind::Broken };
        }
        let error = match self {
            Self::Fenced => return PortErrorKind::Fenced,
            Self::TooMany(_) | Self::Damaged(_) => return PortErrorKind::Broken,
            Self::Sql(error) | Self::Migrate(MigrateError::Execute(error)) => error,
            Self::Migrate(_) => return PortErrorKind::Broken,
        };
        // `Protocol` is what a connection says that was cut in the middle of an answer.
        let passing = matches!(error, Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::PoolTimedOut | Error::PoolClosed);
        if passing { PortErrorKind::Unavailable } else { PortErrorKind::Broken }
    }
}
