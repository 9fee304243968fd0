//! Bounds of one connection. Every queue, map and wait of the state machine is named here.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::chat::frame::FrameLimits;
use crate::config::{FrameGuard, Signature};

/// What one connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Frames from the client, and pages.
    pub frame: FrameLimits,
    /// Partitions of the ingest queue; every node must use the same number.
    pub partitions: NonZeroU16,
    /// How often something should be heard from the client. Three times this in silence ends the connection.
    pub heartbeat: Duration,
    /// How often the positions of all sessions are compared with the ledger: repairs what the bus lost.
    pub position_check: Duration,
    /// Bytes of frames waiting for the socket from which on nothing more is pushed; the rest is read again later. Replays
    /// go on below half of it. At four times this the connection is closed.
    pub queue_bytes_max: usize,
    /// How long the oldest frame may wait for the socket before the connection is closed as slow.
    pub write_stall: Duration,
    /// Sessions followed; the least recently active one makes room, and is found again when something happens in it.
    pub sessions_max: usize,
    /// Messages waiting to be queued, refused messages to come again, and frames waiting for the look-up of their session, each;
    /// frames waiting for nonces, before the shell reads no more; four times as many messages await their acceptance.
    pub sends_max: usize,
    /// Page reads under way for replays, and as many for `history`.
    pub reads_max: usize,
    /// Look-ups of unknown sessions, and session openings, under way.
    pub lookups_max: usize,
    /// How long later messages of a session wait for a failed one to be sent again.
    pub order_hold: Duration,
    /// How long before its end a token is announced to expire.
    pub expiry_notice: Duration,
    /// Frames without sense in a row that end the connection.
    pub misuse_max: u32,
    /// What frames must prove beside their connection.
    pub guard: FrameGuard,
    /// Told to clients: after a close that they did not ask for they wait a random time up to this before the first attempt.
    pub reconnect_within: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            frame: FrameLimits::default(),
            partitions: NonZeroU16::MIN.saturating_add(7),
            heartbeat: Duration::from_secs(10),
            position_check: Duration::from_secs(10),
            queue_bytes_max: 256 * 1024,
            write_stall: Duration::from_secs(10),
            sessions_max: 1_000,
            sends_max: 256,
            reads_max: 4,
            lookups_max: 64,
            order_hold: Duration::from_secs(10),
            expiry_notice: Duration::from_secs(60),
            misuse_max: 100,
            guard: FrameGuard { required: false, skew: Duration::from_secs(300), signature: Signature::Off },
            reconnect_within: Duration::from_secs(1),
        }
    }
}
