//! Messages: the one transaction in which a sequence number is born, and the pages they are read in.
//!
//! With the session's row locked nobody else gives out its numbers, so they have no gap, and nobody else looks for a message
//! that is about to be written. Every statement has one text, whatever the number of messages: rows travel as one
//! parameter. Indexes are named, because a server that has not counted a young table yet would rather read all of it, and lock
//! it.

use std::collections::{BTreeMap, HashMap};

use gateway_core::chat::recall::{self, Verdict};
use gateway_core::chat::{Clocks, Committed, Lease, MessageRecord, Page, Position, RECALLED, Send as ChatSend, Side, witness};
use gateway_core::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::super::json::Rows;
use super::super::rows::read_principal;
use super::super::time::{datetime, millis};
use super::super::{MysqlStore, Trouble};
use super::clocks::RESPONSE_BITS;
use super::leases::fence;
use super::{belongs, read_side, side_number};

/// Messages in one commit (the port's word).
const SENDS_MAX: usize = 256;

/// Bytes of content in one insert. As JSON they are at most six times as many, which fits the smallest default of
/// `max_allowed_packet` on supported servers, 16 MiB.
const INSERT_BYTES_MAX: usize = 2 << 20;

/// Messages in one page (the port's word).
const PAGE_MAX: u32 = 200;

/// Columns of a stored message, named `m`. The content of one that was taken back stays where it is.
macro_rules! message_columns {
    () => {
        concat!(
            "m.session_id, m.epoch, m.seq, m.side, m.sender_id, m.client_msg_id, m.kind, if(m.recalled_by is null, m.content, ''), \
             m.bot, ",
            millis!("m.created_at"),
            ", m.recalled_by"
        )
    };
}

type MessageRow = (u64, u32, u64, u8, String, String, String, String, u8, u64, Option<u64>);

/// A message with its fingerprint.
type KnownRow = (u64, u32, u64, u8, String, String, String, String, u8, u64, Option<u64>, Vec<u8>);

/// What makes a message the same message.
type Key = (SessionId, Side, PrincipalId, ClientMsgId);

/// What is stored already of what a batch speaks of.
#[derive(Default)]
struct Known {
    /// Messages of the batch, sent before, with the fingerprint they had then.
    sent: HashMap<Key, (MessageRecord, Vec<u8>)>,
    /// Messages that the batch takes back, by their place, and recalls of them.
    at: HashMap<(SessionId, u64), Target>,
}

/// A message that may be taken back.
#[derive(Clone)]
struct Target {
    message: MessageRecord,
    recalled_by: Option<u64>,
}

/// A session while its row is locked.
struct Open {
    shop: ShopId,
    user: PrincipalId,
    agent: Option<PrincipalId>,
    open: bool,
    /// Where numbering goes on; not written unless a message takes a number.
    top: Position,
    cum: PerSide,
    /// How far each side has read.
    read: PerSide,
    /// Messages above that which were taken back.
    recalled: PerSide,
    clocks: Clocks,
    told: u8,
}

/// One number for each side.
#[derive(Clone, Copy, Default)]
struct PerSide {
    user: u64,
    agent: u64,
}

impl PerSide {
    fn of(self, side: Side) -> u64 {
        match side {
            Side::User => self.user,
            Side::Agent => self.agent,
        }
    }

    fn of_mut(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::User => &mut self.user,
            Side::Agent => &mut self.agent,
        }
    }
}

/// What a batch writes.
#[derive(Default)]
struct Changes {
    new: Vec<NewMessage>,
    /// Messages stored before that are taken back: session, seq, and the recall's seq.
    recalled: Vec<(SessionId, u64, u64)>,
}

/// A message to insert, with the counters that stand at it.
struct NewMessage {
    record: MessageRecord,
    shop: ShopId,
    fingerprint: [u8; 32],
    cum: PerSide,
    recalled_by: Option<u64>,
}

impl MysqlStore {
    pub(super) async fn write_messages(
        &self,
        lease: Option<&Lease>,
        sends: &[ChatSend],
        announced: &[(SessionId, Position)],
        now: UnixMillis,
    ) -> Result<Vec<Committed>, Trouble> {
        if sends.len() > SENDS_MAX {
            return Err(Trouble::TooMany(SENDS_MAX));
        }
        let mut tx = self.pool.begin().await?;
        if let Some(lease) = lease {
            fence(&mut tx, lease).await?;
        }
        if sends.is_empty() {
            return Ok(Vec::new());
        }
        let mut sessions = lock_sessions(&mut tx, sends).await?;
        for (session, position) in announced {
            if let Some(session) = sessions.get_mut(session) {
                session.top = witness::continue_from(session.top, Some(*position));
            }
        }
        let mut known = Known { sent: sent_before(&mut tx, sends).await?, at: targets(&mut tx, sends).await? };
        let mut changes = Changes::default();
        let outcomes = sends.iter().map(|send| decide(send, now, &mut sessions, &mut known, &mut changes)).collect();
        if !changes.new.is_empty() {
            insert(&mut tx, &changes.new, &datetime(now)).await?;
            take_back(&mut tx, &changes.recalled).await?;
            advance(&mut tx, &sessions, &changes.new, &datetime(now)).await?;
            tx.commit().await?;
        }
        Ok(outcomes)
    }

    pub(super) async fn read_messages(&self, session: SessionId, page: Page) -> Result<Vec<MessageRecord>, Trouble> {
        const AFTER: &str =
            concat!("select ", message_columns!(), " from chat_message m where session_id = ? and seq > ? order by seq limit ?");
        const BEFORE: &str =
            concat!("select ", message_columns!(), " from chat_message m where session_id = ? and seq < ? order by seq desc limit ?");
        let (select, seq, limit) = match page {
            Page::After { seq, limit } => (AFTER, seq, limit),
            Page::Before { seq, limit } => (BEFORE, seq, limit),
        };
        let rows: Vec<MessageRow> =
            sqlx::query_as(select).bind(session.0).bind(seq).bind(limit.min(PAGE_MAX)).fetch_all(&self.pool).await?;
        let mut messages: Vec<_> = rows.into_iter().map(read_message).collect::<Result<_, _>>()?;
        messages.sort_by_key(|message| message.seq);
        Ok(messages)
    }
}

async fn lock_sessions(tx: &mut Transaction<'_, MySql>, sends: &[ChatSend]) -> Result<HashMap<SessionId, Open>, Trouble> {
    #[derive(sqlx::FromRow)]
    struct Row {
        id: u64,
        shop_id: u64,
        user_id: String,
        admin_id: Option<String>,
        status: u8,
        epoch: u32,
        max_seq: u64,
        cum_user: u64,
        cum_admin: u64,
        user_seq: u64,
        admin_seq: u64,
        user_recalled: u64,
        admin_recalled: u64,
        asked: Option<u64>,
        answered: Option<u64>,
        overdue_told: u8,
    }
    let mut ids: Vec<_> = sends.iter().map(|send| send.session.0).collect();
    ids.sort_unstable();
    ids.dedup();
    // Joined from the sorted list, so rows are locked in the order of their ids.
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "select s.id, s.shop_id, s.user_id, s.admin_id, s.status, s.epoch, s.max_seq, s.cum_user, s.cum_admin, s.user_seq, s.admin_seq, \
         s.user_recalled, s.admin_recalled, ",
        millis!("s.asked_at"),
        " as asked, ",
        millis!("s.answered_at"),
        " as answered, s.overdue_told from json_table(?, '$[*]' columns (id bigint unsigned path '$[0]')) n \
         straight_join chat_session s force index (primary) on s.id = n.id for update"
    ))
    .bind(Rows::of(ids, |row, id| row.number(id)))
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            let clocks = Clocks { asked_at: row.asked.map(UnixMillis), answered_at: row.answered.map(UnixMillis), ..Clocks::default() };
            let open = Open {
                shop: ShopId(row.shop_id),
                user: read_principal(&row.user_id)?,
                agent: row.admin_id.as_deref().map(read_principal).transpose()?,
                open: row.status == 0,
                top: Position { epoch: row.epoch, seq: row.max_seq },
                cum: PerSide { user: row.cum_user, agent: row.cum_admin },
                read: PerSide { user: row.user_seq, agent: row.admin_seq },
                recalled: PerSide { user: row.user_recalled, agent: row.admin_recalled },
                clocks,
                told: row.overdue_told,
            };
            Ok((SessionId(row.id), open))
        })
        .collect()
}

/// Those of the messages that are stored, with the fingerprint they were stored with: one look-up each in the unique index.
async fn sent_before(tx: &mut Transaction<'_, MySql>, sends: &[ChatSend]) -> Result<HashMap<Key, (MessageRecord, Vec<u8>)>, Trouble> {
    let rows: Vec<KnownRow> = sqlx::query_as(concat!(
        "select ",
        message_columns!(),
        ", m.payload_hash from json_table(?, '$[*]' columns (session_id bigint unsigned path '$[0]', \
         sender_id varchar(64) character set ascii collate ascii_bin path '$[1]', side tinyint unsigned path '$[2]', \
         client_msg_id varchar(64) character set ascii collate ascii_bin path '$[3]')) n \
         straight_join chat_message m force index (uk_chat_message_client) on m.session_id = n.session_id and m.sender_id = n.sender_id and m.side = n.side \
         and m.client_msg_id = n.client_msg_id"
    ))
    .bind(Rows::of(sends, |row, send| {
        let row = row.number(send.session.0).text(send.sender.id.as_str()).number(side_number(send.sender.side));
        row.text(send.client_msg_id.as_str())
    }))
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter()
        .map(|(session, epoch, seq, side, sender, client_msg_id, kind, content, bot, at, recalled_by, fingerprint)| {
            let row = (session, epoch, seq, side, sender, client_msg_id, kind, content, bot, at, recalled_by);
            let message = read_message(row)?;
            Ok((key_of(&message), (message, fingerprint)))
        })
        .collect()
}

/// Messages that the batch takes back, and the recalls of those that were taken back before.
async fn targets(tx: &mut Transaction<'_, MySql>, sends: &[ChatSend]) -> Result<HashMap<(SessionId, u64), Target>, Trouble> {
    let mut found = HashMap::new();
    let mut wanted: Vec<_> = sends.iter().filter_map(|send| Some((send.session, taken_back(send)?))).collect();
    // The messages first, then the recalls they name; those name nothing.
    while !wanted.is_empty() {
        let rows: Vec<MessageRow> = sqlx::query_as(concat!(
            "select ",
            message_columns!(),
            " from json_table(?, '$[*]' columns (session_id bigint unsigned path '$[0]', seq bigint unsigned path '$[1]')) n \
             straight_join chat_message m force index (primary) on m.session_id = n.session_id and m.seq = n.seq"
        ))
        .bind(Rows::of(&wanted, |row, (session, seq)| row.number(session.0).number(*seq)))
        .fetch_all(&mut **tx)
        .await?;
        wanted.clear();
        for row in rows {
            let (recalled_by, message) = (row.10, read_message(row)?);
            wanted.extend(recalled_by.map(|seq| (message.session, seq)).filter(|place| !found.contains_key(place)));
            found.insert((message.session, message.seq), Target { message, recalled_by });
        }
    }
    Ok(found)
}

/// The place a recall names.
fn taken_back(send: &ChatSend) -> Option<u64> {
    if send.kind == RECALLED { send.content.parse().ok() } else { None }
}

/// What becomes of one message; a new one gets the next number of its session.
fn decide(
    send: &ChatSend,
    now: UnixMillis,
    sessions: &mut HashMap<SessionId, Open>,
    known: &mut Known,
    changes: &mut Changes,
) -> Committed {
    let Some(session) = sessions.get_mut(&send.session) else { return Committed::NotFound };
    let own = match send.sender.side {
        Side::User => send.sender.id == session.user,
        Side::Agent => send.sender.shop == Some(session.shop),
    };
    let key = (send.session, send.sender.side, send.sender.id.clone(), send.client_msg_id.clone());
    match known.sent.get(&key) {
        // Also to an agent who has handed the session over since: what it sent is stored, and it may ask.
        Some((_, fingerprint)) if own && fingerprint[..] != send.fingerprint.0 => return Committed::Conflict,
        Some((message, _)) if own => return session.stored(message.clone(), true, None),
        Some(_) | None => {}
    }
    // A bot speaks for the shop, whoever serves the session.
    let bot_of_shop = send.bot && own && send.sender.side == Side::Agent;
    if !bot_of_shop && !belongs(&send.sender, session.shop, &session.user, session.agent.as_ref()) {
        return Committed::NotFound;
    }
    if !session.open {
        return Committed::Closed;
    }
    if send.kind == RECALLED {
        let place = taken_back(send).map(|seq| (send.session, seq));
        let target = place.and_then(|place| known.at.get(&place));
        let verdict = recall::judge(target.map(|target| &target.message), &send.sender, now);
        match (verdict, target.and_then(|target| target.recalled_by)) {
            (Verdict::NotFound, _) => return Committed::NotFound,
            (Verdict::TooLate | Verdict::Granted, Some(first)) => {
                let Some(first) = known.at.get(&(send.session, first)) else { return Committed::NotFound };
                return session.stored(first.message.clone(), true, None);
            }
            (Verdict::TooLate, None) => return Committed::TooLate,
            (Verdict::Granted, None) => {}
        }
    }
    session.store(send, key, now, known, changes)
}

impl Open {
    /// Gives a message that is new its number.
    fn store(&mut self, send: &ChatSend, key: Key, now: UnixMillis, known: &mut Known, changes: &mut Changes) -> Committed {
        self.top.seq += 1;
        let (side, seq) = (send.sender.side, self.top.seq);
        let record = MessageRecord {
            session: send.session,
            epoch: self.top.epoch,
            seq,
            side,
            sender: send.sender.id.clone(),
            client_msg_id: send.client_msg_id.clone(),
            kind: send.kind.clone(),
            content: send.content.clone(),
            recalled: false,
            bot: send.bot,
            at: now,
        };
        let mut stopped = None;
        if let Some(target) = taken_back(send) {
            self.take_back(send.session, target, seq, known, changes);
        } else {
            *self.cum.of_mut(side) += 1;
            let ran = self.clocks.asked_at.is_some();
            stopped = self.clocks.on_message(side, send.bot, now);
            if !ran && self.clocks.asked_at.is_some() {
                self.told &= !RESPONSE_BITS;
            }
        }
        known.sent.insert(key, (record.clone(), send.fingerprint.0.to_vec()));
        known.at.insert((send.session, seq), Target { message: record.clone(), recalled_by: None });
        let new = NewMessage { record: record.clone(), shop: self.shop, fingerprint: send.fingerprint.0, cum: self.cum, recalled_by: None };
        changes.new.push(new);
        self.stored(record, false, stopped)
    }

    /// Marks the message at `target` as taken back by the one at `by`: nobody has to read it any more.
    fn take_back(&mut self, session: SessionId, target: u64, by: u64, known: &mut Known, changes: &mut Changes) {
        let Some(Target { message, recalled_by }) = known.at.get_mut(&(session, target)) else { return };
        let reader = message.side.other();
        if target > self.read.of(reader) {
            *self.recalled.of_mut(reader) += 1;
        }
        *recalled_by = Some(by);
        let hide = |message: &mut MessageRecord| {
            message.recalled = true;
            message.content.clear();
        };
        hide(message);
        if let Some((sent, _)) = known.sent.get_mut(&key_of(message)) {
            hide(sent);
        }
        match changes.new.iter_mut().find(|new| (new.record.session, new.record.seq) == (session, target)) {
            Some(new) => new.recalled_by = Some(by),
            None => changes.recalled.push((session, target, by)),
        }
    }

    fn stored(
        &self,
        message: MessageRecord,
        dup: bool,
        stopped: Option<(gateway_core::chat::sla::Clock, std::time::Duration)>,
    ) -> Committed {
        Committed::Stored { message, dup, shop: self.shop, user: self.user.clone(), agent: self.agent.clone(), stopped }
    }
}

async fn insert(tx: &mut Transaction<'_, MySql>, mut new: &[NewMessage], now: &str) -> Result<(), Trouble> {
    while !new.is_empty() {
        let mut bytes = 0;
        let fits = new.iter().take_while(|message| {
            bytes += message.record.content.len();
            bytes <= INSERT_BYTES_MAX
        });
        let (batch, rest) = new.split_at(fits.count().max(1));
        // Wider than the columns they go to: `json_table` cuts to fit, an insert refuses.
        sqlx::query(
            "insert into chat_message (session_id, seq, epoch, shop_id, side, bot, cum_user, cum_admin, recalled_by, payload_hash, \
             sender_id, client_msg_id, kind, content, created_at) \
             select session_id, seq, epoch, shop_id, side, bot, cum_user, cum_admin, nullif(recalled_by, 0), unhex(hash), \
             sender_id, client_msg_id, kind, content, ? from json_table(?, '$[*]' columns ( \
             session_id bigint unsigned path '$[0]', seq bigint unsigned path '$[1]', epoch bigint unsigned path '$[2]', \
             shop_id bigint unsigned path '$[3]', side tinyint unsigned path '$[4]', bot tinyint unsigned path '$[5]', \
             cum_user bigint unsigned path '$[6]', cum_admin bigint unsigned path '$[7]', recalled_by bigint unsigned path '$[8]', \
             hash varchar(255) character set ascii path '$[9]', sender_id varchar(255) character set ascii path '$[10]', \
             client_msg_id varchar(255) character set ascii path '$[11]', kind varchar(255) character set ascii path '$[12]', \
             content mediumtext character set utf8mb4 path '$[13]')) n",
        )
        .bind(now)
        .bind(Rows::of(batch, |row, NewMessage { record, shop, fingerprint, cum, recalled_by }| {
            let row = row.number(record.session.0).number(record.seq).number(record.epoch).number(shop.0);
            let row = row.number(side_number(record.side)).number(u8::from(record.bot)).number(cum.user).number(cum.agent);
            let row = row.number(recalled_by.unwrap_or(0)).text(&hex(fingerprint)).text(record.sender.as_str());
            row.text(record.client_msg_id.as_str()).text(&record.kind).text(&record.content)
        }))
        .execute(&mut **tx)
        .await?;
        new = rest;
    }
    Ok(())
}

async fn take_back(tx: &mut Transaction<'_, MySql>, recalled: &[(SessionId, u64, u64)]) -> Result<(), Trouble> {
    if recalled.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update json_table(?, '$[*]' columns (session_id bigint unsigned path '$[0]', seq bigint unsigned path '$[1]', \
         recalled_by bigint unsigned path '$[2]')) n \
         straight_join chat_message m force index (primary) on m.session_id = n.session_id and m.seq = n.seq set m.recalled_by = n.recalled_by",
    )
    .bind(Rows::of(recalled, |row, (session, seq, by)| row.number(session.0).number(*seq).number(*by)))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Writes the new tops, counters and clocks of all sessions in one statement.
async fn advance(
    tx: &mut Transaction<'_, MySql>,
    sessions: &HashMap<SessionId, Open>,
    new: &[NewMessage],
    now: &str,
) -> Result<(), Trouble> {
    let touched: BTreeMap<SessionId, &Open> =
        new.iter().filter_map(|message| Some((message.record.session, sessions.get(&message.record.session)?))).collect();
    sqlx::query(
        "update json_table(?, '$[*]' columns (id bigint unsigned path '$[0]', epoch bigint unsigned path '$[1]', \
         top bigint unsigned path '$[2]', cum_user bigint unsigned path '$[3]', cum_admin bigint unsigned path '$[4]', \
         user_recalled bigint unsigned path '$[5]', admin_recalled bigint unsigned path '$[6]', told tinyint unsigned path '$[7]', \
         asked varchar(32) character set ascii path '$[8]', answered varchar(32) character set ascii path '$[9]')) n \
         straight_join chat_session s force index (primary) on s.id = n.id \
         set s.epoch = n.epoch, s.max_seq = n.top, s.cum_user = n.cum_user, s.cum_admin = n.cum_admin, \
         s.user_recalled = n.user_recalled, s.admin_recalled = n.admin_recalled, s.overdue_told = n.told, \
         s.asked_at = nullif(n.asked, ''), s.answered_at = nullif(n.answered, ''), s.last_at = ?",
    )
    .bind(Rows::of(touched, |row, (id, session)| {
        let row = row.number(id.0).number(session.top.epoch).number(session.top.seq).number(session.cum.user).number(session.cum.agent);
        let row = row.number(session.recalled.user).number(session.recalled.agent).number(session.told);
        let instant = |at: Option<UnixMillis>| at.map(datetime).unwrap_or_default();
        row.text(&instant(session.clocks.asked_at)).text(&instant(session.clocks.answered_at))
    }))
    .bind(now)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn read_message(row: MessageRow) -> Result<MessageRecord, Trouble> {
    let (session, epoch, seq, side, sender, client_msg_id, kind, content, bot, at, recalled_by) = row;
    Ok(MessageRecord {
        session: SessionId(session),
        epoch,
        seq,
        side: read_side(side)?,
        sender: read_principal(&sender)?,
        client_msg_id: ClientMsgId::parse(&client_msg_id).map_err(|_| Trouble::Damaged("a client message id"))?,
        kind,
        content,
        recalled: recalled_by.is_some(),
        bot: bot != 0,
        at: UnixMillis(at),
    })
}

fn key_of(message: &MessageRecord) -> Key {
    (message.session, message.side, message.sender.clone(), message.client_msg_id.clone())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
