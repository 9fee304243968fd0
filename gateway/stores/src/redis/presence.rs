//! Presence in Redis: per party a sorted set of its connections, scored with the instant their heartbeat expires.

use async_trait::async_trait;
use gateway_core::chat::{Party, Side};
use gateway_core::ports::{PortResult, Presence};
use gateway_core::time::UnixMillis;
use redis::Pipeline;

use super::RedisStore;

/// The set of a party that is gone for good is removed this long after its last heartbeat. Heartbeats come every few
/// seconds, so nobody online loses one; the score, not this, says who is online.
const FORGOTTEN_AFTER_S: u64 = 3_600;

#[async_trait]
impl Presence for RedisStore {
    async fn beat(&self, who: &Party, connection: &str, until: UnixMillis) -> PortResult<()> {
        let key = key(who);
        let long_dead = until.0.saturating_sub(FORGOTTEN_AFTER_S * 1_000);
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZADD").arg(&key).arg(until.0).arg(connection).ignore();
        // Connections of nodes that were killed never say goodbye.
        pipeline.cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(format!("({long_dead}")).ignore();
        pipeline.cmd("EXPIRE").arg(&key).arg(FORGOTTEN_AFTER_S).ignore();
        self.pipeline("record a heartbeat", &pipeline).await
    }

    async fn leave(&self, who: &Party, connection: &str) -> PortResult<()> {
        self.query("end a presence", redis::cmd("ZREM").arg(key(who)).arg(connection)).await
    }

    async fn online(&self, who: &[Party], now: UnixMillis) -> PortResult<Vec<bool>> {
        if who.is_empty() {
            return Ok(Vec::new());
        }
        let count = |commands: &mut Pipeline, party: &Party| {
            commands.cmd("ZCOUNT").arg(key(party)).arg(format!("({}", now.0)).arg("+inf");
        };
        let alive: Vec<u64> = self.each("ask who is online", who, count).await?;
        Ok(alive.into_iter().map(|connections| connections > 0).collect())
    }
}

fn key(who: &Party) -> String {
    let place = match who.side {
        Side::User => "chat:online",
        Side::Agent => "chat:admin:online",
    };
    // Two shops may call an agent by one name.
    match who.shop {
        Some(shop) => format!("{place}:{shop}.{}", who.id),
        None => format!("{place}:{}", who.id),
    }
}
