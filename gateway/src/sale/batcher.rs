//! Admission in batches: attempts of one shard that arrive while a call is under way share the next one.
//!
//! An idle shard is asked at once; a busy one is asked for up to 64 users at a time, which is where the admission store's
//! capacity comes from. Order within a node is kept. While the store is away the same attempts are asked about again, with
//! the same order numbers, so a failover costs a buyer time and nothing else. One task per shard; it ends when nobody has
//! asked for a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::backoff::Backoff;
use gateway_core::ports::{Admission, PortError, PortErrorKind, Store};
use gateway_core::sale::{Admit, SaleAttempt, Shard};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::telemetry::Metrics;

/// Attempts of one shard that may wait on this node; at 64 per call and under a millisecond a call this is well under a
/// second.
const WAITING_MAX: usize = 8_192;
/// Idle time after which a shard's task ends.
const IDLE: Duration = Duration::from_secs(60);
/// Pauses between calls to a store that is away: short, because a failover is over within a second or two.
const RETRY: Backoff = Backoff { min: Duration::from_millis(20), max: Duration::from_millis(200) };

type Answer = Result<Admit, Arc<PortError>>;

/// Why there is no answer to an attempt.
#[derive(Debug)]
pub(crate) enum BatchError {
    /// The store failed the call this attempt was part of, for as long as there was patience; the attempt may or may not
    /// have been admitted.
    Port(Arc<PortError>),
    /// More attempts are waiting than this node takes.
    Full,
}

/// How attempts are put together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batching {
    /// Most attempts of one call, 1 to 64.
    pub batch_max: usize,
    /// How long a busy shard's next batch may stay open, at most 1 ms.
    pub wait: Duration,
    /// How long an attempt is tried again while the store is away, from its arrival on.
    pub patience: Duration,
}

/// Collects attempts per shard and asks the admission store.
pub(crate) struct Batcher {
    admission: Arc<dyn Admission>,
    metrics: Arc<Metrics>,
    batching: Batching,
    shards: Mutex<BTreeMap<Shard, mpsc::Sender<Waiting>>>,
}

/// An attempt and whom to tell.
#[derive(Debug)]
struct Waiting {
    attempt: SaleAttempt,
    answer: oneshot::Sender<Answer>,
    arrived: Instant,
}

impl Waiting {
    fn tell(self, answer: Answer) {
        // A client that went away does not want its answer.
        let _ = self.answer.send(answer);
    }
}

impl Batcher {
    /// Asks `admission` as `batching` says.
    pub(crate) fn new(admission: Arc<dyn Admission>, metrics: Arc<Metrics>, batching: Batching) -> Self {
        let batching = Batching { batch_max: batching.batch_max.clamp(1, 64), ..batching };
        Self { admission, metrics, batching, shards: Mutex::default() }
    }

    /// Asks for one attempt. The shard must be one of a known lot: each costs a task.
    pub(crate) async fn admit(&self, shard: Shard, attempt: SaleAttempt) -> Result<Admit, BatchError> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = Waiting { attempt, answer, arrived: Instant::now() };
        // A task that ended between look-up and send gives the attempt back; the second look-up starts a new one.
        loop {
            match self.task(shard).try_send(waiting) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(_)) => return Err(BatchError::Full),
                Err(mpsc::error::TrySendError::Closed(back)) => {
                    self.shards.lock().unwrap_or_else(PoisonError::into_inner).remove(&shard);
                    waiting = back;
                }
            }
        }
        // The task answers every attempt it took: the store's calls have deadlines, and patience has an end.
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

    fn task(&self, shard: Shard) -> mpsc::Sender<Waiting> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards
            .entry(shard)
            .or_insert_with(|| {
                let (sender, receiver) = mpsc::channel(WAITING_MAX);
                let task = ShardTask {
                    shard,
                    admission: self.admission.clone(),
                    metrics: self.metrics.clone(),
                    batching: self.batching,
                    trouble: None,
                };
                tokio::spawn(task.run(receiver));
                sender
            })
            .clone()
    }
}

struct ShardTask {
    shard: Shard,
    admission: Arc<dyn Admission>,
    metrics: Arc<Metrics>,
    batching: Batching,
    /// The store is away.
    trouble: Option<Trouble>,
}

struct Trouble {
    error: Arc<PortError>,
    /// When the last call failed.
    since: Instant,
    /// Calls in a row that failed.
    failures: u32,
}

impl ShardTask {
    async fn run(mut self, mut receiver: mpsc::Receiver<Waiting>) {
        let Batching { batch_max, wait, .. } = self.batching;
        let mut batch = Vec::with_capacity(batch_max);
        let mut busy = false;
        loop {
            if batch.is_empty() {
                match timeout(IDLE, receiver.recv_many(&mut batch, batch_max)).await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(_) => {
                        receiver.close();
                        // What was sent before the close is still answered; then recv_many says 0.
                        continue;
                    }
                }
            }
            if busy && batch.len() < batch_max && !wait.is_zero() {
                let room = batch_max - batch.len();
                let _ = timeout(wait, receiver.recv_many(&mut batch, room)).await;
            }
            busy = batch.len() > 1;
            self.give_up(&mut batch);
            if !batch.is_empty() {
                self.ask(&mut batch).await;
            }
        }
    }

    /// Answers those whose patience is over. Who came after the last failure has not been asked about, and is.
    fn give_up(&self, batch: &mut Vec<Waiting>) {
        let Some(trouble) = &self.trouble else { return };
        let over = |waiting: &mut Waiting| waiting.arrived <= trouble.since && waiting.arrived.elapsed() >= self.batching.patience;
        for waiting in batch.extract_if(.., over) {
            waiting.tell(Err(trouble.error.clone()));
        }
    }

    /// One call. What it leaves in `batch` is to be asked again.
    async fn ask(&mut self, batch: &mut Vec<Waiting>) {
        let attempts: Vec<_> = batch.iter().map(|waiting| waiting.attempt.clone()).collect();
        self.metrics.admit_batch_size.with_label_values::<&str>(&[]).observe(attempts.len() as f64);
        match self.admission.admit(self.shard, &attempts).await {
            Ok(outcomes) => {
                debug_assert_eq!(outcomes.len(), attempts.len(), "one answer per attempt");
                self.trouble = None;
                for (waiting, outcome) in batch.drain(..).zip(outcomes) {
                    waiting.tell(Ok(outcome));
                }
            }
            Err(error) if error.kind == PortErrorKind::Unavailable => {
                let failures = self.trouble.as_ref().map_or(0, |trouble| trouble.failures);
                self.trouble = Some(Trouble { error: Arc::new(error), since: Instant::now(), failures: failures.saturating_add(1) });
                self.give_up(batch);
                if !batch.is_empty() {
                    sleep(RETRY.delay(failures, rand::random())).await;
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for waiting in batch.drain(..) {
                    waiting.tell(Err(error.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use futures::future::join_all;
    use gateway_core::ports::PortErrorKind::{Broken, Unavailable};

    use super::*;
    use crate::sale::rig::{Fault, Rig, user};

    const LONG: Duration = Duration::from_secs(20);
    const AWAY: Fault = Fault::Before(Unavailable);

    fn kind(answer: Result<Admit, BatchError>) -> PortErrorKind {
        match answer {
            Err(BatchError::Port(error)) => error.kind,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_store_that_comes_back_in_time_was_never_away_for_a_buyer() {
        let rig = Rig::open(10, 1).await;
        let batcher = rig.batcher(LONG);
        rig.store.admits_meet([AWAY; 4]);
        let admit = batcher.admit(Shard::first(rig.lot()), rig.attempt(&user("a"), 1)).await.unwrap();
        assert_eq!((admit, rig.store.asked.load(Ordering::Relaxed)), (Admit::Admitted, 5));
    }

    #[tokio::test]
    async fn an_answer_that_was_lost_is_found_again_under_the_same_number() {
        let rig = Rig::open(10, 1).await;
        let batcher = rig.batcher(LONG);
        rig.store.admits_meet([Fault::After]);
        let attempt = rig.attempt(&user("a"), 1);
        let Admit::Replayed(held) = batcher.admit(Shard::first(rig.lot()), attempt.clone()).await.unwrap() else {
            panic!("admitted twice")
        };
        assert_eq!((held.order_no, rig.left().await), (attempt.order_no, vec![9]));
    }

    #[tokio::test]
    async fn patience_has_an_end_and_the_next_buyer_is_asked_about() {
        let rig = Rig::open(10, 1).await;
        let shard = Shard::first(rig.lot());
        for patience in [Duration::ZERO, Duration::from_millis(50)] {
            let batcher = rig.batcher(patience);
            rig.store.admits_meet([AWAY; 1_000]);
            let began = Instant::now();
            let answers = join_all((0..200).map(|number| batcher.admit(shard, rig.attempt(&user(&format!("u{number}")), 1)))).await;
            assert!(answers.into_iter().all(|answer| kind(answer) == Unavailable));
            assert!(began.elapsed() >= patience && began.elapsed() < LONG, "{:?}", began.elapsed());
            rig.store.back();
            let name = user(&format!("late-{}", patience.as_millis()));
            assert_eq!(batcher.admit(shard, rig.attempt(&name, 1)).await.unwrap(), Admit::Admitted, "{patience:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_sense_is_not_asked_for_again() {
        let rig = Rig::open(10, 1).await;
        let batcher = rig.batcher(LONG);
        rig.store.admits_meet([Fault::Before(Broken)]);
        let attempt = rig.attempt(&user("a"), 1);
        assert_eq!(kind(batcher.admit(Shard::first(rig.lot()), attempt).await), Broken);
        assert_eq!(rig.store.asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn attempts_that_come_together_share_calls_and_keep_their_order() {
        let rig = Rig::open(100, 1).await;
        let batcher = rig.batcher(LONG);
        let answers =
            join_all((0..300).map(|number| batcher.admit(Shard::first(rig.lot()), rig.attempt(&user(&format!("u{number}")), 1)))).await;
        let admitted: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Admit::Admitted))).collect();
        assert!(admitted[..100].iter().all(|admitted| *admitted) && !admitted[100..].contains(&true));
        assert!(rig.store.asked.load(Ordering::Relaxed) <= 10);
    }
}
