//! Nonces that sockets of this node have used up: the first thing asked, and all there is while the shared store is away.
//!
//! What never happens here: a second road for a frame that was recorded on another node, as long as the store answers.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use gateway_core::chat::Party;
use gateway_core::time::UnixMillis;

use crate::node::Node;
use crate::socket::reads::roaming;

/// Nonces of one of two generations; the older one is forgotten when the younger is full. At 16 bytes each this is about 4 MB.
const GENERATION_MAX: usize = 100_000;

/// What was used here lately.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// Keyed at random, so that nobody can look for two nonces that count as one.
    hasher: RandomState,
    generations: Mutex<[HashSet<u64>; 2]>,
}

impl Used {
    /// Whether this is the first use, as far as this node remembers.
    fn is_first(&self, party: &Party, nonce: &str) -> bool {
        let key = self.hasher.hash_one((party, nonce));
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.iter().any(|generation| generation.contains(&key)) {
            return false;
        }
        if generations[0].len() >= GENERATION_MAX {
            generations.swap(0, 1);
            generations[0].clear();
        }
        generations[0].insert(key)
    }
}

/// Whether `party` uses `nonce` for the first time; it is remembered for as long as a frame of `timestamp` is taken.
pub(crate) async fn first_use(node: &Node, party: &Party, nonce: &str, timestamp: UnixMillis, now: UnixMillis) -> bool {
    if !node.switchboard.nonces.is_first(party, nonce) {
        return false;
    }
    let until = timestamp.plus(2 * node.config.chat.guard.skew);
    // The store of the roaming lists is that of the nonces: while it is away, chat goes on with what is known here.
    roaming(node, node.ports.nonces.first_use(party, nonce, now, until)).await.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use gateway_core::id::PrincipalId;

    use super::*;

    #[test]
    fn a_nonce_is_used_once_per_party_and_memory_is_bounded() {
        let used = Used::default();
        let [a, b] = ["a", "b"].map(|id| Party::user(PrincipalId::parse(id).unwrap()));
        assert!(used.is_first(&a, "n") && !used.is_first(&a, "n") && used.is_first(&b, "n"));
        for number in 0..3 * GENERATION_MAX {
            assert!(used.is_first(&a, &number.to_string()));
        }
        let kept: usize = used.generations.lock().unwrap().iter().map(HashSet::len).sum();
        assert!(kept <= 2 * GENERATION_MAX, "{kept}");
        assert!(!used.is_first(&a, &(3 * GENERATION_MAX - 1).to_string()));
    }
}
