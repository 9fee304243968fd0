//! Which partition of the ingest queue a session belongs to.
//!
//! Every node must agree on this for as long as messages are queued, so the function is written out here and pinned by a
//! test instead of being borrowed from a hasher that may change. Called where a message is queued.

use std::num::NonZeroU16;

use crate::id::SessionId;

/// The partition of `session` among `partitions`: 64-bit FNV-1a over the id's eight little-endian bytes, modulo.
/// All messages of a session go through one partition; that is what keeps a sender's order.
#[must_use]
pub fn partition_of(session: SessionId, partitions: NonZeroU16) -> u16 {
    let place = fnv1a(&session.0.to_le_bytes()) % u64::from(partitions.get());
    u16::try_from(place).unwrap_or(0)
}

/// 64-bit FNV-1a.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of the FNV authors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn neighbouring_sessions_spread_over_all_partitions() {
        let eight = NonZeroU16::new(8).unwrap();
        let mut counts = [0_u32; 8];
        for id in 0..8_000 {
            counts[usize::from(partition_of(SessionId(id), eight))] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn one_partition_takes_everything() {
        assert_eq!(partition_of(SessionId(u64::MAX), NonZeroU16::MIN), 0);
    }
}
