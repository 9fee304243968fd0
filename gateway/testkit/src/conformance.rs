//! One suite per port, written from the port's words alone: whatever implements the port must pass it.
//!
//! What lives here: checks that panic with a sentence when a promise is broken. What never happens here: a call that
//! is not in the port, knowledge of an adapter, a fixed name. Every check makes names of its own from [`Fresh`], so a
//! suite can run again and again on one live store. Called by the integration tests of `gateway-embedded` and
//! `gateway-stores`.

pub mod admission;
pub mod budgets;
pub mod bus;
pub mod chat_ledger;
pub mod nonces;
pub mod notices;
pub mod presence;
pub mod registry;
pub mod roaming;
pub mod sale_ledger;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::id::{ActivityId, Lot, OrderNo, PrincipalId, ShopId, SkuId};
use gateway_core::time::UnixMillis;

/// How long a check waits for what must happen before it calls the promise broken; far above any healthy answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long a check listens for what must not happen.
const QUIET: Duration = Duration::from_millis(150);

/// A pause between two looks at something that will change by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A source of names that no earlier run used.
#[derive(Debug)]
pub struct Fresh(AtomicU64);

impl Fresh {
    /// Names start at `start`; two runs on one live store need starts about a million apart.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self(AtomicU64::new(start))
    }

    /// Names start a million times the present millisecond: far above whatever an earlier run can have reached.
    #[must_use]
    pub fn from_clock() -> Self {
        Self::new(now().0.saturating_mul(1_000_000))
    }

    /// A number not given out before, larger than every earlier one.
    pub fn number(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// A user or agent.
    ///
    /// # Panics
    /// Never: the name is well-formed.
    pub fn principal(&self) -> PrincipalId {
        PrincipalId::parse(&format!("p.{}", self.number())).expect("well-formed")
    }

    /// A lot nobody sells.
    pub fn lot(&self) -> Lot {
        Lot { activity: ActivityId(self.number()), sku: SkuId(self.number()) }
    }

    /// A shop.
    pub fn shop(&self) -> ShopId {
        ShopId(self.number())
    }

    /// An order number.
    ///
    /// # Panics
    /// Never: 16 letters spell every number of 64 bits.
    pub fn order_no(&self) -> OrderNo {
        let number = self.number();
        let letters = (0..16).map(|place| char::from(b'A' + (number >> (60 - 4 * place) & 15) as u8));
        OrderNo::parse(&format!("SK{}", letters.collect::<String>())).expect("well-formed")
    }

    /// A word that begins with `prefix`.
    pub fn word(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.number())
    }

    /// A partition that is not among the first hundred, which live workers use.
    pub fn partition(&self) -> u16 {
        100 + u16::try_from(self.number() % 60_000).unwrap_or(0)
    }
}

/// The machine's wall clock; stores under test run on the same machine.
fn now() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Looks again and again until `look` finds something.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let search = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    match tokio::time::timeout(PATIENCE, search).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// `instant` moved by whole seconds, backwards for a negative number.
fn shift(instant: UnixMillis, seconds: i64) -> UnixMillis {
    UnixMillis(instant.0.saturating_add_signed(seconds * 1_000))
}
