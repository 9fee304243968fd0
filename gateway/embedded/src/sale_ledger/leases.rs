//! Leases of lots: who writes their orders, and under which token.

use std::collections::BTreeMap;
use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::LotLease;
use gateway_core::time::UnixMillis;

/// The lease of every lot that ever had one.
#[derive(Default)]
pub(super) struct Leases {
    by_lot: BTreeMap<Lot, Held>,
}

#[derive(Default)]
struct Held {
    owner: String,
    token: u64,
    until: UnixMillis,
}

impl Leases {
    /// Takes or prolongs; `None`: somebody else holds it, or it was given back (`ttl` is zero).
    pub(super) fn take(&mut self, owner: &str, lot: Lot, ttl: Duration, now: UnixMillis) -> Option<LotLease> {
        let held = self.by_lot.entry(lot).or_default();
        let free = held.until <= now;
        if ttl.is_zero() {
            if held.owner == owner {
                held.until = now;
            }
            return None;
        }
        if held.owner != owner && !free {
            return None;
        }
        if free {
            *held = Held { owner: owner.to_owned(), token: held.token + 1, until: now };
        }
        held.until = now.plus(ttl);
        Some(LotLease { lot, token: held.token })
    }

    /// Whether `lease` is in force at `now`.
    pub(super) fn holds(&self, lease: &LotLease, now: UnixMillis) -> bool {
        self.by_lot.get(&lease.lot).is_some_and(|held| held.token == lease.token && held.until > now)
    }

    /// Lots that ever had a lease.
    pub(super) fn len(&self) -> usize {
        self.by_lot.len()
    }
}
