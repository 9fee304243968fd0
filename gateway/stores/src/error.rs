//! From a client library's error, or from silence, to a [`PortError`]. Each store says which of its errors mean what.

use std::error::Error;
use std::time::Duration;

use gateway_core::ports::{PortError, PortErrorKind, PortResult, Store};

/// An error of one of the three services.
pub(crate) trait Failure: Error + Send + Sync + 'static {
    /// Whose error it is.
    const STORE: Store;

    /// What the caller can do about it.
    fn kind(&self) -> PortErrorKind;
}

/// No answer within the time a call may take; whether the call had its effect is unknown.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct Silence(Duration);

/// Wraps `source` with what was tried.
pub(crate) fn failed<E: Failure>(doing: &'static str, source: E) -> PortError {
    PortError { kind: source.kind(), store: E::STORE, doing, source: Some(Box::new(source)) }
}

/// The answer of `call`, or `Unavailable` after `limit`.
pub(crate) async fn within<T, E: Failure>(limit: Duration, doing: &'static str, call: impl Future<Output = Result<T, E>>) -> PortResult<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|source| failed(doing, source)),
        Err(_) => Err(PortError { kind: PortErrorKind::Unavailable, store: E::STORE, doing, source: Some(Box::new(Silence(limit))) }),
    }
}
