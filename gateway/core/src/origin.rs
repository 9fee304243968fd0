//! Whose pages may open a socket. Browsers send `Origin` with every WebSocket handshake and let any page try; the
//! socket's handler asks this rule before the upgrade.

/// An origin: scheme, host and port (RFC 6454), the default port written out and names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// Reads `http://host[:port]` or `https://host[:port]`, with nothing behind it. `null`, other schemes, a path (even
    /// `/`) and a user name are no origin.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let (host, port) = split(authority)?;
        Some(Self { scheme, host, port: port.unwrap_or(default_port) })
    }
}

/// Whether a handshake may go on.
///
/// `origin` is the `Origin` header, `host` the `Host` header (or `:authority`) as sent. Without an `Origin` the client is
/// no browser page; it is let through because identity is never taken from a cookie, which is all that a foreign page
/// could borrow. With one, it must be in `allowed`; when `allowed` is empty, it must name the host and port that the
/// request itself was sent to. A missing port stands for the default of the origin's scheme, since TLS may end before us.
#[must_use]
pub fn may_connect(origin: Option<&str>, host: Option<&str>, allowed: &[Origin]) -> bool {
    let Some(origin) = origin else { return true };
    let Some(origin) = Origin::parse(origin) else { return false };
    if !allowed.is_empty() {
        return allowed.contains(&origin);
    }
    let default_port = if origin.scheme == "https" { 443 } else { 80 };
    host.and_then(split).is_some_and(|(host, port)| host == origin.host && port.unwrap_or(default_port) == origin.port)
}

/// Splits `host[:port]`, host in lower case.
fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of a bare `[::1]` are inside the brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None => None,
    };
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    fits.then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::{Origin, may_connect};

    #[test]
    fn an_allow_list_is_exact() {
        let allowed = ["https://shop.example", "http://127.0.0.1:8080"].map(|text| Origin::parse(text).unwrap());
        for (origin, may) in [
            ("https://shop.example", true),
            ("HTTPS://Shop.Example", true),
            ("https://shop.example:443", true),
            ("http://127.0.0.1:8080", true),
            ("https://evil", false),
            ("https://shop.example.evil", false),
            ("https://shop.example.evil.io", false),
            ("https://evilshop.example", false),
            ("https://shop.example@evil", false),
            ("https://evil#shop.example", false),
            ("https://shop.example:8443", false),
            ("http://shop.example", false),
            ("http://127.0.0.1", false),
            ("https://shop.example/", false),
            ("https://shop.example ", false),
            ("https://shop.example, https://evil", false),
            ("https://", false),
            ("//shop.example", false),
            ("shop.example", false),
            ("file://shop.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(may_connect(Some(origin), Some("shop.example"), &allowed), may, "{origin:?}");
        }
    }

    #[test]
    fn without_a_list_a_page_may_connect_to_its_own_host() {
        for (origin, host, may) in [
            ("https://ours", "ours", true),
            ("https://OURS", "Ours", true),
            ("https://ours", "ours:443", true),
            ("http://ours", "ours:80", true),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://[::1]", "[::1]", true),
            ("https://ours.evil", "ours", false),
            ("https://evil", "ours", false),
            ("http://ours:8081", "ours:8080", false),
            ("http://127.0.0.1:8080", "localhost:8080", false),
            ("https://ours", "ours:80", false),
            ("https://ours:99999", "ours:99999", false),
            ("https://ours:", "ours", false),
            ("null", "null", false),
        ] {
            assert_eq!(may_connect(Some(origin), Some(host), &[]), may, "{origin} to {host}");
        }
        assert!(!may_connect(Some("https://ours"), None, &[]), "a request without host is nobody's own");
    }

    #[test]
    fn a_client_that_is_no_page_needs_no_origin() {
        assert!(may_connect(None, Some("ours"), &[]));
        assert!(may_connect(None, None, &[Origin::parse("https://shop.example").unwrap()]));
    }
}
