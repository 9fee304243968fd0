//! Waiting for a state that can be seen. Nothing here waits for a fixed time: a fast machine goes on at once, a slow one gets
//! the whole deadline.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The deadline of ordinary steps. They take milliseconds; a machine that is busy with other tests may need seconds.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The deadline of steps that include a restart of a service or a process.
pub(crate) const RECOVERED: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until there is something to see. A look that fails counts as nothing seen; the last failure is told at the end.
pub(crate) async fn until<T>(
    what: impl AsRef<str>,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let what = what.as_ref();
    let deadline = Instant::now() + within;
    loop {
        let looked = timeout_at(deadline, look()).await;
        let in_time = Instant::now() < deadline;
        match looked {
            Ok(Ok(Some(seen))) => return Ok(seen),
            Ok(Ok(None) | Err(_)) if in_time => sleep(LOOK_EVERY).await,
            Ok(Ok(None)) => bail!("{what}: not within {within:?}"),
            Ok(Err(error)) => return Err(error.context(format!("{what}: not within {within:?}"))),
            Err(_) => bail!("{what}: the last look did not end within {within:?}"),
        }
    }
}

/// The outcome of `step`, which must come within [`SOON`].
pub(crate) async fn soon<T>(what: &str, step: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(SOON, step).await.with_context(|| format!("{what}: not within {SOON:?}"))
}
