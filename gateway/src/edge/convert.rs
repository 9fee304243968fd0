//! Pingora's session to the core's request head, and back. Values to values; nothing here waits or decides.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config;
use gateway_core::policy::ResponseHead;
use gateway_core::request::RequestHead;
use gateway_core::trace::Trace;
use gateway_core::{client_addr, path};
use http::{HeaderMap, header};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;

use crate::edge::guard::Edits;
use crate::edge::respond::Reply;
use crate::routes::outcome::Failure;

/// How much of an unwanted body is read after the answer, and for how long.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LINGER_MAX: Duration = Duration::from_secs(1);

/// The head of a request as everybody behind the edge sees it.
pub(crate) fn request_head(session: &Session, limits: &config::Edge, trace_id: &str) -> Result<RequestHead, Failure> {
    let raw = session.req_header();
    framing(&raw.headers, || session.as_downstream().to_h1_raw())?;
    size(raw, limits)?;
    target(raw.raw_path())?;
    let path = path::normalize(raw.uri.path()).map_err(|problem| Failure::BadRequest(problem.to_string()))?;
    let forwarded: Vec<&str> = raw.headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
    Ok(RequestHead {
        method: raw.method.as_str().to_owned(),
        path,
        query: raw.uri.query().map(str::to_owned),
        host: host(raw),
        headers: headers(&raw.headers),
        client: client_addr::client(socket_address(session), &forwarded, &limits.trusted_proxies),
        trace_id: trace_id.to_owned(),
        route: Arc::from(""),
    })
}

/// The request's place in a trace: the client's, or a new one made of `random`.
pub(crate) fn trace(session: &Session, random: [u8; 24]) -> Trace {
    let mut given = session.req_header().headers.get_all("traceparent").iter();
    let first = given.next().and_then(|value| value.to_str().ok());
    Trace::begin(first.filter(|_| given.next().is_none()), random)
}

/// RFC 9112 6.3: a message with both Content-Length and Transfer-Encoding "ought to be handled as an error"; so is every
/// transfer coding but a single `chunked`, since only that one is framed the same by everybody.
///
/// `raw` is the head as it was sent: pingora drops a Content-Length that stands next to a Transfer-Encoding.
fn framing(headers: &HeaderMap, raw: impl FnOnce() -> Bytes) -> Result<(), Failure> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || has_length(&raw()) {
        return Err(Failure::BadRequest("the body's framing is ambiguous".into()));
    }
    Ok(())
}

/// Whether a head has a Content-Length field.
fn has_length(head: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    head.split(|byte| *byte == b'\n').any(|line| {
        line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
            && matches!(line.get(NAME.len()), Some(b':' | b' ' | b'\t'))
    })
}

/// RFC 9112 3.2: a target is a path or a URL. Everything else, a CONNECT's authority included, would be read as "/".
fn target(raw: &[u8]) -> Result<(), Failure> {
    let is_url = |scheme: &str| {
        raw.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
            && raw.get(scheme.len()).is_some_and(|first| *first != b'/')
    };
    if raw.starts_with(b"/") || is_url("http://") || is_url("https://") {
        Ok(())
    } else {
        Err(Failure::BadRequest("the request target is neither a path nor a URL".into()))
    }
}

fn size(raw: &RequestHeader, limits: &config::Edge) -> Result<(), Failure> {
    let target = raw.uri.path_and_query().map_or(0, |target| target.as_str().len());
    // Each field is framed by a colon, a space and a line end.
    let bytes = raw.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>() + target;
    if bytes > limits.header_bytes_max || raw.headers.len() > limits.headers_max {
        return Err(Failure::HeadTooLarge);
    }
    Ok(())
}

fn headers(raw: &HeaderMap) -> Vec<(String, String)> {
    raw.iter().filter_map(|(name, value)| value.to_str().ok().map(|value| (name.as_str().to_owned(), value.to_owned()))).collect()
}

fn host(raw: &RequestHeader) -> String {
    let authority = raw.uri.authority().map(http::uri::Authority::as_str);
    let named = authority.or_else(|| raw.headers.get(header::HOST).and_then(|value| value.to_str().ok())).unwrap_or_default();
    let without_port = match named.rsplit_once(':') {
        // In `[::1]` the last colon is inside the address.
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => named,
    };
    without_port.to_ascii_lowercase()
}

fn socket_address(session: &Session) -> IpAddr {
    session.client_addr().and_then(|addr| addr.as_inet()).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), std::net::SocketAddr::ip)
}

/// A reply's head in pingora's type.
pub(crate) fn response_head(reply: &Reply, trace_id: &str) -> pingora_core::Result<Box<ResponseHeader>> {
    let mut head = ResponseHeader::build(reply.status, Some(reply.headers.len() + 3))?;
    head.insert_header(header::CONTENT_TYPE, reply.media_type)?;
    head.insert_header(header::CONTENT_LENGTH, reply.body.len())?;
    head.insert_header("x-trace-id", trace_id)?;
    for (name, value) in &reply.headers {
        head.insert_header(*name, value.as_str())?;
    }
    Ok(Box::new(head))
}

/// A response's head as policies see it.
pub(crate) fn judged(head: &ResponseHeader) -> ResponseHead {
    ResponseHead { status: head.status.as_u16(), headers: headers(&head.headers) }
}

/// Applies what policies asked for. The host has checked names and values, and that none frames the message.
pub(crate) fn edit(head: &mut ResponseHeader, edits: Edits) -> pingora_core::Result<()> {
    for (name, value) in edits {
        match value {
            Some(value) => head.insert_header(name, value)?,
            None => drop(head.remove_header(name.as_str())),
        }
    }
    Ok(())
}

/// Reads and drops what a client still sends after it was answered, for a moment and up to a bound. Closing with unread data
/// makes the kernel reset the connection, and the client may lose the answer it was sent.
pub(crate) async fn linger(session: &mut Session) {
    let read = async {
        let mut dropped = 0;
        while let Ok(Some(part)) = session.as_downstream_mut().read_request_body().await {
            dropped += part.len();
            if dropped > LINGER_BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_MAX, read).await;
}

/// The body, read to its end, within the configured size and time.
pub(crate) async fn body(session: &mut Session, limits: &config::Edge) -> Result<Bytes, Failure> {
    let declared = session.req_header().headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(Failure::TooLarge);
    }
    let expects = session.req_header().headers.get(header::EXPECT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if expects {
        session.as_downstream_mut().write_continue_response().await.map_err(|_| Failure::BodyTimeout)?;
    }
    let read = async {
        let mut body = Vec::new();
        loop {
            match session.as_downstream_mut().read_request_body().await {
                Ok(Some(part)) if (body.len() + part.len()) as u64 > limits.body_bytes_max => return Err(Failure::TooLarge),
                Ok(Some(part)) => body.extend_from_slice(&part),
                Ok(None) => return Ok(Bytes::from(body)),
                Err(error) => return Err(Failure::BadRequest(format!("the body is broken: {}", error.etype().as_str()))),
            }
        }
    };
    tokio::time::timeout(limits.body_timeout, read).await.unwrap_or(Err(Failure::BodyTimeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_framing(fields: &[(&'static str, &'static str)], accepted: bool) {
        let mut headers = HeaderMap::new();
        let mut raw = "POST / HTTP/1.1\r\n".to_owned();
        for (name, value) in fields {
            headers.append(*name, http::HeaderValue::from_static(value));
            raw += &format!("{name}: {value}\r\n");
        }
        if headers.contains_key(header::TRANSFER_ENCODING) {
            headers.remove(header::CONTENT_LENGTH);
        }
        assert_eq!(framing(&headers, || raw.into()).is_ok(), accepted, "{fields:?}");
    }

    #[test]
    fn a_target_is_a_path_or_a_url() {
        for good in ["/", "/a?b", "//a", "http://h", "HTTP://h/a", "https://h:1/a"] {
            assert!(target(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", "a", "?a", "*", "h:443", "\\a", "http:a", "http://", "http:///a", "ftp://h/a", "javascript:x"] {
            assert!(target(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        check_framing(&[], true);
        check_framing(&[("content-length", "3")], true);
        check_framing(&[("transfer-encoding", "chunked")], true);
        check_framing(&[("transfer-encoding", "Chunked")], true);
        check_framing(&[("transfer-encoding", "chunked"), ("content-length", "3")], false);
        check_framing(&[("content-length", "3"), ("transfer-encoding", "chunked")], false);
        check_framing(&[("transfer-encoding", "chunked"), ("content-length-of-another", "3")], true);
        check_framing(&[("transfer-encoding", "xchunked, chunked")], false);
        check_framing(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], false);
        check_framing(&[("transfer-encoding", "identity")], false);
    }
}
