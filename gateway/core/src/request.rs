//! The head of a request as policies and routes see it: already framed, normalised and attributed.

use std::net::IpAddr;
use std::sync::Arc;

/// What is known of a request before its body: one normalised path and one client address for everybody.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// Upper-case method token.
    pub method: String,
    /// Normalised absolute path, percent-decoded where that is unambiguous; never contains `//`, `/./`, `/../`, NUL or `\`.
    pub path: String,
    /// The query string as sent, without `?`.
    pub query: Option<String>,
    /// Lower-case authority without port; empty when the client sent none.
    pub host: String,
    /// Header fields in order, names in lower case. Values that are not UTF-8 are absent.
    pub headers: Vec<(String, String)>,
    /// The client's address: the right-most untrusted hop. IPv4-mapped IPv6 is written as IPv4.
    pub client: IpAddr,
    /// 32 lower-case hex digits, from `traceparent` or drawn by the edge.
    pub trace_id: String,
    /// Name of the route that will handle the request.
    pub route: Arc<str>,
}

impl RequestHead {
    /// The first value of header `name` (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}
