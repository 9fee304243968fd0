//! The written forms of addresses, names and URLs in a configuration. Each function says whether a text has the form;
//! whether anything answers there is for the program that connects.

use std::net::IpAddr;

/// Lower-case letters, digits and dashes, 1 to 40: a name that can stand in a metric label, a file name and a budget.
pub(super) fn label(text: &str) -> Option<String> {
    let fits = (1..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    fits.then(|| text.to_owned())
}

/// What [`label`] wants, for remedies.
pub(super) const LABEL: &str = "1 to 40 of a-z, 0-9 and -";

/// `HOST:PORT` with a host name, an IPv4 address or a bracketed IPv6 address, and a port above 0.
pub(super) fn authority(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    (is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| text.to_owned())
}

/// Whether `text` is a host name, an IPv4 address or a bracketed IPv6 address.
pub(super) fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => matches!(inner.parse(), Ok(IpAddr::V6(_))),
        None => (1..=253).contains(&text.len()) && text.split('.').all(is_host_label),
    }
}

fn is_host_label(label: &str) -> bool {
    let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
}

/// Whether `text` is `scheme://[user[:password]@]host[:port][/rest]` with one of `schemes`.
pub(super) fn is_url(text: &str, schemes: &[&str]) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    let server_fits = is_host(server) || self::authority(server).is_some();
    schemes.contains(&scheme) && server_fits && !text.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control())
}

/// A request method: upper-case letters.
pub(super) fn method(text: &str) -> Option<String> {
    let fits = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase());
    fits.then(|| text.to_owned())
}

/// An absolute path in its normal form, as routes and policies compare it.
pub(super) fn path(text: &str) -> Option<String> {
    (crate::path::normalize(text).as_deref() == Ok(text)).then(|| text.to_owned())
}

/// A URL for what must not travel in the open: `https`, or `http` to this machine.
pub(super) fn guarded_url(text: &str) -> Option<String> {
    let loopback = ["http://127.0.0.1", "http://[::1]", "http://localhost"]
        .iter()
        .any(|prefix| text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/'])));
    (is_url(text, &["https"]) || (loopback && is_url(text, &["http"]))).then(|| text.to_owned())
}

/// How a guarded URL is written.
pub(super) const GUARDED_URL: &str = "https://HOST/PATH, or http:// to a loopback address";
