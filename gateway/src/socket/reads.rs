//! Reading messages and positions: from the roaming list where it knows, from the ledger otherwise.
//!
//! What never happens here: a short page of a list that lags. The list may lack the newest messages, so what it says counts only
//! as far as it reaches the place that is known to exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::chat::connection::{Answer, Unavailable};
use gateway_core::chat::{MessageRecord, Page, Position};
use gateway_core::id::SessionId;
use gateway_core::ports::{PortError, PortResult};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::socket::seals;

/// How long questions for positions are gathered: they repair what was lost, so they may wait, and a node with thousands of
/// sockets asks some times a second instead of once for each.
const GATHER: Duration = Duration::from_millis(50);

/// Sessions of one question to a store.
const ASKED_MAX: usize = 1_000;

/// Questions that may wait for an answer; more than sockets on a node ask at once.
const WAITING_MAX: usize = 100_000;

/// One question in this many goes to the ledger though the roaming list would know: what was committed while the list was away
/// is in the ledger alone.
const LEDGER_EVERY: u32 = 6;

/// A page of messages. `known` is where the session is known to be, in the epoch of the page's lower bound.
pub(crate) async fn page(node: &Node, session: SessionId, page: Page, known: Option<Position>) -> PortResult<Vec<MessageRecord>> {
    if let (Page::After { seq, limit }, Some(known)) = (page, known)
        && let Some(rows) = roaming(node, node.ports.roaming.after(session, seq, known.epoch, limit)).await.flatten()
        && reaches(&rows, limit, known)
    {
        return Ok(opened(node, rows));
    }
    Ok(opened(node, node.ports.chats.messages(session, page).await?))
}

fn opened(node: &Node, mut rows: Vec<MessageRecord>) -> Vec<MessageRecord> {
    rows.iter_mut().for_each(|row| seals::open(&*node.ports.vault, row));
    rows
}

/// Whether nothing that is known to exist can be missing from a page of a list.
fn reaches(rows: &[MessageRecord], limit: u32, known: Position) -> bool {
    let full = rows.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    full || rows.last().is_some_and(|last| last.epoch == known.epoch && last.seq >= known.seq)
}

/// An answer of the roaming list; `None` when it is away.
pub(crate) async fn roaming<T>(node: &Node, question: impl Future<Output = PortResult<T>>) -> Option<T> {
    let breaker = &node.switchboard.roaming;
    if !breaker.lets_try(clock::now()) {
        return None;
    }
    match question.await {
        Ok(answer) => {
            breaker.worked();
            Some(answer)
        }
        Err(error) => {
            breaker.failed(clock::now());
            note(node, &error);
            None
        }
    }
}

/// Counts the failure of a store.
pub(crate) fn note(node: &Node, error: &PortError) {
    node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
    tracing::debug!(error = health::chain(error), "a chat request failed");
}

/// Gathers the questions of all sockets for the positions of their sessions.
#[derive(Default)]
pub(crate) struct Positions {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    questions: Vec<(Vec<SessionId>, oneshot::Sender<Tops>)>,
    /// Somebody will take the questions.
    gathering: bool,
}

type Tops = Arc<Answer<BTreeMap<SessionId, Position>>>;

impl Positions {
    /// The positions of those of `sessions` that exist.
    pub(crate) async fn ask(node: &Arc<Node>, sessions: Vec<SessionId>) -> Answer<Vec<(SessionId, Position)>> {
        let (sender, answer) = oneshot::channel();
        let first = {
            let mut waiting = node.switchboard.positions.waiting();
            if waiting.questions.len() >= WAITING_MAX {
                return Err(Unavailable);
            }
            waiting.questions.push((sessions.clone(), sender));
            !std::mem::replace(&mut waiting.gathering, true)
        };
        if first {
            // A task of its own, because the socket that asked first may end before the others are answered.
            tokio::spawn(gather(node.clone()));
        }
        match answer.await.as_deref() {
            Ok(Ok(tops)) => Ok(sessions.iter().filter_map(|id| tops.get(id).map(|top| (*id, *top))).collect()),
            Ok(Err(Unavailable)) | Err(_) => Err(Unavailable),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn gather(node: Arc<Node>) {
    sleep(GATHER).await;
    let questions = {
        let mut waiting = node.switchboard.positions.waiting();
        waiting.gathering = false;
        std::mem::take(&mut waiting.questions)
    };
    let asked: BTreeSet<SessionId> = questions.iter().flat_map(|(sessions, _)| sessions.iter().copied()).collect();
    let asked: Vec<SessionId> = asked.into_iter().collect();
    let tops: Tops = Arc::new(match look_up(&node, &asked).await {
        Ok(tops) => Ok(tops),
        Err(error) => {
            note(&node, &error);
            Err(Unavailable)
        }
    });
    for (_, sender) in questions {
        // A socket that has ended waits for nothing.
        let _ = sender.send(tops.clone());
    }
}

async fn look_up(node: &Node, asked: &[SessionId]) -> PortResult<BTreeMap<SessionId, Position>> {
    let mut tops = BTreeMap::new();
    for asked in asked.chunks(ASKED_MAX) {
        let known =
            if rand::random::<u32>().is_multiple_of(LEDGER_EVERY) { None } else { roaming(node, node.ports.roaming.tops(asked)).await };
        let known = known.unwrap_or_default();
        let found = asked.iter().zip(&known).filter_map(|(id, top)| top.map(|top| (*id, top)));
        tops.extend(found);
        let unknown: Vec<SessionId> = asked.iter().filter(|id| !tops.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            tops.extend(node.ports.chats.tops(&unknown).await?);
        }
    }
    Ok(tops)
}

#[cfg(test)]
mod tests {
    use gateway_core::chat::Side;
    use gateway_core::id::{ClientMsgId, PrincipalId};
    use gateway_core::time::UnixMillis;

    use super::*;

    fn rows(epoch: u32, seqs: std::ops::RangeInclusive<u64>) -> Vec<MessageRecord> {
        seqs.map(|seq| MessageRecord {
            session: SessionId(1),
            epoch,
            seq,
            side: Side::User,
            sender: PrincipalId::parse("u").unwrap(),
            client_msg_id: ClientMsgId::parse("m").unwrap(),
            kind: "text".into(),
            content: "x".into(),
            recalled: false,
            bot: false,
            at: UnixMillis(0),
        })
        .collect()
    }

    #[test]
    fn a_list_that_ends_before_what_is_known_to_exist_is_not_believed() {
        let known = Position { epoch: 2, seq: 10 };
        for (rows, limit, believed) in [
            (rows(2, 6..=10), 200, true),
            (rows(2, 6..=11), 200, true),
            (rows(2, 6..=9), 200, false),
            (rows(2, 6..=9), 4, true),
            (rows(1, 6..=10), 200, false),
            (Vec::new(), 200, false),
        ] {
            assert_eq!(reaches(&rows, limit, known), believed, "{rows:?}");
        }
    }
}
