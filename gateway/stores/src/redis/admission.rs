//! Flash-sale stock in Redis. The rules run in `lua/seckill/*.lua`; this file names keys, packs arguments, reads answers.

use std::collections::HashMap;
use std::sync::LazyLock;

use async_trait::async_trait;
use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed, PortError, PortErrorKind, PortResult, Store};
use gateway_core::sale::admit::TRANSFERS_MAX;
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderResult, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms, Shard,
    StockVersion, Survey,
};
use redis::{Cmd, Pipeline, RedisError};

use super::script::{Call, Script};
use super::{RedisStore, Replication, info_field, nonsense};
use crate::error::failed;

mod survey;
mod words;

use self::words::{read_admit, read_event, read_held, read_state, write_held, write_reservation};

static ADMIT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/admit.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/release.lua")));
static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/reserve.lua")));
static SEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/send.lua")));
static RECEIVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/receive.lua")));
static INSTALL: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/install.lua")));
static STATE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/state.lua")));
static RETIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/retire.lua")));
static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/claim.lua")));
static ACKNOWLEDGE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/seckill/acknowledge.lua")));

/// Items in one call where the caller sets no bound: far below the 8,000 values a Lua call may unpack, and about a
/// millisecond of Redis.
const CHUNK: usize = 1_000;

/// Staged buyers of an installation that never came are gone after this long.
const STAGED_TTL_S: i64 = 600;

/// Final results and retired shards are forgotten after this long; afterwards the ledger answers.
const FORGOTTEN_AFTER_S: i64 = 7 * 24 * 3_600;

#[async_trait]
impl Admission for RedisStore {
    async fn admit(&self, shard: Shard, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        const DOING: &str = "admit attempts";
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = ADMIT.call();
        call.key(key(shard, "sale")).key(key(shard, "buyers")).key(key(shard, "events"));
        for attempt in attempts {
            call.arg(attempt.user.as_str()).arg(attempt.qty).arg(attempt.order_no.as_str()).arg(attempt.generation);
        }
        let link = self.replication.as_ref().map_or(&self.link, |replication| &replication.link);
        let connection = link.connection();
        let answers: Vec<String> = self.script_over(link, DOING, &call).await?;
        if let Some(replication) = &self.replication
            && answers.iter().any(|answer| answer == "OK")
        {
            self.replicate(replication, shard, connection).await;
        }
        let read: Option<Vec<_>> = answers.iter().map(|answer| read_admit(answer)).collect();
        read.filter(|read| read.len() == attempts.len()).ok_or_else(|| failed(DOING, nonsense(&answers.join(", "))))
    }

    async fn held(&self, shard: Shard, user: &PrincipalId) -> PortResult<Option<Held>> {
        const DOING: &str = "look up what a user holds";
        let held: Option<String> = self.query(DOING, redis::cmd("HGET").arg(key(shard, "buyers")).arg(user.as_str())).await?;
        held.map(|text| read_held(&text).ok_or_else(|| failed(DOING, nonsense(&text)))).transpose()
    }

    async fn install(&self, shard: Shard, terms: &SaleTerms) -> PortResult<Installed> {
        const DOING: &str = "install a sale";
        // Read before the installation: if Redis restarts in between, the sale names a life that is over and is rebuilt.
        let incarnation = self.incarnation(shard).await?;
        let staged = key(shard, &format!("staged:{}", terms.epoch));
        self.stage(&staged, &terms.buyers).await?;
        let mut call = INSTALL.call();
        call.key(key(shard, "sale")).key(key(shard, "buyers")).key(key(shard, "events")).key(key(shard, "transfers")).key(&staged);
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

    async fn set_state(&self, shard: Shard, epoch: u32, state: SaleState) -> PortResult<bool> {
        let mut call = STATE.call();
        call.key(key(shard, "sale")).arg(epoch).arg(state.as_str());
        self.script("set the state of a sale", &call).await
    }

    async fn stock(&self, shard: Shard) -> PortResult<Option<SaleStock>> {
        const DOING: &str = "read the stock";
        read_stock(self.query(DOING, &stock_command(shard)).await?).map_err(|source| failed(DOING, source))
    }

    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Option<StockVersion>> {
        let at: Option<(u32, u64)> = self.script("release a reservation", &release_call(shard, release)).await?;
        Ok(at.map(|(epoch, returns)| StockVersion { epoch, returns }))
    }

    async fn refuse(&self, shard: Shard, consumer: &str, id: &str, release: &Release) -> PortResult<Option<StockVersion>> {
        let mut call = release_call(shard, release);
        call.key(key(shard, "events")).arg(consumer).arg(id);
        let at: Option<(u32, u64)> = self.script("refuse an order event", &call).await?;
        Ok(at.map(|(epoch, returns)| StockVersion { epoch, returns }))
    }

    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Reserved> {
        const DOING: &str = "reserve units again";
        let mut call = RESERVE.call();
        call.key(key(shard, "sale")).key(key(shard, "buyers"));
        call.arg(user.as_str()).arg(reservation.qty).arg(reservation.order_no.as_str()).arg(reservation.revision);
        let answer: String = self.script(DOING, &call).await?;
        match answer.as_str() {
            "HELD" => Ok(Reserved::Held),
            "TAKEN" => Ok(Reserved::Taken),
            "NOUNITS" => Ok(Reserved::NoUnits),
            "NOSALE" => Ok(Reserved::NoSale),
            other => Err(failed(DOING, nonsense(other))),
        }
    }

    async fn send(&self, from: Shard, id: &str, to: u8, wanted: u32) -> PortResult<u32> {
        let mut call = SEND.call();
        call.key(key(from, "sale")).key(key(from, "transfers")).arg(id).arg(to).arg(wanted).arg(TRANSFERS_MAX);
        self.script("send units to another shard", &call).await
    }

    async fn receive(&self, to: Shard, epoch: u32, id: &str, units: u32) -> PortResult<bool> {
        let mut call = RECEIVE.call();
        call.key(key(to, "sale")).key(key(to, "transfers")).arg(epoch).arg(id).arg(units);
        self.script("receive units from another shard", &call).await
    }

    async fn survey(&self, shard: Shard) -> PortResult<Option<Survey>> {
        survey::survey(self, shard).await
    }

    async fn retire(&self, shard: Shard, epoch: u32) -> PortResult<bool> {
        let mut call = RETIRE.call();
        call.key(key(shard, "sale")).key(key(shard, "buyers")).key(key(shard, "events")).key(key(shard, "transfers"));
        call.arg(epoch).arg(FORGOTTEN_AFTER_S);
        self.script("retire a shard", &call).await
    }

    async fn claim(&self, shard: Shard, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut call = CLAIM.call();
        call.key(key(shard, "events")).arg(consumer).arg(max).arg(millis(self.reclaim_idle));
        let entries: Vec<(String, Vec<Vec<u8>>)> = self.script("claim order events", &call).await?;
        Ok(entries.into_iter().map(|(id, fields)| read_event(id, &fields)).collect())
    }

    async fn acknowledge(&self, shard: Shard, ids: &[String]) -> PortResult<()> {
        for ids in ids.chunks(CHUNK) {
            let mut call = ACKNOWLEDGE.call();
            call.key(key(shard, "events")).arg(ids);
            let _removed: u64 = self.script("acknowledge order events", &call).await?;
        }
        Ok(())
    }

    async fn backlog(&self, shard: Shard) -> PortResult<u64> {
        // Acknowledging removes an event, so the length of the stream is the work left.
        self.query("count order events", redis::cmd("XLEN").arg(key(shard, "events"))).await
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        let store = |commands: &mut Pipeline, (order_no, result): &(OrderNo, OrderResult)| {
            let (status, message) = match result {
                OrderResult::Success { .. } => ("success", ""),
                OrderResult::Fail { message, .. } => ("fail", message.as_str()),
            };
            let key = result_key(order_no);
            let fields = [("status", status), ("user", result.user().as_str()), ("message", message)];
            commands.hset_multiple(&key, &fields).ignore().expire(&key, FORGOTTEN_AFTER_S);
        };
        for results in results.chunks(CHUNK) {
            let _stored: Vec<bool> = self.each("store order results", results, store).await?;
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

    async fn incarnation(&self, shard: Shard) -> PortResult<String> {
        const DOING: &str = "read the incarnation";
        let mut command = redis::cmd("INFO");
        command.arg(&["server", "replication"]);
        let info: String = self.query_where(DOING, &key(shard, "sale"), &command).await?;
        // The run is drawn at each start, the history anew at each promotion: a server that comes back and one that takes
        // over both give another pair, also one that was primary before and is so again.
        let run_and_history = info_field(&info, "run_id").zip(info_field(&info, "master_replid"));
        run_and_history.map(|(run, history)| format!("{run}.{history}")).ok_or_else(|| failed(DOING, nonsense("INFO without run_id")))
    }
}

impl RedisStore {
    /// Waits until replicas have what was admitted over `connection`; who lacks them is counted, for the units are taken either
    /// way.
    async fn replicate(&self, replication: &Replication, shard: Shard, connection: u64) {
        let Replication { link, replicas, wait, missed } = replication;
        let mut over = link.clone();
        let command = redis::cmd("WAIT").arg(replicas).arg(millis(*wait).max(1)).take();
        let key = key(shard, "sale");
        let waiting = over.run_where(&key, &command);
        let reached: PortResult<u64> = self.bounded(link, self.timeout + *wait, "wait for replicas", waiting).await;
        // Another connection has written nothing yet, and every replica has all of that.
        if link.connection() != connection || reached.unwrap_or(0) < u64::from(*replicas) {
            missed();
        }
    }

    /// Fills the staging hash of an installation. Several calls, because a lot can have more buyers than one call carries.
    async fn stage(&self, staged: &str, buyers: &[(PrincipalId, Held)]) -> PortResult<()> {
        for (index, buyers) in buyers.chunks(CHUNK).enumerate() {
            let mut pipeline = redis::pipe();
            if index == 0 {
                pipeline.cmd("UNLINK").arg(staged).ignore();
            }
            let fields: Vec<_> = buyers.iter().map(|(user, held)| (user.as_str(), write_held(held))).collect();
            pipeline.hset_multiple(staged, &fields).ignore().expire(staged, STAGED_TTL_S).ignore();
            self.pipeline::<()>("stage the buyers of a sale", &pipeline).await?;
        }
        Ok(())
    }
}

/// All keys of a shard share the hash tag `{activity:sku}` or `{activity:sku:index}`: one slot of a cluster, so that one script
/// may touch them all.
fn key(shard: Shard, name: &str) -> String {
    format!("seckill:{{{shard}}}:{name}")
}

fn result_key(order_no: &OrderNo) -> String {
    format!("seckill:result:{order_no}")
}

fn release_call(shard: Shard, Release { user, reservation, epoch, generation }: &Release) -> Call<'static> {
    let mut call = RELEASE.call();
    call.key(key(shard, "sale")).key(key(shard, "buyers"));
    call.arg(user.as_str()).arg(write_reservation(reservation)).arg(reservation.qty).arg(generation);
    call.arg(epoch.map(|epoch| epoch.to_string()).unwrap_or_default());
    call
}

fn stock_command(shard: Shard) -> Cmd {
    let mut command = redis::cmd("HMGET");
    command.arg(key(shard, "sale")).arg(&["epoch", "state", "left", "returns", "incarnation"]);
    command
}

/// Reads the answer to [`stock_command`].
fn read_stock(fields: StockFields) -> Result<Option<SaleStock>, RedisError> {
    let (Some(epoch), state, left, returns, incarnation) = fields else { return Ok(None) };
    let returns = returns.unwrap_or(0);
    match (state.as_deref().and_then(read_state), left, incarnation) {
        (Some(state), Some(left), Some(incarnation)) => {
            Ok(Some(SaleStock { state, left, at: StockVersion { epoch, returns }, incarnation }))
        }
        (state, left, _) => Err(nonsense(&format!("sale with state {state:?} and left {left:?}"))),
    }
}

type StockFields = (Option<u32>, Option<String>, Option<u32>, Option<u64>, Option<String>);

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
