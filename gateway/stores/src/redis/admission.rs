//! Flash-sale stock in Redis. The rules run in `lua/seckill/*.lua`; this file names keys, packs arguments, reads answers.

use std::collections::HashMap;
use std::sync::LazyLock;

use async_trait::async_trait;
use gateway_core::id::{Lot, OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed, PortError, PortErrorKind, PortResult, Store};
use gateway_core::sale::{Admit, ClaimedEvent, OrderEvent, OrderResult, Reservation, SaleAttempt, SaleState, SaleStock, SaleTerms};

use super::script::Script;
use super::{RedisStore, info_field, nonsense};
use crate::error::failed;

static ADMIT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/admit.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/release.lua")));
static INSTALL: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/install.lua")));
static STATE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/state.lua")));
static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/claim.lua")));
static ACKNOWLEDGE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/acknowledge.lua")));

/// Final results stay this long; afterwards the ledger answers.
const RESULT_TTL_S: i64 = 7 * 24 * 3_600;

/// Items in one call where the caller sets no bound: far below the 8,000 values a Lua call may unpack, and about a
/// millisecond of Redis.
const CHUNK: usize = 1_000;

/// Staged buyers of an installation that never came are gone after this long.
const STAGED_TTL_S: i64 = 600;

/// Units in one attempt (the type's word); whatever else stands in an event was not written by `admit.lua`.
const UNITS: std::ops::RangeInclusive<u32> = 1..=9_999;

/// A poison entry is shown to an operator, not stored for ever.
const POISON_CHARS_MAX: usize = 1_024;

#[async_trait]
impl Admission for RedisStore {
    async fn admit(&self, lot: Lot, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        const DOING: &str = "admit attempts";
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = ADMIT.call();
        call.key(sale_key(lot)).key(buyers_key(lot)).key(events_key(lot));
        for attempt in attempts {
            call.arg(attempt.user.as_str()).arg(attempt.qty).arg(attempt.order_no.as_str());
        }
        let answers: Vec<String> = self.script(DOING, &call).await?;
        let read: Option<Vec<_>> = answers.iter().map(|answer| read_admit(answer)).collect();
        read.filter(|read| read.len() == attempts.len()).ok_or_else(|| failed(DOING, nonsense(&answers.join(", "))))
    }

    async fn reservation(&self, lot: Lot, user: &PrincipalId) -> PortResult<Option<Reservation>> {
        const DOING: &str = "look up a reservation";
        let held: Option<String> = self.query(DOING, redis::cmd("HGET").arg(buyers_key(lot)).arg(user.as_str())).await?;
        held.map(|text| read_reservation(&text).ok_or_else(|| failed(DOING, nonsense(&text)))).transpose()
    }

    async fn install(&self, lot: Lot, terms: &SaleTerms) -> PortResult<Installed> {
        const DOING: &str = "install a sale";
        // Read before the installation: if Redis restarts in between, the sale names a life that is over and is rebuilt.
        let incarnation = self.incarnation().await?;
        let staged = staged_key(lot, terms.epoch);
        self.stage(&staged, &terms.buyers).await?;
        let mut call = INSTALL.call();
        call.key(sale_key(lot)).key(buyers_key(lot)).key(events_key(lot)).key(&staged);
        call.arg(terms.epoch).arg(terms.start.0).arg(terms.end.0).arg(terms.per_user).arg(terms.left);
        call.arg(&incarnation).arg(terms.buyers.len());
        match self.script(DOING, &call).await? {
            1 => Ok(Installed::Yes),
            0 => Ok(Installed::Stale),
            // Redis lost a part of what was staged a moment ago; the next attempt stages it again.
            -1 => Err(PortError { kind: PortErrorKind::Unavailable, store: Store::Redis, doing: DOING, source: None }),
            other => Err(failed(DOING, nonsense(&other.to_string()))),
        }
    }

    async fn set_state(&self, lot: Lot, epoch: u32, state: SaleState) -> PortResult<bool> {
        let mut call = STATE.call();
        call.key(sale_key(lot)).arg(epoch).arg(state_word(state));
        self.script("set the state of a sale", &call).await
    }

    async fn stock(&self, lot: Lot) -> PortResult<Option<SaleStock>> {
        const DOING: &str = "read the stock";
        type Fields = (Option<u32>, Option<String>, Option<u32>, Option<String>);
        let mut read = redis::cmd("HMGET");
        read.arg(sale_key(lot)).arg(&["epoch", "state", "left", "incarnation"]);
        let (epoch, state, left, incarnation): Fields = self.query(DOING, &read).await?;
        let Some(epoch) = epoch else { return Ok(None) };
        let state = state.as_deref().and_then(read_state);
        match (state, left, incarnation) {
            (Some(state), Some(left), Some(incarnation)) => Ok(Some(SaleStock { epoch, state, left, incarnation })),
            (state, left, _) => Err(failed(DOING, nonsense(&format!("sale with state {state:?} and left {left:?}")))),
        }
    }

    async fn release(&self, lot: Lot, epoch: u32, user: &PrincipalId, reservation: &Reservation) -> PortResult<bool> {
        let mut call = RELEASE.call();
        call.key(sale_key(lot)).key(buyers_key(lot));
        call.arg(epoch).arg(user.as_str()).arg(write_reservation(reservation)).arg(reservation.qty);
        self.script("release a reservation", &call).await
    }

    async fn claim(&self, lot: Lot, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut call = CLAIM.call();
        call.key(events_key(lot)).arg(consumer).arg(max).arg(millis(self.reclaim_idle));
        let entries: Vec<(String, Vec<Vec<u8>>)> = self.script("claim order events", &call).await?;
        Ok(entries.into_iter().map(|(id, fields)| read_event(id, &fields)).collect())
    }

    async fn acknowledge(&self, lot: Lot, ids: &[String]) -> PortResult<()> {
        for ids in ids.chunks(CHUNK) {
            let mut call = ACKNOWLEDGE.call();
            call.key(events_key(lot)).arg(ids);
            let _removed: u64 = self.script("acknowledge order events", &call).await?;
        }
        Ok(())
    }

    async fn backlog(&self, lot: Lot) -> PortResult<u64> {
        // Acknowledging removes an event, so the length of the stream is the work left.
        self.query("count order events", redis::cmd("XLEN").arg(events_key(lot))).await
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        for results in results.chunks(CHUNK) {
            let mut pipeline = redis::pipe();
            for (order_no, result) in results {
                let (status, message) = match result {
                    OrderResult::Success { .. } => ("success", ""),
                    OrderResult::Fail { message, .. } => ("fail", message.as_str()),
                };
                let key = result_key(order_no);
                let fields = [("status", status), ("user", result.user().as_str()), ("message", message)];
                pipeline.hset_multiple(&key, &fields).ignore().expire(&key, RESULT_TTL_S).ignore();
            }
            self.pipeline::<()>("store order results", &pipeline).await?;
        }
        Ok(())
    }

    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>> {
        const DOING: &str = "look up an order result";
        let mut fields: HashMap<String, String> = self.query(DOING, redis::cmd("HGETALL").arg(result_key(order_no))).await?;
        if fields.is_empty() {
            return Ok(None);
        }
        let user = fields.get("user").and_then(|user| PrincipalId::parse(user).ok());
        match (fields.get("status").map(String::as_str), user) {
            (Some("success"), Some(user)) => Ok(Some(OrderResult::Success { user })),
            (Some("fail"), Some(user)) => Ok(Some(OrderResult::Fail { user, message: fields.remove("message").unwrap_or_default() })),
            (status, _) => Err(failed(DOING, nonsense(&format!("result with status {status:?}")))),
        }
    }

    async fn incarnation(&self) -> PortResult<String> {
        const DOING: &str = "read the incarnation";
        // Drawn by Redis at each start, and another one on another server: a failover changes it too.
        let info: String = self.query(DOING, redis::cmd("INFO").arg("server")).await?;
        info_field(&info, "run_id").map(str::to_owned).ok_or_else(|| failed(DOING, nonsense("INFO without run_id")))
    }
}

impl RedisStore {
    /// Fills the staging hash of an installation. Several calls, because a lot can have more buyers than one call carries.
    async fn stage(&self, staged: &str, buyers: &[(PrincipalId, Reservation)]) -> PortResult<()> {
        for (index, buyers) in buyers.chunks(CHUNK).enumerate() {
            let mut pipeline = redis::pipe();
            if index == 0 {
                pipeline.cmd("UNLINK").arg(staged).ignore();
            }
            let fields: Vec<_> = buyers.iter().map(|(user, held)| (user.as_str(), write_reservation(held))).collect();
            pipeline.hset_multiple(staged, &fields).ignore().expire(staged, STAGED_TTL_S).ignore();
            self.pipeline::<()>("stage the buyers of a sale", &pipeline).await?;
        }
        Ok(())
    }
}

// All keys of a lot share the hash tag `{activity:sku}`: one slot of a cluster, so that one script may touch them all.
fn sale_key(lot: Lot) -> String {
    format!("seckill:{{{lot}}}:sale")
}

fn buyers_key(lot: Lot) -> String {
    format!("seckill:{{{lot}}}:buyers")
}

fn events_key(lot: Lot) -> String {
    format!("seckill:{{{lot}}}:events")
}

fn staged_key(lot: Lot, epoch: u32) -> String {
    format!("seckill:{{{lot}}}:staged:{epoch}")
}

fn result_key(order_no: &OrderNo) -> String {
    format!("seckill:result:{order_no}")
}

fn state_word(state: SaleState) -> &'static str {
    match state {
        SaleState::Open => "open",
        SaleState::Paused => "paused",
        SaleState::Closed => "closed",
    }
}

fn read_state(word: &str) -> Option<SaleState> {
    match word {
        "open" => Some(SaleState::Open),
        "paused" => Some(SaleState::Paused),
        "closed" => Some(SaleState::Closed),
        _ => None,
    }
}

fn write_reservation(reservation: &Reservation) -> String {
    format!("{}:{}", reservation.qty, reservation.order_no)
}

fn read_reservation(text: &str) -> Option<Reservation> {
    let (qty, order_no) = text.split_once(':')?;
    Some(Reservation { qty: qty.parse().ok()?, order_no: OrderNo::parse(order_no).ok()? })
}

fn read_admit(answer: &str) -> Option<Admit> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("OK", "") => Some(Admit::Admitted),
        ("HAVE", held) => read_reservation(held).map(Admit::Replayed),
        ("NONE", "") => Some(Admit::NotReady),
        ("EARLY", "") => Some(Admit::NotStarted),
        ("LATE", "") => Some(Admit::Ended),
        ("LIMIT", "") => Some(Admit::LimitExceeded),
        ("SOLDOUT", left) => left.parse().ok().map(|left| Admit::SoldOut { left }),
        _ => None,
    }
}

/// An order event, or poison: the stream is reachable to whoever reaches Redis, and one bad entry must not stop the rest.
fn read_event(id: String, fields: &[Vec<u8>]) -> ClaimedEvent {
    match read_order(&id, fields) {
        Some(event) => ClaimedEvent::Order(event),
        None => {
            let raw = fields.iter().map(|field| String::from_utf8_lossy(field)).collect::<Vec<_>>().join(" ");
            ClaimedEvent::Poison { id, raw: raw.chars().take(POISON_CHARS_MAX).collect() }
        }
    }
}

fn read_order(id: &str, fields: &[Vec<u8>]) -> Option<OrderEvent> {
    let field = |name: &str| {
        let pair = fields.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
        std::str::from_utf8(&pair[1]).ok()
    };
    Some(OrderEvent {
        id: id.to_owned(),
        order_no: OrderNo::parse(field("o")?).ok()?,
        user: PrincipalId::parse(field("u")?).ok()?,
        qty: field("q")?.parse().ok().filter(|qty| UNITS.contains(qty))?,
        epoch: field("e")?.parse().ok()?,
    })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "SKABCDEFGHIJ234567";

    fn event(fields: &[&str]) -> ClaimedEvent {
        read_event("1-0".to_owned(), &fields.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn reads_an_order_event_in_any_order_of_fields() {
        let ClaimedEvent::Order(event) = event(&["e", "3", "q", "2", "u", "anna", "o", ORDER]) else { panic!("poison") };
        assert_eq!((event.epoch, event.qty, event.user.as_str(), event.order_no.as_str()), (3, 2, "anna", ORDER));
    }

    #[test]
    fn whatever_is_no_order_event_is_poison() {
        for fields in [
            &[][..],
            &["o", ORDER, "u", "anna", "q", "2"],
            &["o", ORDER, "u", "anna", "q", "0", "e", "1"],
            &["o", ORDER, "u", "anna", "q", "-1", "e", "1"],
            &["o", ORDER, "u", "anna", "q", "10000", "e", "1"],
            &["o", ORDER, "u", "a b", "q", "1", "e", "1"],
            &["o", "SK1", "u", "anna", "q", "1", "e", "1"],
        ] {
            assert!(matches!(event(fields), ClaimedEvent::Poison { .. }), "{fields:?}");
        }
    }

    #[test]
    fn reads_only_answers_the_script_gives() {
        assert_eq!(read_admit("SOLDOUT 2"), Some(Admit::SoldOut { left: 2 }));
        for strange in ["", "OK 1", "HAVE", "HAVE 1", "SOLDOUT", "SOLDOUT -1", "BADQTY"] {
            assert_eq!(read_admit(strange), None, "{strange}");
        }
    }
}
