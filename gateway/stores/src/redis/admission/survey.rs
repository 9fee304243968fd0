//! Counting a shard: its buyers come in several calls, so that Redis goes on admitting meanwhile, and the count is given up
//! when the stock moved.

use std::collections::{BTreeMap, HashMap};

use gateway_core::id::PrincipalId;
use gateway_core::ports::PortResult;
use gateway_core::sale::{Held, SaleStock, Shard, Survey, Transfer};

use super::words::read_held;
use super::{CHUNK, StockFields, key, read_stock, stock_command};
use crate::error::failed;
use crate::redis::{RedisStore, nonsense};

/// Calls one count may take: more buyers than any lot has units worth counting. Beyond it the shard counts as one that moves.
const CALLS_MAX: usize = 10_000;

const DOING: &str = "count a shard";

/// Everything in `shard`, if its stock stood still.
///
/// Each change of what buyers hold takes units from what is left, or raises `returns`, which never falls: where both are the
/// same before and after, nothing happened in between. Only a revision may have been raised meanwhile, and that moves no unit.
pub(super) async fn survey(store: &RedisStore, shard: Shard) -> PortResult<Option<Survey>> {
    let mut first = redis::pipe();
    first.add_command(stock_command(shard)).cmd("HGETALL").arg(key(shard, "transfers"));
    let (fields, transfers): (StockFields, HashMap<String, String>) = store.pipeline(DOING, &first).await?;
    let Some(stock) = read(fields)? else { return Ok(None) };
    let (sent, received) = read_transfers(transfers)?;
    let mut buyers = BTreeMap::new();
    let mut cursor = 0_u64;
    for _ in 0..CALLS_MAX {
        let mut next = redis::pipe();
        next.cmd("HSCAN").arg(key(shard, "buyers")).arg(cursor).arg("COUNT").arg(CHUNK).add_command(stock_command(shard));
        let ((after, fields), now): ((u64, Vec<String>), StockFields) = store.pipeline(DOING, &next).await?;
        if read(now)?.as_ref() != Some(&stock) {
            return Ok(None);
        }
        for pair in fields.chunks_exact(2) {
            let (user, held) = PrincipalId::parse(&pair[0])
                .ok()
                .zip(read_held(&pair[1]))
                .ok_or_else(|| failed(DOING, nonsense(&format!("buyer {} with {}", pair[0], pair[1]))))?;
            // A scan may show an entry twice.
            buyers.insert(user, held);
        }
        if after == 0 {
            return Ok(Some(Survey { stock, buyers: buyers.into_iter().collect::<Vec<(PrincipalId, Held)>>(), sent, received }));
        }
        cursor = after;
    }
    Ok(None)
}

fn read(fields: StockFields) -> PortResult<Option<SaleStock>> {
    read_stock(fields).map_err(|source| failed(DOING, source))
}

/// `>id` holds `to:units`, `<id` holds units.
fn read_transfers(transfers: HashMap<String, String>) -> PortResult<(Vec<Transfer>, Vec<String>)> {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (name, value) in transfers {
        if let Some(id) = name.strip_prefix('<') {
            received.push(id.to_owned());
        } else if let Some(transfer) = read_transfer(&name, &value) {
            sent.push(transfer);
        } else {
            return Err(failed(DOING, nonsense(&format!("transfer {name} with {value}"))));
        }
    }
    sent.sort_by(|one, other| one.id.cmp(&other.id));
    received.sort();
    Ok((sent, received))
}

fn read_transfer(name: &str, value: &str) -> Option<Transfer> {
    let (to, units) = value.split_once(':')?;
    Some(Transfer { id: name.strip_prefix('>')?.to_owned(), to: to.parse().ok()?, units: units.parse().ok()? })
}
