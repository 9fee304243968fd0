//! What a shop's bots may say while its queue is long: nothing, until the people's messages are through.
//!
//! How long a queue is is asked at most once a second per shop. Answers that were left out are counted per session, and once the
//! queue is short again each of these sessions gets one message that says so.
//! What never happens here: dropping a message of a person, or of another shop.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway_core::chat::event::QueuedSend;
use gateway_core::chat::message::Fingerprint;
use gateway_core::chat::partition::partition_of;
use gateway_core::chat::{Party, Send as ChatSend};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::ports::PortResult;
use tokio::time::Instant;

use crate::clock;
use crate::node::Node;
use crate::socket::message::BOT;
use crate::socket::reads::note;

/// How long a look at a queue is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// Shops that are kept in mind; those that nobody asked about for a while make room, and beyond it bots answer unwatched.
const SHOPS_MAX: usize = 10_000;

/// A shop without answers of bots for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Sessions that are told later that answers were left out; beyond it answers are only counted.
const SESSIONS_MAX: usize = 10_000;

/// Summaries sent at each look, so that they do not become the next backlog.
const SUMMARIES_AT_ONCE: usize = 100;

/// The shops whose bots speak.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shops: HashMap<ShopId, Shop>,
    /// Over all shops.
    sessions: usize,
}

#[derive(Debug)]
struct Shop {
    depth: u64,
    looked_at: Option<Instant>,
    asked_at: Instant,
    /// Answers left out, by session.
    dropped: BTreeMap<SessionId, u32>,
}

impl Backlog {
    /// Whether a bot of `shop` may answer in `session`; if not, the answer is counted. Waits for at most one look at the queue.
    pub(crate) async fn takes(&self, node: &Node, shop: ShopId, session: SessionId) -> bool {
        let now = Instant::now();
        let due = {
            let mut state = self.state();
            if state.shops.len() >= SHOPS_MAX && !state.shops.contains_key(&shop) {
                return true;
            }
            let entry = state.shops.entry(shop).or_insert_with(|| Shop::new(now));
            entry.asked_at = now;
            // Whoever finds it due looks; the others go by what was seen last.
            entry.take_due(now)
        };
        if due {
            self.look(node, shop).await;
        }
        let long = self.state().shops.get(&shop).is_some_and(|entry| entry.depth > node.config.chat.backlog_max);
        if long {
            self.drop_answer(node, shop, session);
        }
        !long
    }

    /// Counts an answer that is left out.
    pub(crate) fn drop_answer(&self, node: &Node, shop: ShopId, session: SessionId) {
        node.metrics.chat_bot_dropped.inc();
        let mut state = self.state();
        let room = state.sessions < SESSIONS_MAX;
        let known_shop = state.shops.contains_key(&shop) || state.shops.len() < SHOPS_MAX;
        if !known_shop {
            return;
        }
        let now = Instant::now();
        let dropped = &mut state.shops.entry(shop).or_insert_with(|| Shop::new(now)).dropped;
        let new = match dropped.get_mut(&session) {
            Some(count) => {
                *count = count.saturating_add(1);
                false
            }
            None if room => dropped.insert(session, 1).is_none(),
            None => false,
        };
        state.sessions += usize::from(new);
    }

    /// Looks at queues that were long or owe a summary, sends summaries of those that are short again, and shows what is known.
    pub(crate) async fn sweep(&self, node: &Node) {
        let now = Instant::now();
        let due: Vec<ShopId> = {
            let mut state = self.state();
            state.shops.retain(|_, shop| !shop.dropped.is_empty() || now - shop.asked_at < FORGOTTEN_AFTER);
            state.shops.iter_mut().filter_map(|(id, shop)| (!shop.dropped.is_empty() && shop.take_due(now)).then_some(*id)).collect()
        };
        for shop in due {
            if self.look(node, shop).await {
                self.summarize(node, shop).await;
            }
        }
        let most = node.config.chat.backlog_max;
        let [mut long, mut short] = [0_u64; 2];
        for shop in self.state().shops.values() {
            let class = if shop.depth > most { &mut long } else { &mut short };
            *class = class.saturating_add(shop.depth);
        }
        for (class, depth) in [("long", long), ("short", short)] {
            node.metrics.chat_queue_depth.with_label_values(&[class]).set(i64::try_from(depth).unwrap_or(i64::MAX));
        }
    }

    /// Asks how long a queue is. False when nobody knows.
    async fn look(&self, node: &Node, shop: ShopId) -> bool {
        match node.ports.bus.queued(shop).await {
            Ok(depth) => {
                if let Some(shop) = self.state().shops.get_mut(&shop) {
                    shop.depth = depth;
                }
                true
            }
            Err(error) => {
                note(node, &error);
                false
            }
        }
    }

    async fn summarize(&self, node: &Node, shop: ShopId) {
        let due: Vec<(SessionId, u32)> = {
            let mut state = self.state();
            let Some(entry) = state.shops.get_mut(&shop).filter(|entry| entry.depth <= node.config.chat.backlog_max) else { return };
            let mut due = Vec::new();
            while due.len() < SUMMARIES_AT_ONCE
                && let Some(first) = entry.dropped.pop_first()
            {
                due.push(first);
            }
            state.sessions -= due.len();
            due
        };
        for (session, count) in due {
            let Some(summary) = summary(shop, session, count) else { continue };
            if let Err(error) = enqueue(node, shop, summary).await {
                // Once is enough: a shop that is told twice is worse than one that is not told.
                note(node, &error);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shop {
    fn new(now: Instant) -> Self {
        Self { depth: 0, looked_at: None, asked_at: now, dropped: BTreeMap::new() }
    }

    /// Whether its queue is to be looked at, which then is the caller's to do.
    fn take_due(&mut self, now: Instant) -> bool {
        let due = self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= BELIEVED);
        if due {
            self.looked_at = Some(now);
        }
        due
    }
}

async fn enqueue(node: &Node, shop: ShopId, send: ChatSend) -> PortResult<()> {
    let partitions = NonZeroU16::new(node.config.chat.partitions).unwrap_or(NonZeroU16::MIN);
    let partition = partition_of(send.session, partitions);
    node.ports.bus.enqueue(partition, shop, QueuedSend { send, queued_at: clock::now() }.encode()).await
}

/// What a session hears of the answers it did not get.
fn summary(shop: ShopId, session: SessionId, count: u32) -> Option<ChatSend> {
    let content = format!("刚才咨询的人太多，机器人有 {count} 条回复没有发出。如果仍然需要，请再问一次。");
    Some(ChatSend {
        session,
        sender: Party::agent(shop, PrincipalId::parse(BOT).ok()?),
        // Drawn, because each backlog has a summary of its own.
        client_msg_id: ClientMsgId::parse(&format!("{BOT}-{:032x}", rand::random::<u128>())).ok()?,
        kind: "text".to_owned(),
        fingerprint: Fingerprint::of("text", &content),
        content,
        origin: BOT.to_owned(),
        bot: true,
    })
}
