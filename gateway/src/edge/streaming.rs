//! A response that goes on: what a stream of events says is passed to the client part by part, over HTTP/1.1 and HTTP/2.
//!
//! Bounded: one part waits here, one is being written; whoever makes the parts feels a client that reads slowly. What never
//! happens here: knowing what the parts mean (`fallback::events`).

use std::time::Duration;

use bytes::Bytes;
use http::header;
use pingora_core::{Error, ErrorType};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long one part may take to be written before the client counts as gone.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// The head of a stream of events. Intermediaries are asked to pass it on as it comes.
pub(super) fn head(session: &Session, trace_id: &str) -> pingora_core::Result<Box<ResponseHeader>> {
    let mut head = ResponseHeader::build(200, Some(5))?;
    head.insert_header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")?;
    head.insert_header(header::CACHE_CONTROL, "no-store, no-transform")?;
    head.insert_header("x-accel-buffering", "no")?;
    head.insert_header("x-trace-id", trace_id)?;
    // HTTP/1.0 knows no chunks: there the end of the connection ends the body. HTTP/2 has frames of its own.
    if session.req_header().version == http::Version::HTTP_11 {
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(Box::new(head))
}

/// Writes parts until there are no more, the client goes, or it takes too long to read one. The head is written.
pub(super) async fn relay(session: &mut Session, mut parts: mpsc::Receiver<Bytes>) -> pingora_core::Result<()> {
    loop {
        // Both branches are cancel safe: a channel keeps what was not returned, and the other reads at most a byte that nobody
        // may send.
        let part = tokio::select! {
            part = parts.recv() => part,
            // Whatever comes of it, the client has gone or has said something that is not HTTP.
            gone = session.as_downstream_mut().read_body_or_idle(true) => {
                return match gone {
                    Err(error) => Err(error),
                    Ok(_) => Error::e_explain(ErrorType::ConnectionClosed, "the client spoke within a stream"),
                };
            }
        };
        let end = part.is_none();
        let written = timeout(WRITE_MAX, session.write_response_body(Some(part.unwrap_or_default()), end)).await;
        match written {
            Ok(Ok(())) if end => return Ok(()),
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Error::e_explain(ErrorType::WriteTimedout, "the client does not read its stream"),
        }
    }
}
