//! Buyers who do what a good client does: ask again, with the same key, until there is an answer that is one.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::edge::Edge;
use crate::sale::Lot;
use crate::tokens;
use crate::wait::{RECOVERED, until};

/// Between two attempts of one buyer.
const AGAIN_AFTER: Duration = Duration::from_millis(150);

/// What buyers of one lot share.
#[derive(Debug)]
pub(crate) struct Shop<'a> {
    /// Where they buy.
    pub(crate) cluster: &'a Cluster,
    /// What they buy with.
    pub(crate) edge: Edge,
    /// What they buy.
    pub(crate) lot: Lot,
}

impl Shop<'_> {
    /// `id` asks on `node`, and on the other of two when that one is away, until there is an answer: an order number, or none
    /// when sold out.
    pub(crate) async fn buy(&self, id: &str, node: usize) -> anyhow::Result<Option<String>> {
        let (token, key) = (tokens::user(id), format!("key-{id}"));
        let asking = async {
            let mut node = node;
            loop {
                match self.edge.buy(self.cluster.edge(node), &token, self.lot, &key).await {
                    Ok(answer) if answer.status == 503 => {}
                    Ok(answer) if answer.verdict() == (409, "SOLD_OUT") => return Ok(None),
                    Ok(answer) => {
                        ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
                        return Ok(Some(answer.body["orderNo"].as_str().context("no orderNo")?.to_owned()));
                    }
                    // The node is away, or went away with the request: another one knows as much.
                    Err(_) => node = 1 - node,
                }
                sleep(AGAIN_AFTER).await;
            }
        };
        timeout(RECOVERED, asking).await.with_context(|| format!("{id} got no answer within {RECOVERED:?}"))?
    }

    /// What became of an order of `id`, as `node` tells: `success` or `fail`, which it must be in the end.
    pub(crate) async fn settled(&self, id: &str, order_no: &str, node: usize) -> anyhow::Result<String> {
        let token = tokens::user(id);
        until(format!("the order of {id} is settled"), RECOVERED, async || {
            self.edge.settled(self.cluster.edge(node), &token, order_no).await
        })
        .await
    }
}
