//! `[chat]`: customer service over sockets.

use std::time::Duration;

use super::section::Section;
use crate::chat::sla::Targets;
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
    /// Sockets a node opens in a second; more wait their turn.
    pub connects_per_second: u32,
    /// How long a handshake may wait for its turn before it is told to come back.
    pub connect_wait: Duration,
    /// Queued messages of a shop above which bots of that shop do not answer.
    pub backlog_max: u64,
    /// What frames must prove beside their connection.
    pub guard: FrameGuard,
    /// People who serve users.
    pub agents: Agents,
    /// How long the clocks of a session may run.
    pub targets: Targets,
}

/// Against frames that are recorded and sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameGuard {
    /// Whether frames without `timestamp` and `nonce` are refused. Those that have them are always checked.
    pub required: bool,
    /// How far a frame's `timestamp` may be from the node's clock.
    pub skew: Duration,
    /// Whether frames may, or must, be signed with a key that `hello` hands out.
    pub signature: Signature,
}

/// What is asked of signatures of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// No key is handed out; signed frames are refused.
    Off,
    /// A key is handed out; a signature that is there is checked.
    Offered,
    /// Frames without a signature are refused.
    Required,
}

/// What agents may have, and when they count as gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agents {
    /// Open sessions at which an agent gets no more, unless it wants fewer.
    pub open_max: u32,
    /// How long an agent may be without a living connection before its sessions go to others.
    pub gone_after: Duration,
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
            connects_per_second: section.number("connects_per_second", 1_000, 1..=1_000_000),
            connect_wait: section.millis("connect_wait_ms", 5_000, 0..=60_000),
            backlog_max: section.number("backlog_max", 10_000, 1..=1_000_000),
            guard: FrameGuard::read(section.section("guard")),
            agents: Agents::read(section.section("agents")),
            targets: targets(section.section("targets")),
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

impl FrameGuard {
    fn read(mut section: Section<'_>) -> Self {
        Self {
            required: section.flag("required", false),
            skew: section.millis("skew_ms", 300_000, 1_000..=3_600_000),
            signature: section.choice(
                "signature",
                Signature::Off,
                &[("off", Signature::Off), ("offered", Signature::Offered), ("required", Signature::Required)],
            ),
        }
    }
}

impl Agents {
    fn read(mut section: Section<'_>) -> Self {
        Self { open_max: section.number("open_max", 20, 1..=1_000), gone_after: section.millis("gone_after_ms", 30_000, 100..=3_600_000) }
    }
}

fn targets(mut section: Section<'_>) -> Targets {
    let mut target = |key| Some(section.millis(key, 0, 0..=31_536_000_000)).filter(|target| !target.is_zero());
    Targets { first_response: target("first_response_ms"), next_response: target("next_response_ms"), resolution: target("resolution_ms") }
}
