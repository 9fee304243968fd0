//! Whose request it is: the one client address that budgets, policies and logs use. The edge works it out once for every
//! request; nobody reads `X-Forwarded-For` after that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The right-most address nobody of ours vouches for.
///
/// `socket` is the connection's peer, `forwarded_for_lines` the values of all `X-Forwarded-For` lines in order, `trusted` the
/// networks of proxies in front. Each trusted hop vouches for the entry it appended, so the walk goes from right to
/// left and ends at the first address that is not trusted; what stands left of it is the client's own invention. An
/// entry that is no address ends the walk at the hop that wrote it. When every entry is trusted the left-most is the client.
#[must_use]
pub fn client(socket: IpAddr, forwarded_for_lines: &[&str], trusted: &[IpNet]) -> IpAddr {
    let mut client = socket.to_canonical();
    for entry in forwarded_for_lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        if !trusted.iter().any(|network| network.contains(&client)) {
            break;
        }
        let Some(hop) = parse_entry(entry) else { break };
        client = hop;
    }
    client
}

/// The network that `address` belongs to when accounts are kept per network: its first `v4_prefix` bits (at most 32), or
/// its first `v6_prefix` bits (at most 128). One home has a whole IPv6 /64, so single IPv6 addresses are no accounts.
/// IPv4 addresses in IPv6 clothes, mapped or by NAT64 (RFC 6052), count as IPv4.
#[must_use]
pub fn network(address: IpAddr, v4_prefix: u8, v6_prefix: u8) -> IpNet {
    let address = match address.to_canonical() {
        IpAddr::V6(v6) => translated(v6).map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 @ IpAddr::V4(_) => v4,
    };
    match address {
        IpAddr::V4(v4) => Ipv4Net::new_assert(v4, v4_prefix.min(32)).trunc().into(),
        IpAddr::V6(v6) => Ipv6Net::new_assert(v6, v6_prefix.min(128)).trunc().into(),
    }
}

/// The IPv4 address inside the well-known NAT64 prefix `64:ff9b::/96`.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let low = u32::try_from(bits & u128::from(u32::MAX)).ok()?;
    (bits >> 32 == 0x0064_ff9b_u128 << 64).then(|| Ipv4Addr::from_bits(low))
}

/// `address`, `v4:port`, `[v6]` or `[v6]:port`, with blanks around it.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim_matches([' ', '\t']);
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => entry.parse().ok().or_else(|| entry.parse().ok().map(|with_port: SocketAddr| with_port.ip()))?,
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::{client, network};

    fn trusted() -> Vec<IpNet> {
        ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn walks_from_the_right_to_the_first_hop_nobody_vouches_for() {
        for (socket, lines, expected) in [
            // A peer that is no proxy of ours may claim what it likes.
            ("203.0.113.9", &["1.2.3.4"][..], "203.0.113.9"),
            ("203.0.113.9", &["10.0.0.1"], "203.0.113.9"),
            ("203.0.113.9", &[], "203.0.113.9"),
            // A proxy of ours vouches for the entry it appended, and only for that.
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["127.0.0.1, 198.51.100.7,10.9.9.9 ,\t10.0.0.2"], "198.51.100.7"),
            // Several lines are one list.
            ("10.0.0.1", &["1.2.3.4", "198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7", "10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["1.2.3.4", "198.51.100.7, 10.0.0.3", "10.0.0.2"], "198.51.100.7"),
            // An internal client.
            ("10.0.0.1", &["10.1.1.1, 10.0.0.2"], "10.1.1.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            // What is no address ends the walk.
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.7, _hidden"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7,"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7; DROP"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7:99999"], "10.0.0.1"),
            ("10.0.0.1", &["fe80::1%eth0"], "10.0.0.1"),
            ("10.0.0.1", &["010.1.1.1"], "10.0.0.1"),
            // Ports and brackets.
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("10.0.0.1", &["[198.51.100.7]"], "10.0.0.1"),
            // Clothes do not make the client.
            ("::ffff:203.0.113.9", &["1.2.3.4"], "203.0.113.9"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7, ::ffff:10.0.0.2"], "198.51.100.7"),
            ("fd00::1", &["2001:db8::7, fd00::2"], "2001:db8::7"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(client(socket.parse().unwrap(), lines, &trusted()), expected, "{socket} {lines:?}");
        }
    }

    #[test]
    fn believes_nobody_when_nobody_is_trusted() {
        assert_eq!(client([10, 0, 0, 1].into(), &["1.2.3.4"], &[]), IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn puts_a_home_into_one_network() {
        let homes: BTreeSet<IpNet> = (0..1000).map(|host| network(IpAddr::from([0x2001, 0xdb8, 0, 1, host, 7, 7, host]), 32, 64)).collect();
        assert_eq!(homes.into_iter().collect::<Vec<_>>(), ["2001:db8:0:1::/64".parse().unwrap()]);
        for (address, v4_prefix, expected) in [
            ("198.51.100.7", 32, "198.51.100.7/32"),
            ("198.51.100.7", 24, "198.51.100.0/24"),
            ("198.51.100.7", 0, "0.0.0.0/0"),
            ("198.51.100.7", 255, "198.51.100.7/32"),
            ("::ffff:198.51.100.7", 24, "198.51.100.0/24"),
            ("64:ff9b::198.51.100.7", 32, "198.51.100.7/32"),
            ("64:ff9b:1::198.51.100.7", 32, "64:ff9b:1::/64"),
        ] {
            assert_eq!(network(address.parse().unwrap(), v4_prefix, 64), expected.parse().unwrap(), "{address}/{v4_prefix}");
        }
    }

    proptest! {
        #[test]
        fn a_stranger_cannot_choose_its_address(lines in proptest::collection::vec("[ -~]{0,40}", 0..4)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let stranger = IpAddr::from([203, 0, 113, 9]);
            prop_assert_eq!(client(stranger, &lines, &trusted()), stranger);
        }

        #[test]
        fn nor_by_sending_entries_ahead_of_the_proxy(spoofed in "[ -~]{0,60}") {
            let line = format!("{spoofed}, 198.51.100.7");
            prop_assert_eq!(client([10, 0, 0, 1].into(), &[&line], &trusted()), IpAddr::from([198, 51, 100, 7]));
        }
    }
}
