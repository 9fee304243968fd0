//! Nonces in Redis: per party a sorted set of what it used, scored with until when. `lua/chat/nonce.lua` is the one step.

use std::sync::LazyLock;

use async_trait::async_trait;
use gateway_core::chat::Party;
use gateway_core::ports::{NONCES_MAX, Nonces, PortResult};
use gateway_core::time::UnixMillis;

use super::script::Script;
use super::{RedisStore, name};

static USE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/chat/nonce.lua")));

#[async_trait]
impl Nonces for RedisStore {
    async fn first_use(&self, party: &Party, nonce: &str, now: UnixMillis, until: UnixMillis) -> PortResult<bool> {
        let mut call = USE.call();
        call.key(format!("chat:nonce:{}", name(party))).arg(nonce).arg(now.0).arg(until.0).arg(NONCES_MAX);
        self.script("use a nonce up", &call).await
    }
}
