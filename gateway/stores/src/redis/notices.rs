//! Notices in Redis: per party one short stream, whose entries carry the numbers. `lua/notice/append.lua` gives them.

use std::collections::HashMap;
use std::sync::LazyLock;

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::chat::Party;
use gateway_core::ports::{NOTICES_MAX, Notices, PortResult};

use super::script::Script;
use super::{RedisStore, nonsense};
use crate::error::failed;

static APPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/notice/append.lua")));

/// A party is forgotten this long after its latest notice.
const FORGOTTEN_AFTER_S: u32 = 7 * 24 * 3_600;

#[async_trait]
impl Notices for RedisStore {
    async fn append(&self, to: &Party, key: &str, notice: Bytes) -> PortResult<u64> {
        let mut call = APPEND.call();
        call.key(stream(to)).arg(key).arg(notice.as_ref()).arg(NOTICES_MAX).arg(FORGOTTEN_AFTER_S);
        self.script("append a notice", &call).await
    }

    async fn since(&self, party: &Party, after: u64) -> PortResult<Vec<(u64, Bytes)>> {
        const DOING: &str = "read notices";
        let mut range = redis::cmd("XRANGE");
        range.arg(stream(party)).arg(format!("({after}-0")).arg("+");
        let entries: Vec<(String, HashMap<String, Vec<u8>>)> = self.query(DOING, &range).await?;
        let read = |(id, mut fields): (String, HashMap<String, Vec<u8>>)| {
            let number = id.strip_suffix("-0").and_then(|number| number.parse().ok());
            number.zip(fields.remove("n").map(Bytes::from)).ok_or_else(|| failed(DOING, nonsense(&format!("notice {id}"))))
        };
        entries.into_iter().map(read).collect()
    }
}

fn stream(party: &Party) -> String {
    match party.shop {
        None => format!("notice:{{{}:{}}}", party.side.as_str(), party.id),
        Some(shop) => format!("notice:{{{}:{shop}.{}}}", party.side.as_str(), party.id),
    }
}
