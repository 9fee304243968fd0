//! Ports that fail: an adapter in a wrapper that loses calls, loses answers, and stops the caller for good.
//!
//! What lives here: when a call fails and how. What never happens here: an effect of its own; a call that is not failed is the
//! adapter's, whole. Every call lets others act before and after its effect, so that whoever polls several callers in turn
//! sees every interleaving.
//!
//! A process under test has one [`Faults`]. [`Faults::run`] runs one of its steps to the end, or to the call at which the
//! process is killed.

mod admission;
mod bus;
mod ledger;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use gateway_core::ports::{Admission, Bus, PortError, PortErrorKind, PortResult, SaleLedger, Store};
use tokio::sync::Notify;

use crate::dice::Dice;

/// How often a call fails, per mille of all calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odds {
    /// Nothing happens, and the caller is told that the service is away.
    pub lost_calls: u32,
    /// The effect happens, and the caller is told that the service is away.
    pub lost_answers: u32,
    /// The caller is killed, before the effect or after it.
    pub stops: u32,
}

impl Odds {
    /// Nothing fails.
    pub const NONE: Self = Self { lost_calls: 0, lost_answers: 0, stops: 0 };
}

/// The fate of one process's calls.
#[derive(Debug)]
pub struct Faults {
    dice: Arc<Dice>,
    odds: Odds,
    healed: AtomicBool,
    stopped: AtomicBool,
    stop: Notify,
    injected: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LostCall,
    LostAnswer,
    StopBefore,
    StopAfter,
}

impl Faults {
    /// Faults as `dice` and `odds` will have them.
    #[must_use]
    pub fn new(dice: Arc<Dice>, odds: Odds) -> Arc<Self> {
        let (healed, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { dice, odds, healed, stopped, stop: Notify::new(), injected: AtomicU64::new(0) })
    }

    /// No call fails from now on.
    pub fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    /// Whether a call stopped the process: whatever polls it may drop it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Calls failed so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// Runs a step to its end. `None`: the process was killed in the middle of it, and everything it had in memory is gone.
    pub async fn run<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            // Whichever arm loses is never polled again: a process that is killed does not go on.
            done = step => Some(done),
            () = self.stop.notified() => None,
        }
    }

    /// The admission store, as this process sees it.
    #[must_use]
    pub fn admission(self: &Arc<Self>, port: Arc<dyn Admission>) -> Arc<dyn Admission> {
        Arc::new(Faulty { port, faults: Arc::clone(self) })
    }

    /// The ledger, as this process sees it.
    #[must_use]
    pub fn ledger(self: &Arc<Self>, port: Arc<dyn SaleLedger>) -> Arc<dyn SaleLedger> {
        Arc::new(Faulty { port, faults: Arc::clone(self) })
    }

    /// The bus, as this process sees it.
    #[must_use]
    pub fn bus(self: &Arc<Self>, port: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(Faulty { port, faults: Arc::clone(self) })
    }

    fn draw(&self) -> Fault {
        if self.healed.load(Ordering::Relaxed) {
            return Fault::None;
        }
        let Odds { lost_calls, lost_answers, stops } = self.odds;
        let throw = u32::try_from(self.dice.throw() % 1_000).unwrap_or(0);
        let fault = match throw {
            throw if throw < lost_calls => Fault::LostCall,
            throw if throw < lost_calls + lost_answers => Fault::LostAnswer,
            throw if throw < lost_calls + lost_answers + stops && throw % 2 == 0 => Fault::StopBefore,
            throw if throw < lost_calls + lost_answers + stops => Fault::StopAfter,
            _ => Fault::None,
        };
        self.injected.fetch_add(u64::from(fault != Fault::None), Ordering::Relaxed);
        fault
    }

    async fn around<T>(&self, store: Store, effect: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        let fault = self.draw();
        let away = || PortError { kind: PortErrorKind::Unavailable, store, doing: "meet a fault", source: None };
        step_aside().await;
        match fault {
            Fault::LostCall => return Err(away()),
            Fault::StopBefore => self.halt().await,
            Fault::None | Fault::LostAnswer | Fault::StopAfter => {}
        }
        let answer = effect.await;
        step_aside().await;
        match fault {
            Fault::LostAnswer => Err(away()),
            Fault::StopAfter => {
                self.halt().await;
                answer
            }
            Fault::None | Fault::LostCall | Fault::StopBefore => answer,
        }
    }

    async fn halt(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.stop.notify_one();
        std::future::pending().await
    }
}

/// A port whose calls may fail.
struct Faulty<P: ?Sized> {
    port: Arc<P>,
    faults: Arc<Faults>,
}

/// Lets others act: pending once, then ready.
pub async fn step_aside() {
    struct Once(bool);
    impl Future for Once {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Once(false).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    async fn outcome(odds: Odds) -> (Option<bool>, u32) {
        let (faults, effects) = (Faults::new(Arc::new(Dice::new(1)), odds), AtomicU32::new(0));
        let effect = async {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let answer = faults.run(faults.around(Store::Redis, effect)).await;
        (answer.map(|answer| answer.is_ok()), effects.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_fault_is_before_the_effect_or_after_it_or_the_end() {
        assert_eq!(outcome(Odds::NONE).await, (Some(true), 1));
        assert_eq!(outcome(Odds { lost_calls: 1_000, ..Odds::NONE }).await, (Some(false), 0));
        assert_eq!(outcome(Odds { lost_answers: 1_000, ..Odds::NONE }).await, (Some(false), 1));
        assert_eq!(outcome(Odds { stops: 1_000, ..Odds::NONE }).await.0, None);
    }
}
