//! Reading a body that may be too large, and saying so in a way that a client gets to see.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;

use crate::admin::Refused;

/// Of a body that is too large this much more is read and forgotten: a client that is still writing when its connection
/// closes sees a broken pipe instead of the answer.
const FORGOTTEN_BYTES_MAX: usize = 1 << 30;

/// How long that may take.
const FORGETTING_MAX: Duration = Duration::from_secs(20);

/// The whole body, of at most `bytes_max`; a larger one is 413.
pub(super) async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Refused> {
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Refused::bad("the body ended before its end"))?;
        if whole.len() + piece.len() > bytes_max {
            drop(whole);
            let forget = async {
                let mut forgotten = 0;
                while let Some(Ok(piece)) = pieces.next().await {
                    forgotten += piece.len();
                    if forgotten > FORGOTTEN_BYTES_MAX {
                        return;
                    }
                }
            };
            // Whoever sends still more, or slowly, has had its chance.
            let _ = tokio::time::timeout(FORGETTING_MAX, forget).await;
            return Err(Refused::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "TOO_LARGE",
                format!("the body has more than {bytes_max} bytes, which is the most this path takes"),
            ));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
