//! The compensation list: what could not be done, until an operator has decided.

use std::num::NonZeroU16;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use gateway_core::chat::event::QueuedSend;
use gateway_core::chat::letter;
use gateway_core::chat::partition::partition_of;
use gateway_core::id::{ActivityId, Lot, SkuId};
use gateway_core::ports::PortError;
use gateway_core::sale::{DecideOutcome, Decision, Invariant, Letter, LetterKind, SaleState, Shard, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{Answer, Refused, instants, operator};
use crate::clock;
use crate::node::Node;

/// Entries of one answer.
const PAGE_MAX: u32 = 200;

/// Longest note; the column holds 512 characters.
const NOTE_CHARS_MAX: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Decided ones too, with any value or none.
    all: Option<String>,
    /// Those with a higher id.
    #[serde(default)]
    after: u64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Wish {
    by: Option<String>,
    note: String,
}

/// `GET /admin/compensations`: open ones, with `?all` decided ones too; `next` is what to ask `?after` for more.
pub(super) async fn list(State(node): State<Arc<Node>>, which: Query<Which>) -> Answer {
    let all = which.all.as_deref().is_some_and(|all| all != "false");
    let letters = node.ports.sales.letters(!all, which.after, PAGE_MAX).await?;
    let next = letters.last().filter(|_| letters.len() == PAGE_MAX as usize).map(|letter| letter.id);
    let open = node.ports.sales.letters_open().await?;
    let entries: Vec<Value> = letters.iter().map(describe).collect();
    Ok((StatusCode::OK, axum::Json(json!({ "compensations": entries, "open": open, "next": next }))))
}

/// `POST /admin/compensations/{id}/retry`: a task of the outbox is due again, an invariant is mended, a message is queued again.
pub(super) async fn retry(State(node): State<Arc<Node>>, Path(id): Path<u64>, bytes: Bytes) -> Answer {
    queue_again(&node, id).await?;
    let letter = decide(&node, id, Verdict::Retry, &bytes).await?;
    if let Some((lot, shards)) = rebuilt(&node, &letter).await? {
        // A paused sale is rebuilt from the ledger by the worker that holds the lot.
        for shard in Shard::all(lot, shards) {
            if let Some(sale) = node.ports.admission.stock(shard).await?
                && sale.state == SaleState::Open
            {
                node.ports.admission.set_state(shard, sale.at.epoch, SaleState::Paused).await?;
            }
        }
    }
    Ok((StatusCode::OK, axum::Json(describe(&letter))))
}

/// `POST /admin/compensations/{id}/discard`: it was seen to, or does not matter.
pub(super) async fn discard(State(node): State<Arc<Node>>, Path(id): Path<u64>, bytes: Bytes) -> Answer {
    let letter = decide(&node, id, Verdict::Discard, &bytes).await?;
    Ok((StatusCode::OK, axum::Json(describe(&letter))))
}

/// Queues the message that an open letter is about. Before the decision, because a decision that stands is never made again, and
/// a message that is queued twice is stored once.
async fn queue_again(node: &Node, id: u64) -> Result<(), Refused> {
    let letters = node.ports.sales.letters(true, id.saturating_sub(1), 1).await?;
    let Some(letter) = letters.iter().find(|letter| letter.id == id && letter.what.kind == LetterKind::ChatMessage) else { return Ok(()) };
    let Some(QueuedSend { send, .. }) = letter::send_of(letter) else {
        return Err(nothing_to_retry("it is no message"));
    };
    let shop = match send.sender.shop {
        Some(shop) => shop,
        None => {
            let session = node.ports.chats.session(&send.sender, send.session).await?;
            session.ok_or_else(|| nothing_to_retry("its session is gone"))?.shop
        }
    };
    let partitions = NonZeroU16::new(node.config.chat.partitions).unwrap_or(NonZeroU16::MIN);
    let queued = QueuedSend { queued_at: clock::now(), send };
    node.ports.bus.enqueue(partition_of(queued.send.session, partitions), shop, queued.encode()).await?;
    Ok(())
}

fn nothing_to_retry(why: &str) -> Refused {
    Refused::new(StatusCode::CONFLICT, "NOTHING_TO_RETRY", format!("{why}, so there is nothing to try; discard it"))
}

async fn decide(node: &Node, id: u64, verdict: Verdict, bytes: &Bytes) -> Result<Letter, Refused> {
    let wish: Wish =
        if bytes.is_empty() { Wish::default() } else { serde_json::from_slice(bytes).map_err(|error| Refused::bad(error.to_string()))? };
    if wish.note.chars().count() > NOTE_CHARS_MAX {
        return Err(Refused::bad(format!("note has at most {NOTE_CHARS_MAX} characters")));
    }
    let decision = Decision { by: operator(wish.by)?, at: clock::now(), note: wish.note };
    match node.ports.sales.decide_letter(id, verdict, &decision).await? {
        DecideOutcome::Decided(letter) => {
            let (kind, source) = (letter.what.kind.as_str(), letter.what.source_id.as_str());
            tracing::info!(
                target: "audit", id, kind, source, verdict = ?verdict, by = decision.by, note = decision.note, "a compensation was decided"
            );
            Ok(letter)
        }
        DecideOutcome::NotFound => Err(Refused::missing("there is no such compensation")),
        DecideOutcome::NotOpen(state) => {
            Err(Refused::new(StatusCode::CONFLICT, "DECIDED", format!("it was decided before: {}", state.as_str())))
        }
        DecideOutcome::NothingToRetry => Err(nothing_to_retry("its units are back in the sale")),
    }
}

/// The lot whose sale a letter wants rebuilt, and its number of shards.
async fn rebuilt(node: &Node, letter: &Letter) -> Result<Option<(Lot, u8)>, PortError> {
    let payload: Value = serde_json::from_str(&letter.what.payload).unwrap_or(Value::Null);
    let text = |name: &str| payload[name].as_str().unwrap_or_default().to_owned();
    let of_store = match Invariant::parse(&text("invariant")) {
        Some(Invariant::StockIsLeftAndReserved | Invariant::ReservedIsLive) => letter.what.kind == LetterKind::Invariant,
        Some(Invariant::SoldIsLive | Invariant::LockedIsPromised) | None => false,
    };
    let (Ok(activity), Ok(sku)) = (ActivityId::parse(&text("activityId")), SkuId::parse(&text("skuId"))) else { return Ok(None) };
    if !of_store {
        return Ok(None);
    }
    let lot = Lot { activity, sku };
    let record = node.ports.sales.activity(activity).await?;
    let product = record.iter().flat_map(|record| &record.products).find(|product| product.lot == lot);
    Ok(product.map(|product| (lot, product.shards)))
}

fn describe(letter: &Letter) -> Value {
    let Letter { id, what, state, created, decision } = letter;
    json!({
        "id": id, "kind": what.kind.as_str(), "source": what.source_id, "state": state.as_str(), "error": what.error, "attempts": what.attempts,
        "createdAt": instants::write(*created), "payload": serde_json::from_str::<Value>(&what.payload).unwrap_or(Value::Null),
        "decision": decision.as_ref().map(|made| json!({ "by": made.by, "at": instants::write(made.at), "note": made.note })),
    })
}
