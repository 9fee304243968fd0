//! Tokens whose signature was good. Keyed by digest, so that the cache holds no token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;
use sha2::{Digest as _, Sha256};

use super::keys::Print;

pub(super) type Digest = [u8; 32];

/// What a good token says, times included: they are checked at each use.
pub(super) struct Verified {
    pub(super) principal: Principal,
    pub(super) not_before: UnixMillis,
    /// The key that signed it: it is only good while that key is.
    pub(super) key: Print,
}

/// Two halves: what is used moves to the young one, and when that is full the old one is forgotten whole. Bounded without
/// a clock, a queue or a scan.
pub(super) struct Cache {
    half_max: usize,
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    young: HashMap<Digest, Arc<Verified>>,
    old: HashMap<Digest, Arc<Verified>>,
}

impl Cache {
    /// A cache of at most `tokens_max` tokens.
    pub(super) fn new(tokens_max: usize) -> Self {
        Self { half_max: (tokens_max / 2).max(1), halves: Mutex::default() }
    }

    pub(super) fn digest(token: &str) -> Digest {
        Sha256::digest(token.as_bytes()).into()
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<Verified>> {
        // No code under this lock can panic half-way through a change.
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verified) = halves.young.get(digest) {
            return Some(Arc::clone(verified));
        }
        let verified = halves.old.remove(digest)?;
        self.insert(&mut halves, *digest, Arc::clone(&verified));
        Some(verified)
    }

    pub(super) fn put(&self, digest: Digest, verified: Verified) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        self.insert(&mut halves, digest, Arc::new(verified));
    }

    fn insert(&self, halves: &mut Halves, digest: Digest, verified: Arc<Verified>) {
        if halves.young.len() >= self.half_max {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(digest, verified);
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::id::PrincipalId;
    use gateway_core::principal::Role;

    use super::*;

    fn verified() -> Verified {
        let principal = Principal {
            id: PrincipalId::parse("u").unwrap(),
            role: Role::User,
            shop: None,
            scopes: Vec::new(),
            expires_at: UnixMillis(0),
            token_id: None,
        };
        Verified { principal, not_before: UnixMillis(0), key: [0; 32] }
    }

    #[test]
    fn forgets_what_is_not_used_and_never_grows_beyond_its_bound() {
        let cache = Cache::new(8);
        let kept = Cache::digest("kept");
        cache.put(kept, verified());
        for number in 0..1_000 {
            cache.put(Cache::digest(&number.to_string()), verified());
            assert!(cache.get(&kept).is_some(), "used all the time, so never forgotten");
            let halves = cache.halves.lock().unwrap();
            assert!(halves.young.len() + halves.old.len() <= 8);
        }
        assert!(cache.get(&Cache::digest("0")).is_none());
    }
}
