//! `[chat]`: customer service over sockets.

use std::time::Duration;

use super::section::Section;
use crate::id::ShopId;
use crate::origin::Origin;

/// TOML's integers are signed 64-bit numbers.
const SHOP_ID_MAX: u64 = i64::MAX.unsigned_abs();

/// Bounds and intervals of chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    /// Into how many partitions sessions are hashed. The same on every node and worker, and fixed once data exists.
    pub partitions: u16,
    /// The shop of a session whose opener names none.
    pub default_shop: ShopId,
    /// How often a socket's presence is renewed and its peer is pinged.
    pub heartbeat: Duration,
    /// How long a presence outlives its last heartbeat.
    pub presence_ttl: Duration,
    /// How often an open socket compares its positions with the ledger's.
    pub position_check: Duration,
    /// Most messages of one page of history.
    pub page_max: u32,
    /// Most bytes of one frame and of one message.
    pub frame_bytes_max: usize,
    /// Most bytes waiting for one slow client; beyond it catches up from storage.
    pub queue_bytes_max: usize,
    /// Most sockets at once.
    pub sockets_max: usize,
    /// Origins whose pages may open sockets; empty means the page's own host.
    pub origins: Vec<Origin>,
}

impl Chat {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let chat = Self {
            partitions: section.number("partitions", 8, 1..=1_024),
            default_shop: ShopId(section.number("default_shop", 1, 1..=SHOP_ID_MAX)),
            heartbeat: section.millis("heartbeat_ms", 10_000, 100..=300_000),
            presence_ttl: section.millis("presence_ttl_ms", 30_000, 200..=900_000),
            position_check: section.millis("position_check_ms", 10_000, 100..=600_000),
            page_max: section.number("page_max", 200, 1..=200),
            frame_bytes_max: section.number("frame_bytes_max", 65_536, 1_024..=1_048_576),
            queue_bytes_max: section.number("queue_bytes_max", 262_144, 4_096..=16_777_216),
            sockets_max: section.number("sockets_max", 10_000, 1..=1_000_000),
            origins: section.list("origins", "an origin, e.g. \"https://shop.example\"", Origin::parse),
        };
        if chat.presence_ttl < 2 * chat.heartbeat {
            section.blame(
                "presence_ttl_ms",
                "is shorter than two heartbeats",
                "make it at least 2 × `heartbeat_ms`, so that one may be late",
            );
        }
        if chat.queue_bytes_max < chat.frame_bytes_max {
            section.blame("queue_bytes_max", "is smaller than `frame_bytes_max`", "let the queue hold at least one frame");
        }
        chat
    }
}
