//! Dead letters, what operators decide about them, and the mending of counters that a decision asks for.

use gateway_core::id::{ActivityId, Lot, SkuId};
use gateway_core::sale::{DecideOutcome, Decision, Invariant, Letter, LetterKind, LetterState, NewLetter, Verdict};
use gateway_core::time::UnixMillis;
use sqlx::{MySql, Transaction};

use super::lots::lock_ground;
use super::outbox::{drop_task, retry_task};
use super::stock::{Line, Reason, write_lines};
use super::time::{datetime, millis};
use super::{MysqlStore, Trouble};

/// Letters in one page (the port's word).
const PAGE_MAX: u32 = 1_000;

/// Characters of an error that are kept: the width of the column.
const ERROR_CHARS_MAX: usize = 512;

/// As much of an error as is kept.
pub(super) fn kept(error: &str) -> &str {
    error.char_indices().nth(ERROR_CHARS_MAX).map_or(error, |(end, _)| &error[..end])
}

macro_rules! select_letters {
    ($rest:literal) => {
        concat!(
            "select id, source, source_id, cast(payload as char), error, attempts, state, ",
            millis!("created_at"),
            ", decided_by, ",
            millis!("decided_at"),
            ", note from dead_letter where ",
            $rest
        )
    };
}

type LetterRow = (u64, String, String, String, String, u16, u8, u64, Option<String>, Option<u64>, String);

impl MysqlStore {
    pub(super) async fn put_one_letter(&self, letter: &NewLetter, now: UnixMillis) -> Result<(), Trouble> {
        let mut tx = self.pool.begin().await?;
        put_letter(&mut tx, letter, now).await?;
        tx.commit().await?;
        Ok(())
    }

    pub(super) async fn read_letters(&self, open_only: bool, after: u64, max: u32) -> Result<Vec<Letter>, Trouble> {
        let select = if open_only {
            select_letters!("id > ? and state = 0 order by id limit ?")
        } else {
            select_letters!("id > ? order by id limit ?")
        };
        let rows: Vec<LetterRow> = sqlx::query_as(select).bind(after).bind(max.min(PAGE_MAX)).fetch_all(&self.pool).await?;
        rows.into_iter().map(read_letter).collect()
    }

    pub(super) async fn count_open_letters(&self) -> Result<u64, Trouble> {
        let (open,): (u64,) =
            sqlx::query_as("select cast(count(*) as unsigned) from dead_letter where state = 0").fetch_one(&self.pool).await?;
        Ok(open)
    }

    /// What the letter is about is locked first, and the letter last, as by whoever writes it: its state is compared and set.
    pub(super) async fn write_decision(&self, id: u64, verdict: Verdict, decision: &Decision) -> Result<DecideOutcome, Trouble> {
        const ONE: &str = select_letters!("id = ?");
        let mut tx = self.pool.begin().await?;
        let row: Option<LetterRow> = sqlx::query_as(ONE).bind(id).fetch_optional(&mut *tx).await?;
        let Some(letter) = row.map(read_letter).transpose()? else { return Ok(DecideOutcome::NotFound) };
        if letter.state != LetterState::Open {
            return Ok(DecideOutcome::NotOpen(letter.state));
        }
        let task: Option<u64> = letter.what.source_id.parse().ok();
        let possible = match (verdict, letter.what.kind, task) {
            (Verdict::Retry, LetterKind::Outbox, Some(task)) => retry_task(&mut tx, task, decision.at).await?,
            (Verdict::Retry, LetterKind::Invariant, _) => mend(&mut tx, &letter, decision.at).await?,
            (Verdict::Retry, LetterKind::Outbox | LetterKind::Event, _) => false,
            // Whoever decides has queued it.
            (Verdict::Retry, LetterKind::ChatMessage, _) => true,
            (Verdict::Discard, LetterKind::Outbox, Some(task)) => {
                drop_task(&mut tx, task).await?;
                true
            }
            (Verdict::Discard, LetterKind::Outbox | LetterKind::Event | LetterKind::ChatMessage | LetterKind::Invariant, _) => true,
        };
        if !possible {
            return Ok(DecideOutcome::NothingToRetry);
        }
        let state = match verdict {
            Verdict::Retry => 1_u8,
            Verdict::Discard => 2,
        };
        let decided = sqlx::query("update dead_letter set state = ?, decided_by = ?, decided_at = ?, note = ? where id = ? and state = 0")
            .bind(state)
            .bind(&decision.by)
            .bind(datetime(decision.at))
            .bind(&decision.note)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let row: LetterRow = sqlx::query_as(ONE).bind(id).fetch_one(&mut *tx).await?;
        let letter = read_letter(row)?;
        if decided.rows_affected() == 0 {
            return Ok(DecideOutcome::NotOpen(letter.state));
        }
        tx.commit().await?;
        Ok(DecideOutcome::Decided(letter))
    }
}

/// Writes a letter, or the news of one that is there.
pub(super) async fn put_letter(tx: &mut Transaction<'_, MySql>, letter: &NewLetter, now: UnixMillis) -> Result<(), Trouble> {
    sqlx::query(
        "insert into dead_letter (source, source_id, payload, error, attempts, created_at) values (?, ?, ?, ?, ?, ?) \
         on duplicate key update error = values(error), attempts = values(attempts), state = 0",
    )
    .bind(letter.kind.as_str())
    .bind(&letter.source_id)
    .bind(&letter.payload)
    .bind(kept(&letter.error))
    .bind(letter.attempts)
    .bind(datetime(now))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Sets the counters that a letter is about to what the rows say; says whether it could. What lies between the ledger and the
/// admission store is mended by whoever holds the lot.
async fn mend(tx: &mut Transaction<'_, MySql>, letter: &Letter, now: UnixMillis) -> Result<bool, Trouble> {
    let Some((lot, invariant)) = subject(&letter.what.source_id) else { return Ok(true) };
    match invariant {
        Invariant::StockIsLeftAndReserved | Invariant::ReservedIsLive => Ok(true),
        Invariant::SoldIsLive => mend_sold(tx, letter.id, lot, now).await,
        Invariant::LockedIsPromised => mend_locked(tx, letter.id, lot, now).await,
    }
}

/// `activity:sku:invariant`.
fn subject(source_id: &str) -> Option<(Lot, Invariant)> {
    let (activity, rest) = source_id.split_once(':')?;
    let (sku, invariant) = rest.split_once(':')?;
    let lot = Lot { activity: ActivityId::parse(activity).ok()?, sku: SkuId::parse(sku).ok()? };
    Some((lot, Invariant::parse(invariant)?))
}

async fn mend_sold(tx: &mut Transaction<'_, MySql>, letter: u64, lot: Lot, now: UnixMillis) -> Result<bool, Trouble> {
    let ground = lock_ground(tx, &[lot], None).await?;
    let Some(here) = ground.get(&lot) else { return Ok(false) };
    let (live, moved): (u64, i64) = sqlx::query_as(
        "select (select cast(coalesce(sum(qty), 0) as unsigned) from seckill_order \
                 where activity_id = ? and sku_id = ? and status in (0, 1)), \
                (select cast(coalesce(-sum(delta), 0) as signed) from stock_ledger where activity_id = ? and sku_id = ?)",
    )
    .bind(lot.activity.0)
    .bind(lot.sku.0)
    .bind(lot.activity.0)
    .bind(lot.sku.0)
    .fetch_one(&mut **tx)
    .await?;
    // More sold than there is cannot be mended by counting.
    let Some(live) = u32::try_from(live).ok().filter(|live| *live <= here.lot.stock) else { return Ok(false) };
    sqlx::query("update seckill_product set sold = ? where activity_id = ? and sku_id = ?")
        .bind(live)
        .bind(lot.activity.0)
        .bind(lot.sku.0)
        .execute(&mut **tx)
        .await?;
    let line = Line { order_no: &mending_no(tx, letter).await?, lot, delta: moved - i64::from(live) };
    write_lines(tx, &ground, Reason::Mending, &[line], &datetime(now)).await?;
    Ok(true)
}

async fn mend_locked(tx: &mut Transaction<'_, MySql>, letter: u64, lot: Lot, now: UnixMillis) -> Result<bool, Trouble> {
    let ground = lock_ground(tx, &[lot], None).await?;
    let Some(here) = ground.get(&lot) else { return Ok(false) };
    // The SKU is locked, so no lot of it sells, and none is published or settled.
    let (promised,): (u64,) = sqlx::query_as(
        "select cast(coalesce(sum(p.seckill_stock - p.sold), 0) as unsigned) from seckill_product p \
         join seckill_activity a on a.id = p.activity_id where p.sku_id = ? and a.state in (1, 2)",
    )
    .bind(lot.sku.0)
    .fetch_one(&mut **tx)
    .await?;
    // More promised than there is needs units, not another number.
    if promised > u64::from(here.sku.stock) {
        return Ok(false);
    }
    sqlx::query("update product_sku set locked = ? where id = ?").bind(promised).bind(lot.sku.0).execute(&mut **tx).await?;
    // A lock moves no units; the line says when it was set.
    let line = Line { order_no: &mending_no(tx, letter).await?, lot, delta: 0 };
    write_lines(tx, &ground, Reason::Mending, &[line], &datetime(now)).await?;
    Ok(true)
}

/// The name under which the stock ledger knows a mending: `RC` and the letter's id; a letter that is retried again, `RC7-1`.
async fn mending_no(tx: &mut Transaction<'_, MySql>, letter: u64) -> Result<String, Trouble> {
    let first = format!("RC{letter}");
    let (before,): (u64,) =
        sqlx::query_as("select cast(count(*) as unsigned) from stock_ledger where order_no = ? or order_no like concat(?, '-%')")
            .bind(&first)
            .bind(&first)
            .fetch_one(&mut **tx)
            .await?;
    Ok(if before == 0 { first } else { format!("{first}-{before}") })
}

fn read_letter(row: LetterRow) -> Result<Letter, Trouble> {
    let (id, kind, source_id, payload, error, attempts, state, created, by, at, note) = row;
    let kind = LetterKind::parse(&kind).ok_or(Trouble::Damaged("the kind of a letter"))?;
    let state = match state {
        0 => LetterState::Open,
        1 => LetterState::Retried,
        2 => LetterState::Discarded,
        _ => return Err(Trouble::Damaged("the state of a letter")),
    };
    Ok(Letter {
        id,
        what: NewLetter { kind, source_id, payload, error, attempts },
        state,
        created: UnixMillis(created),
        decision: by.zip(at).map(|(by, at)| Decision { by, at: UnixMillis(at), note }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invariants_letter_names_its_lot() {
        let lot = Lot { activity: ActivityId(1), sku: SkuId(u64::MAX) };
        assert_eq!(subject("1:18446744073709551615:sold_is_live"), Some((lot, Invariant::SoldIsLive)));
        for other in ["", "1:2", "1:2:", "1:2:other", "01:2:sold_is_live", "1:-2:sold_is_live"] {
            assert_eq!(subject(other), None, "{other}");
        }
    }

    #[test]
    fn long_errors_lose_their_end_between_characters() {
        assert_eq!(kept("short"), "short");
        assert_eq!(kept(&"茶".repeat(513)), "茶".repeat(512));
    }
}
