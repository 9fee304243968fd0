//! Reading what the host sends: header blocks, query parameters, bearer tokens, networks.

use std::fmt::Write as _;

pub use crate::types::Address;
use crate::types::{Request, Response};

/// Something that carries a block of `name: value` lines.
pub trait HeaderBlock {
    /// The block as sent.
    fn block(&self) -> &str;

    /// The first value of field `name` (lower case), if the manifest asked for it and the client sent it.
    fn header(&self, name: &str) -> Option<&str> {
        self.block().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Every field as name (lower case) and value, in order of arrival.
    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.block().lines().filter_map(|line| line.split_once(": "))
    }
}

impl HeaderBlock for Request {
    fn block(&self) -> &str {
        &self.headers
    }
}

impl HeaderBlock for Response {
    fn block(&self) -> &str {
        &self.headers
    }
}

/// Questions a rule asks of a request's head.
pub trait RequestView {
    /// The token of `Authorization: Bearer …`; the scheme's case does not matter (RFC 9110, 11.1).
    fn bearer(&self) -> Option<&str>;

    /// The first query parameter `name`, as sent, without percent-decoding.
    fn parameter(&self, name: &str) -> Option<&str>;
}

impl RequestView for Request {
    fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.as_deref()?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Whether `pattern` covers `path`: one that ends in `/` covers everything below it, any other covers itself.
#[must_use]
pub fn covers(pattern: &str, path: &str) -> bool {
    if pattern.ends_with('/') { path.starts_with(pattern) } else { path == pattern }
}

/// The upper half of the addresses by which an IPv6 network reaches IPv4 hosts, `64:ff9b::/96` (RFC 6052, 2.1).
const NAT64: u64 = 0x0064_ff9b_0000_0000;

/// `address` under its one name: an IPv4 host that comes by way of `64:ff9b::/96` is that IPv4 host.
#[must_use]
pub fn canonical(address: Address) -> Address {
    match address {
        Address::V6((NAT64, lower)) => u32::try_from(lower).map_or(address, Address::V4),
        Address::V4(_) | Address::V6(_) => address,
    }
}

/// The network of `address` as a budget key: its first `v4_bits` or `v6_bits` bits, e.g. `192.0.2.0/24`. A home or an
/// office owns a whole IPv6 network, so counting single IPv6 addresses would count nothing.
#[must_use]
pub fn network(address: Address, v4_bits: u8, v6_bits: u8) -> String {
    let mut key = String::new();
    write_network(&mut key, address, v4_bits, v6_bits);
    key
}

/// Appends [`network`] to `key`.
pub fn write_network(key: &mut String, address: Address, v4_bits: u8, v6_bits: u8) {
    // Writing to a string cannot fail.
    let _ = match canonical(address) {
        Address::V4(number) => {
            let bits = u32::from(v4_bits.min(32));
            let kept = number & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            write!(key, "{}/{bits}", std::net::Ipv4Addr::from(kept))
        }
        Address::V6((upper, lower)) => {
            let bits = u32::from(v6_bits.min(128));
            let number = (u128::from(upper) << 64) | u128::from(lower);
            let kept = number & u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            write!(key, "{}/{bits}", std::net::Ipv6Addr::from(kept))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn finds_a_field_by_its_whole_name() {
        let request = Request { headers: "x-device: a\nx-device-id: b\nx-device-id: c\n".into(), ..testing::request("/") };
        assert_eq!(request.header("x-device-id"), Some("b"));
        assert_eq!(request.header("x-dev"), None);
        assert_eq!(request.header("device-id"), None);
    }

    #[test]
    fn reads_the_bearer_token_whatever_the_scheme_case() {
        for (line, token) in [
            ("authorization: Bearer abc\n", Some("abc")),
            ("authorization: bEARER abc\n", Some("abc")),
            ("authorization: Basic abc\n", None),
            ("authorization: Bearer\n", None),
        ] {
            assert_eq!(Request { headers: line.into(), ..testing::request("/") }.bearer(), token, "{line}");
        }
    }

    #[test]
    fn finds_a_parameter_by_its_whole_name() {
        let request = Request { query: Some("xtoken=1&token=2&token=3".into()), ..testing::request("/") };
        assert_eq!(request.parameter("token"), Some("2"));
        assert_eq!(request.parameter("tok"), None);
    }

    #[test]
    fn keeps_the_first_bits_of_an_address() {
        let v4 = Address::V4(u32::from_be_bytes([192, 0, 2, 77]));
        assert_eq!(network(v4, 24, 64), "192.0.2.0/24");
        assert_eq!(network(v4, 32, 64), "192.0.2.77/32");
        assert_eq!(network(v4, 0, 64), "0.0.0.0/0");
        assert_eq!(network(v4, 200, 64), "192.0.2.77/32");
        let v6 = Address::V6((0x2001_0db8_0001_0002, 0x0003));
        assert_eq!(network(v6, 32, 64), "2001:db8:1:2::/64");
        assert_eq!(network(v6, 32, 48), "2001:db8:1::/48");
        assert_eq!(network(v6, 32, 128), "2001:db8:1:2::3/128");
        assert_eq!(network(v6, 32, 0), "::/0");
    }

    #[test]
    fn an_ipv4_host_has_one_name_whichever_way_it_comes() {
        let translated = Address::V6((0x0064_ff9b_0000_0000, 0xc000_024d));
        assert_eq!(network(translated, 32, 64), "192.0.2.77/32");
        assert_eq!(network(Address::V6((0x0064_ff9b_0000_0000, 0x1_c000_024d)), 32, 64), "64:ff9b::/64");
        assert_eq!(network(Address::V6((0x0064_ff9b_0001_0000, 0xc000_024d)), 32, 64), "64:ff9b:1::/64");
    }

    #[test]
    fn a_pattern_covers_what_is_below_it_or_itself() {
        for (pattern, path, covered) in [
            ("/a/", "/a/b", true),
            ("/a/", "/a/", true),
            ("/a/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/", "/x", true),
        ] {
            assert_eq!(covers(pattern, path), covered, "{pattern} {path}");
        }
    }
}
