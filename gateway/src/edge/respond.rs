//! The one table from outcomes to answers: status, code, sentence, retry.
//!
//! No other place of the gateway chooses a status code, save a policy's verdict, which arrives here as a refusal.

use std::time::Duration;

use bytes::Bytes;
use gateway_core::chat::code::ErrorCode;
use serde_json::{Map, Value, json};

use crate::routes::outcome::{Failure, Outcome, Rejected};

/// A complete answer of the gateway itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Additional headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body and its media type.
    pub body: Bytes,
    /// Media type of the body.
    pub media_type: &'static str,
}

impl Reply {
    /// A JSON answer.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::from(body.to_string()), media_type: "application/json" }
    }

    /// A fixed file.
    pub(crate) fn file(media_type: &'static str, body: &'static str) -> Self {
        // The page talks to this origin only and runs no inline code, so a strict policy costs it nothing.
        let policy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'";
        Self {
            status: 200,
            headers: vec![
                ("content-security-policy", policy.into()),
                ("x-content-type-options", "nosniff".into()),
                ("cache-control", "no-cache".into()),
            ],
            body: Bytes::from_static(body.as_bytes()),
            media_type,
        }
    }
}

/// The answer to what a route came to, with the request's trace id in failures.
pub(crate) fn reply(came_to: &Result<Outcome, Failure>, trace_id: &str) -> Reply {
    match came_to {
        Ok(outcome) => success(outcome),
        Err(failure) => refusal(failure, trace_id),
    }
}

fn success(outcome: &Outcome) -> Reply {
    match outcome {
        Outcome::Queued { order_no, replayed } => {
            let mut body = json!({ "code": "QUEUED", "orderNo": order_no.as_str(), "status": "pending", "message": "排队中" });
            if *replayed {
                body["replayed"] = json!(true);
            }
            Reply::json(202, &body)
        }
        Outcome::OrderResult { order_no, status, message } => {
            Reply::json(200, &json!({ "status": status, "orderNo": order_no.as_str(), "message": message }))
        }
        Outcome::Cancelled { order_no } => {
            Reply::json(200, &json!({ "code": "CANCELLED", "orderNo": order_no.as_str(), "status": "closed", "message": "订单已取消" }))
        }
        Outcome::Data(data) => Reply::json(200, data),
        Outcome::File { media_type, text } => Reply::file(media_type, text),
    }
}

/// Status, code, sentence, milliseconds after which a retry can help.
fn row(failure: &Failure) -> (u16, &str, &str, Option<u64>) {
    match failure {
        Failure::BadRequest(sentence) => (400, "BAD_REQUEST", sentence, None),
        Failure::Unauthenticated => (401, "UNAUTHENTICATED", "a valid bearer token is required", None),
        Failure::Forbidden(sentence) => (403, "FORBIDDEN", sentence, None),
        Failure::NotFound => (404, "NOT_FOUND", "there is nothing here", None),
        Failure::MethodNotAllowed(_) => (405, "METHOD_NOT_ALLOWED", "this path does not take that method", None),
        Failure::BodyTimeout => (408, "TIMEOUT", "the body did not arrive in time", None),
        Failure::UnknownItem => (404, "UNKNOWN_ITEM", "this item is not on sale", None),
        Failure::NotStarted => (409, "NOT_STARTED", "抢购尚未开始", None),
        Failure::Ended => (409, "ENDED", "抢购已结束", None),
        Failure::LimitExceeded => (409, "LIMIT_EXCEEDED", "超过每人限购数量", None),
        Failure::SoldOut { left: 0 } => (409, "SOLD_OUT", "已抢完", None),
        Failure::SoldOut { .. } => (409, "SOLD_OUT", "剩余数量不足", None),
        Failure::AlreadyPaid => (409, "ALREADY_PAID", "订单已支付，请联系客服退款", None),
        Failure::StillPending => (409, "PENDING", "订单还在排队，请稍后再取消", Some(500)),
        Failure::TooLarge => (413, "TOO_LARGE", "the body is too large", None),
        Failure::UpgradeRequired => (426, "UPGRADE_REQUIRED", "this path speaks WebSocket version 13 over HTTP/1.1", None),
        Failure::HeadTooLarge => (431, "HEADERS_TOO_LARGE", "the request head is too large", None),
        Failure::Chat(rejected) => (chat_status(rejected), &rejected.code, &rejected.message, rejected.retry_after_ms),
        Failure::Refused(refusal) => (refusal.status, &refusal.code, &refusal.message, refusal.retry_after_ms),
        Failure::Internal => (500, "INTERNAL", "something went wrong here", None),
        Failure::UpstreamFailed => (502, "UPSTREAM_FAILED", "the service behind this path did not answer", Some(1_000)),
        Failure::NotReady => (503, "NOT_READY", "抢购准备中", Some(1_000)),
        Failure::Unavailable(_) => (503, "UNAVAILABLE", "a service this needs is away", Some(1_000)),
        Failure::Overloaded => (503, "OVERLOADED", "too many requests at once", Some(1_000)),
        Failure::Crowded(after) => (503, "OVERLOADED", "too many sockets at once", Some(millis(*after))),
        Failure::Draining => (503, "DRAINING", "this node is going away", Some(200)),
        Failure::UpstreamTimeout => (504, "UPSTREAM_TIMEOUT", "the service behind this path took too long", Some(1_000)),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The status of what a socket would answer with an error frame. A code that is none of the protocol's is a policy's.
fn chat_status(rejected: &Rejected) -> u16 {
    match ErrorCode::parse(&rejected.code) {
        Some(ErrorCode::Internal | ErrorCode::NotDurable | ErrorCode::Degraded | ErrorCode::BusyReplay) => 503,
        Some(ErrorCode::RateLimited) => 429,
        Some(
            ErrorCode::BadJson
            | ErrorCode::BadRequest
            | ErrorCode::UnknownType
            | ErrorCode::EmptyContent
            | ErrorCode::ResumeAmbiguous
            | ErrorCode::StaleTimestamp,
        ) => 400,
        Some(ErrorCode::TokenExpired) => 401,
        Some(ErrorCode::Forbidden) => 403,
        Some(ErrorCode::NotFound) => 404,
        Some(
            ErrorCode::SessionClosed
            | ErrorCode::ClientMsgIdConflict
            | ErrorCode::AckOutOfRange
            | ErrorCode::ReplayedNonce
            | ErrorCode::SetAside,
        ) => 409,
        Some(ErrorCode::TooLarge) => 413,
        None if rejected.temporary => 429,
        None => 403,
    }
}

fn refusal(failure: &Failure, trace_id: &str) -> Reply {
    let (status, code, message, retry_after_ms) = row(failure);
    let mut body = Map::new();
    body.insert("code".into(), code.into());
    body.insert("message".into(), message.into());
    body.insert("traceId".into(), trace_id.into());
    if let Failure::SoldOut { left } = failure
        && *left > 0
    {
        body.insert("left".into(), json!(left));
    }
    let mut reply = Reply::json(status, &Value::Null);
    if let Some(ms) = retry_after_ms {
        body.insert("retryAfterMs".into(), json!(ms));
        reply.headers.push(("retry-after", ms.div_ceil(1_000).to_string()));
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other failures are told by status and body alone")]
    match failure {
        Failure::MethodNotAllowed(allow) => reply.headers.push(("allow", allow.clone())),
        // RFC 9110, 15.5.2: a 401 says how to do better, whoever refused.
        _ if status == 401 => reply.headers.push(("www-authenticate", "Bearer".into())),
        Failure::UpgradeRequired => {
            reply.headers.push(("upgrade", "websocket".into()));
            reply.headers.push(("sec-websocket-version", "13".into()));
        }
        _ => {}
    }
    reply.body = Bytes::from(Value::Object(body).to_string());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::policy::Refusal;

    fn check(failure: &Failure, status: u16, body: &str) {
        let reply = refusal(failure, "t1");
        assert_eq!(reply.status, status);
        assert_eq!(std::str::from_utf8(&reply.body).unwrap(), body);
    }

    #[test]
    fn every_401_names_the_scheme() {
        let refusal = Refusal { status: 401, code: "UNAUTHENTICATED".into(), message: "please sign in".into(), retry_after_ms: None };
        for failure in [Failure::Unauthenticated, Failure::Refused(refusal)] {
            let reply = reply(&Err(failure), "t");
            assert!(reply.headers.contains(&("www-authenticate", "Bearer".to_owned())));
        }
    }

    #[test]
    fn sold_out_tells_what_is_left_only_when_something_is() {
        check(&Failure::SoldOut { left: 0 }, 409, r#"{"code":"SOLD_OUT","message":"已抢完","traceId":"t1"}"#);
        check(&Failure::SoldOut { left: 2 }, 409, r#"{"code":"SOLD_OUT","left":2,"message":"剩余数量不足","traceId":"t1"}"#);
    }

    #[test]
    fn retries_are_told_in_both_units_and_seconds_are_rounded_up() {
        let refusal = Refusal { status: 429, code: "RATE_LIMITED".into(), message: "slow down".into(), retry_after_ms: Some(1_200) };
        let reply = super::refusal(&Failure::Refused(refusal), "t1");
        assert_eq!(reply.status, 429);
        assert!(reply.headers.contains(&("retry-after", "2".into())));
        assert!(std::str::from_utf8(&reply.body).unwrap().contains(r#""retryAfterMs":1200"#));
    }

    #[test]
    fn whoever_finds_a_node_full_is_told_when_to_come_back() {
        let reply = super::refusal(&Failure::Crowded(Duration::from_millis(2_300)), "t1");
        assert_eq!(reply.status, 503);
        assert!(reply.headers.contains(&("retry-after", "3".into())));
        assert!(std::str::from_utf8(&reply.body).unwrap().contains(r#""retryAfterMs":2300"#));
    }

    #[test]
    fn what_the_chat_refuses_for_now_may_be_tried_again() {
        for code in ErrorCode::ALL {
            let (message, temporary) = (code.message().to_owned(), code.is_temporary());
            let status = chat_status(&Rejected { code: code.as_str().to_owned(), message, temporary, retry_after_ms: None });
            assert_eq!(matches!(status, 429 | 503), code.is_temporary(), "{code:?} is {status}");
        }
        let own = |temporary| Rejected { code: "NO_LINKS".into(), message: "no".into(), temporary, retry_after_ms: None };
        assert_eq!((chat_status(&own(false)), chat_status(&own(true))), (403, 429));
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        let reply = refusal(&Failure::MethodNotAllowed("POST".into()), "t1");
        assert_eq!(reply.status, 405);
        assert!(reply.headers.contains(&("allow", "POST".into())));
    }
}
