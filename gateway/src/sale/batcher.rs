//! Admission in batches: attempts of one lot that arrive while a call is under way share the next one.
//!
//! An idle lot is asked at once; a busy one is asked for up to 64 users at a time, which is where the admission store's
//! capacity comes from. Order within a node is kept. One task per lot; it ends when nobody has asked for a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::id::Lot;
use gateway_core::ports::{Admission, PortError, PortErrorKind, Store};
use gateway_core::sale::{Admit, SaleAttempt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::telemetry::Metrics;

/// Attempts of one lot that may wait on this node; at 64 per call and under a millisecond a call this is well under a second.
const WAITING_MAX: usize = 8_192;
/// Idle time after which a lot's task ends.
const IDLE: Duration = Duration::from_secs(60);

type Answer = Result<Admit, Arc<PortError>>;
type Waiting = (SaleAttempt, oneshot::Sender<Answer>);

/// Why there is no answer to an attempt.
#[derive(Debug)]
pub(crate) enum BatchError {
    /// The store failed the call this attempt was part of; the attempt may or may not have been admitted.
    Port(Arc<PortError>),
    /// More attempts are waiting than this node takes.
    Full,
}

/// Collects attempts per lot and asks the admission store.
pub(crate) struct Batcher {
    admission: Arc<dyn Admission>,
    metrics: Arc<Metrics>,
    batch_max: usize,
    wait: Duration,
    lots: Mutex<BTreeMap<Lot, mpsc::Sender<Waiting>>>,
}

impl Batcher {
    /// `batch_max` is 1 to 64; `wait` is how long a busy lot's next batch may stay open, at most 1 ms.
    pub(crate) fn new(admission: Arc<dyn Admission>, metrics: Arc<Metrics>, batch_max: usize, wait: Duration) -> Self {
        Self { admission, metrics, batch_max: batch_max.clamp(1, 64), wait, lots: Mutex::default() }
    }

    /// Asks for one attempt. The lot must be a known one: each costs a task.
    pub(crate) async fn admit(&self, lot: Lot, attempt: SaleAttempt) -> Result<Admit, BatchError> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = (attempt, answer);
        // A task that ended between look-up and send gives the attempt back; the second look-up starts a new one.
        loop {
            match self.task(lot).try_send(waiting) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(_)) => return Err(BatchError::Full),
                Err(mpsc::error::TrySendError::Closed(back)) => {
                    self.lots.lock().unwrap_or_else(PoisonError::into_inner).remove(&lot);
                    waiting = back;
                }
            }
        }
        // The task answers every attempt it took: the store's calls have deadlines.
        match answered.await {
            Ok(answer) => answer.map_err(BatchError::Port),
            Err(_) => Err(BatchError::Port(Arc::new(PortError {
                kind: PortErrorKind::Unavailable,
                store: Store::Redis,
                doing: "admit attempts",
                source: None,
            }))),
        }
    }

    fn task(&self, lot: Lot) -> mpsc::Sender<Waiting> {
        let mut lots = self.lots.lock().unwrap_or_else(PoisonError::into_inner);
        lots.entry(lot)
            .or_insert_with(|| {
                let (sender, receiver) = mpsc::channel(WAITING_MAX);
                let task = LotTask {
                    lot,
                    admission: self.admission.clone(),
                    metrics: self.metrics.clone(),
                    batch_max: self.batch_max,
                    wait: self.wait,
                };
                tokio::spawn(task.run(receiver));
                sender
            })
            .clone()
    }
}

struct LotTask {
    lot: Lot,
    admission: Arc<dyn Admission>,
    metrics: Arc<Metrics>,
    batch_max: usize,
    wait: Duration,
}

impl LotTask {
    async fn run(self, mut receiver: mpsc::Receiver<Waiting>) {
        let mut batch = Vec::with_capacity(self.batch_max);
        let mut busy = false;
        loop {
            match timeout(IDLE, receiver.recv_many(&mut batch, self.batch_max)).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    receiver.close();
                    // What was sent before the close is still answered; then recv_many says 0.
                    continue;
                }
            }
            if busy && batch.len() < self.batch_max && !self.wait.is_zero() {
                let room = self.batch_max - batch.len();
                let _ = timeout(self.wait, receiver.recv_many(&mut batch, room)).await;
            }
            busy = batch.len() > 1;
            let (attempts, answers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
            self.metrics.admit_batch_size.with_label_values::<&str>(&[]).observe(attempts.len() as f64);
            match self.admission.admit(self.lot, &attempts).await {
                Ok(outcomes) => {
                    debug_assert_eq!(outcomes.len(), attempts.len(), "one answer per attempt");
                    for (answer, outcome) in answers.into_iter().zip(outcomes) {
                        // A client that went away does not want its answer.
                        let _ = answer.send(Ok(outcome));
                    }
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for answer in answers {
                        let _ = answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}
