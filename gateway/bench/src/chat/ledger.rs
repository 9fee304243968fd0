//! What MariaDB holds, read past the product: the bench's own opinion of the tables.

use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use tokio::time::{Instant, sleep, timeout};

/// Longest look; a server that was killed and comes back takes longer, and is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How long it is asked again, and how often.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

const MESSAGES: &str = "select seq, client_msg_id, content from chat_message where session_id = ? order by seq";

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) key: String,
    pub(super) content: String,
}

/// A pool whose connections are made again when the server came back.
#[derive(Debug)]
pub(super) struct Ledger {
    pool: MySqlPool,
}

impl Ledger {
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let options = MySqlConnectOptions::from_str(url)?;
        Ok(Self { pool: MySqlPoolOptions::new().max_connections(1).acquire_timeout(ANSWERS_WITHIN).connect_with(options).await? })
    }

    /// Every message of a session, in order.
    pub(super) async fn messages(&self, session: &str) -> anyhow::Result<Vec<Row>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asking = sqlx::query_as(MESSAGES).bind(session).fetch_all(&self.pool);
            match timeout(ANSWERS_WITHIN, asking).await {
                Ok(Ok(rows)) => {
                    let rows: Vec<(u64, String, String)> = rows;
                    return Ok(rows.into_iter().map(|(seq, key, content)| Row { seq, key, content }).collect());
                }
                Ok(Err(error)) if Instant::now() >= deadline => return Err(error.into()),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Ok(Err(_)) | Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }
}
