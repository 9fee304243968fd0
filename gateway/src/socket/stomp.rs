//! STOMP on a socket: hands texts and frames between the client's side of [`Stomp`] and the connection.
//!
//! What never happens here: a rule of either protocol.

use gateway_core::chat::connection::{Connection, Start};
use gateway_core::chat::frame::Text;
use gateway_core::chat::stomp::{Stomp, StompLimits};
use gateway_core::time::UnixMillis;

/// A conversation in STOMP with the client of a connection that starts from `start`.
pub(crate) fn begin(start: &Start, body_bytes_max: usize, now: UnixMillis) -> Stomp {
    let limits = StompLimits { body_bytes_max, ..StompLimits::default() };
    Stomp::new(start.party.clone(), start.conn_id.clone(), limits, now)
}

/// The client sent `text`.
pub(crate) fn hear(stomp: &mut Stomp, text: &str, connection: &mut Connection, now: UnixMillis) {
    // A line feed is a sign of life too, and no frame that the connection would see.
    connection.handle_pong(now);
    stomp.handle_text(text, now);
    pass_on(stomp, connection, now);
}

/// The connection wrote `frame`.
pub(crate) fn tell(stomp: &mut Stomp, frame: &Text, connection: &mut Connection, now: UnixMillis) {
    stomp.handle_frame(frame.as_str(), now);
    pass_on(stomp, connection, now);
}

/// Something may be due.
pub(crate) fn wake(stomp: &mut Stomp, connection: &mut Connection, now: UnixMillis) {
    stomp.handle_timeout(now);
    pass_on(stomp, connection, now);
}

fn pass_on(stomp: &mut Stomp, connection: &mut Connection, now: UnixMillis) {
    while let Some(request) = stomp.poll_request() {
        connection.handle_text(&request, now);
    }
    while let Some(nacked) = stomp.poll_nacked() {
        tracing::info!(conn = connection.conn_id().as_str(), session = %nacked.session, seq = nacked.seq, "a client did not take a message");
    }
}
