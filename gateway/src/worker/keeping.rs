//! Once a second: look at every lot, pre-heat and rebuild what needs it, and keep the gauges.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::clock;
use crate::health;
use crate::node::Node;
use crate::sale::keeper::{Keeper, Kept};

const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn run(node: Arc<Node>) {
    let mut keeper = Keeper::new(node.ports.admission.clone(), node.ports.sales.clone(), node.config.sale.preheat_before);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = node.drain.wait() => return,
        }
        if let Err(error) = look(&node, &mut keeper).await {
            node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
            tracing::debug!(error = health::chain(&error), "cannot look after the sales now");
        }
    }
}

async fn look(node: &Node, keeper: &mut Keeper) -> Result<(), gateway_core::ports::PortError> {
    let now = clock::now();
    let lots = node.ports.sales.lots(now).await?;
    for (lot, kept) in keeper.tend(&lots, now).await? {
        match kept {
            Kept::Installed(epoch) => tracing::info!(%lot, epoch, "sale in force"),
            Kept::Draining(events) => tracing::info!(%lot, events, "sale paused until its events are in the ledger"),
            Kept::Well | Kept::Elsewhere => {}
        }
    }
    let broken = lots.iter().filter(|lot| u64::from(lot.sold) != lot.live).count();
    node.metrics.invariant_broken.with_label_values(&["sold_is_sum_of_orders"]).set(i64::from(broken > 0));
    let mut waiting = 0;
    for lot in &lots {
        waiting += node.ports.admission.backlog(lot.lot).await?;
    }
    node.metrics.order_lag_events.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    Ok(())
}
