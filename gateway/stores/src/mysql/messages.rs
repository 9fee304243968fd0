//! Messages: the one transaction in which a sequence number is born, and the pages they are read in.
//!
//! The order of locks is always the same: lease, sessions by id. With the session's row locked nobody else gives out
//! its numbers, so they have no gap, and nobody else looks for a message that is about to be written.

use std::collections::{BTreeMap, HashMap};

use gateway_core::chat::{Committed, Lease, MessageRecord, Page, Send as ChatSend, Side};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::time::UnixMillis;
use sha2::{Digest as _, Sha256};
use sqlx::{MySql, QueryBuilder, Transaction};

use super::chats::belongs;
use super::rows::read_principal;
use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};

/// Bytes of content in one insert: a quarter of the smallest default of `max_allowed_packet` on supported servers.
const INSERT_BYTES_MAX: usize = 4 << 20;

/// Messages in one page (the port's word).
const PAGE_MAX: u32 = 200;

macro_rules! select_messages {
    ($rest:literal) => {
        concat!(
            "select session_id, epoch, seq, side, sender_id, client_msg_id, kind, content, bot, ",
            millis!("created_at"),
            ", payload_hash from chat_message where ",
            $rest
        )
    };
}

type MessageRow = (u64, u32, u64, u8, String, String, String, String, u8, u64, Vec<u8>);

/// What makes a message the same message.
type Key = (u64, Side, PrincipalId, ClientMsgId);

/// A session while its row is locked.
struct Open {
    shop: ShopId,
    user: PrincipalId,
    agent: Option<PrincipalId>,
    open: bool,
    epoch: u32,
    top: u64,
    cum_user: u64,
    cum_admin: u64,
}

/// A message to insert, with the counters that stand at it.
struct NewMessage {
    record: MessageRecord,
    shop: ShopId,
    hash: [u8; 32],
    cum_user: u64,
    cum_admin: u64,
}

impl MysqlStore {
    pub(super) async fn write_messages(&self, lease: &Lease, sends: &[ChatSend], now: UnixMillis) -> Result<Vec<Committed>, Trouble> {
        let mut tx = self.pool.begin().await?;
        fence(&mut tx, lease).await?;
        if sends.is_empty() {
            return Ok(Vec::new());
        }
        let mut sessions = lock_sessions(&mut tx, sends).await?;
        let mut known = known_messages(&mut tx, sends).await?;
        let mut new = Vec::new();
        let outcomes: Vec<_> = sends.iter().map(|send| decide(send, now, &mut sessions, &mut known, &mut new)).collect();
        if !new.is_empty() {
            insert(&mut tx, &new, &datetime(now)).await?;
            advance(&mut tx, &sessions, &new, &datetime(now)).await?;
            tx.commit().await?;
        }
        Ok(outcomes)
    }

    pub(super) async fn read_messages(&self, session: SessionId, page: Page) -> Result<Vec<MessageRecord>, Trouble> {
        let (select, seq, limit) = match page {
            Page::After { seq, limit } => (select_messages!("session_id = ? and seq > ? order by seq limit ?"), seq, limit),
            Page::Before { seq, limit } => (select_messages!("session_id = ? and seq < ? order by seq desc limit ?"), seq, limit),
        };
        let rows: Vec<MessageRow> =
            sqlx::query_as(select).bind(session.0).bind(seq).bind(limit.min(PAGE_MAX)).fetch_all(&self.pool).await?;
        let mut messages: Vec<_> = rows.into_iter().map(|row| read_message(row).map(|(message, _)| message)).collect::<Result<_, _>>()?;
        messages.sort_by_key(|message| message.seq);
        Ok(messages)
    }
}

/// Fails unless the lease is held, and locks it: it cannot change hands before this transaction ends.
async fn fence(tx: &mut Transaction<'_, MySql>, lease: &Lease) -> Result<(), Trouble> {
    let held: Option<(u64,)> = sqlx::query_as(
        "select token from chat_lease where part = ? and owner = ? and token = ? and expires_at > utc_timestamp(3) for update",
    )
    .bind(lease.partition)
    .bind(&lease.owner)
    .bind(lease.token)
    .fetch_optional(&mut **tx)
    .await?;
    held.map(drop).ok_or(Trouble::Fenced)
}

async fn lock_sessions(tx: &mut Transaction<'_, MySql>, sends: &[ChatSend]) -> Result<HashMap<u64, Open>, Trouble> {
    type Row = (u64, u64, String, Option<String>, u8, u32, u64, u64, u64);
    let mut ids: Vec<_> = sends.iter().map(|send| send.session.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut select = QueryBuilder::new(
        "select id, shop_id, user_id, admin_id, status, epoch, max_seq, cum_user, cum_admin from chat_session where id in (",
    );
    let mut list = select.separated(", ");
    for id in ids {
        list.push_bind(id);
    }
    list.push_unseparated(") order by id for update");
    let rows: Vec<Row> = select.build_query_as().fetch_all(&mut **tx).await?;
    rows.into_iter()
        .map(|(id, shop, user, agent, status, epoch, top, cum_user, cum_admin)| {
            let agent = agent.as_deref().map(read_principal).transpose()?;
            let (shop, user) = (ShopId(shop), read_principal(&user)?);
            Ok((id, Open { shop, user, agent, open: status == 0, epoch, top, cum_user, cum_admin }))
        })
        .collect()
}

/// Those of the messages that are stored, with the hash they were stored with.
async fn known_messages(tx: &mut Transaction<'_, MySql>, sends: &[ChatSend]) -> Result<HashMap<Key, (MessageRecord, Vec<u8>)>, Trouble> {
    let mut select = QueryBuilder::new(select_messages!(""));
    // Alternatives of whole keys: each is one look-up in the unique index, on both families of servers.
    let mut list = select.separated(" or ");
    for send in sends {
        list.push("(session_id = ").push_bind_unseparated(send.session.0);
        list.push_unseparated(" and sender_id = ").push_bind_unseparated(send.sender.id.as_str());
        list.push_unseparated(" and side = ").push_bind_unseparated(side_number(send.sender.side));
        list.push_unseparated(" and client_msg_id = ").push_bind_unseparated(send.client_msg_id.as_str()).push_unseparated(")");
    }
    let rows: Vec<MessageRow> = select.build_query_as().fetch_all(&mut **tx).await?;
    rows.into_iter()
        .map(|row| {
            let (message, hash) = read_message(row)?;
            Ok(((message.session.0, message.side, message.sender.clone(), message.client_msg_id.clone()), (message, hash)))
        })
        .collect()
}

/// What becomes of one message; a new one gets the next number of its session.
fn decide(
    send: &ChatSend,
    now: UnixMillis,
    sessions: &mut HashMap<u64, Open>,
    known: &mut HashMap<Key, (MessageRecord, Vec<u8>)>,
    new: &mut Vec<NewMessage>,
) -> Committed {
    let Some(session) = sessions.get_mut(&send.session.0) else { return Committed::NotFound };
    // A bot speaks for the shop, whoever serves the session.
    let bot_of_shop = send.bot && send.sender.side == Side::Agent && send.sender.shop == Some(session.shop);
    if !bot_of_shop && !belongs(&send.sender, session.shop, &session.user, session.agent.as_ref()) {
        return Committed::NotFound;
    }
    let key = (send.session.0, send.sender.side, send.sender.id.clone(), send.client_msg_id.clone());
    let hash = payload_hash(&send.kind, &send.content);
    let (message, dup) = match known.get(&key) {
        Some((_, stored)) if stored[..] != hash => return Committed::Conflict,
        Some((message, _)) => (message.clone(), true),
        None if !session.open => return Committed::Closed,
        None => {
            session.top += 1;
            match send.sender.side {
                Side::User => session.cum_user += 1,
                Side::Agent => session.cum_admin += 1,
            }
            let record = MessageRecord {
                session: send.session,
                epoch: session.epoch,
                seq: session.top,
                side: send.sender.side,
                sender: send.sender.id.clone(),
                client_msg_id: send.client_msg_id.clone(),
                kind: send.kind.clone(),
                content: send.content.clone(),
                bot: send.bot,
                at: now,
            };
            known.insert(key, (record.clone(), hash.to_vec()));
            let (cum_user, cum_admin) = (session.cum_user, session.cum_admin);
            new.push(NewMessage { record: record.clone(), shop: session.shop, hash, cum_user, cum_admin });
            (record, false)
        }
    };
    Committed::Stored { message, dup, user: session.user.clone(), agent: session.agent.clone() }
}

async fn insert(tx: &mut Transaction<'_, MySql>, mut new: &[NewMessage], now: &str) -> Result<(), Trouble> {
    while !new.is_empty() {
        let mut bytes = 0;
        let fits = new.iter().take_while(|message| {
            bytes += message.record.content.len();
            bytes <= INSERT_BYTES_MAX
        });
        let (batch, rest) = new.split_at(fits.count().max(1));
        QueryBuilder::new(
            "insert into chat_message (session_id, seq, epoch, shop_id, side, sender_id, client_msg_id, kind, content, payload_hash, \
             bot, cum_user, cum_admin, created_at) ",
        )
        .push_values(batch, |mut row, NewMessage { record, shop, hash, cum_user, cum_admin }| {
            row.push_bind(record.session.0).push_bind(record.seq).push_bind(record.epoch).push_bind(shop.0);
            row.push_bind(side_number(record.side)).push_bind(record.sender.as_str()).push_bind(record.client_msg_id.as_str());
            row.push_bind(record.kind.as_str()).push_bind(record.content.as_str()).push_bind(&hash[..]).push_bind(record.bot);
            row.push_bind(*cum_user).push_bind(*cum_admin).push_bind(now);
        })
        .build()
        .execute(&mut **tx)
        .await?;
        new = rest;
    }
    Ok(())
}

/// Writes the new tops and counters of all sessions in one statement.
async fn advance(tx: &mut Transaction<'_, MySql>, sessions: &HashMap<u64, Open>, new: &[NewMessage], now: &str) -> Result<(), Trouble> {
    let touched: BTreeMap<u64, &Open> =
        new.iter().filter_map(|message| Some((message.record.session.0, sessions.get(&message.record.session.0)?))).collect();
    let mut update = QueryBuilder::new("update chat_session s join (");
    let mut list = update.separated(" union all ");
    for (id, session) in touched {
        // MySQL takes a parameter in a select list for text unless it is told otherwise.
        list.push("select cast(").push_bind_unseparated(id).push_unseparated(" as unsigned) as id, cast(");
        list.push_bind_unseparated(session.top).push_unseparated(" as unsigned) as top, cast(");
        list.push_bind_unseparated(session.cum_user).push_unseparated(" as unsigned) as cum_user, cast(");
        list.push_bind_unseparated(session.cum_admin).push_unseparated(" as unsigned) as cum_admin");
    }
    update.push(") n on n.id = s.id set s.max_seq = n.top, s.cum_user = n.cum_user, s.cum_admin = n.cum_admin, s.last_at = ");
    update.push_bind(now);
    update.build().execute(&mut **tx).await?;
    Ok(())
}

fn payload_hash(kind: &str, content: &str) -> [u8; 32] {
    // A kind never contains NUL, so no two pairs run together.
    Sha256::new().chain_update(kind).chain_update([0]).chain_update(content).finalize().into()
}

fn read_message(row: MessageRow) -> Result<(MessageRecord, Vec<u8>), Trouble> {
    let (session, epoch, seq, side, sender, client_msg_id, kind, content, bot, at, hash) = row;
    let message = MessageRecord {
        session: SessionId(session),
        epoch,
        seq,
        side: read_side(side)?,
        sender: read_principal(&sender)?,
        client_msg_id: ClientMsgId::parse(&client_msg_id).map_err(|_| Trouble::Damaged("a client message id"))?,
        kind,
        content,
        bot: bot != 0,
        at: UnixMillis(at),
    };
    Ok((message, hash))
}

fn side_number(side: Side) -> u8 {
    match side {
        Side::User => 0,
        Side::Agent => 1,
    }
}

fn read_side(number: u8) -> Result<Side, Trouble> {
    match number {
        0 => Ok(Side::User),
        1 => Ok(Side::Agent),
        _ => Err(Trouble::Damaged("the side of a message")),
    }
}
