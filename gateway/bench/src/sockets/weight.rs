//! What a socket weighs on which nothing happens: resident memory of the server before and after, divided by the sockets.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::crowd::{Crowd, Seat};
use super::{Options, Target};
use crate::Sign;

/// Sockets opened and closed before the first look: what a server makes once, whoever comes, is made by then.
const WARM_UP: usize = 200;

/// What was measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Weight {
    sockets: usize,
    with_sessions: bool,
    opened_in_ms: u64,
    bytes_before: u64,
    bytes_after: u64,
    bytes_per_socket: u64,
}

pub(super) async fn measure(options: &Options, target: &Target, sign: Sign<'_>) -> anyhow::Result<Weight> {
    let settle = Duration::from_secs(options.settle);
    let count = options.count as usize;
    drop(Crowd::open(target, seats(options, target, sign, "early", WARM_UP.min(count))?).await?);
    sleep(settle).await;
    let bytes_before = target.resident()?;
    let started = Instant::now();
    let crowd = Crowd::open(target, seats(options, target, sign, "waiting", count)?).await?;
    let opened_in = started.elapsed();
    sleep(settle).await;
    crowd.check()?;
    let bytes_after = target.resident()?;
    Ok(Weight {
        sockets: count,
        with_sessions: options.sessions,
        opened_in_ms: u64::try_from(opened_in.as_millis()).unwrap_or(u64::MAX),
        bytes_before,
        bytes_after,
        bytes_per_socket: bytes_after.saturating_sub(bytes_before) / count.max(1) as u64,
    })
}

/// Each socket is another user's.
fn seats(options: &Options, target: &Target, sign: Sign<'_>, name: &str, count: usize) -> anyhow::Result<Vec<Seat>> {
    let tokens = target.tokens(sign, name, count)?;
    Ok(tokens
        .into_iter()
        .enumerate()
        .map(|(number, token)| Seat { number, path: target.path(""), token, opens: options.sessions })
        .collect())
}
