//! Whether somebody stands on the operator's lists.

use std::fmt::Write as _;

use serde::Deserialize;
use sluice_sdk::{Address, Host, canonical, write_network};

/// Names of the lists of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lists {
    pub(crate) users: String,
    pub(crate) devices: String,
    /// Holds addresses (`192.0.2.7`) and networks (`192.0.2.0/24`) in their shortest form.
    pub(crate) networks: String,
}

/// Prefix lengths under which an address is looked up.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Lengths {
    pub(crate) ipv4: Vec<u8>,
    pub(crate) ipv6: Vec<u8>,
}

impl Default for Lengths {
    /// Every length of IPv4 in use, and those of IPv6 that registries, providers and sites hand out.
    fn default() -> Self {
        Self { ipv4: (8..=32).rev().collect(), ipv6: vec![128, 64, 60, 56, 52, 48, 44, 40, 36, 32, 29, 28, 24, 20] }
    }
}

impl Lists {
    pub(crate) fn named(kind: &str) -> Self {
        Self { users: format!("{kind}-users"), devices: format!("{kind}-devices"), networks: format!("{kind}-networks") }
    }

    /// Whether the user or the device is listed.
    pub(crate) fn lists(&self, host: &dyn Host, user: &str, device: Option<&str>) -> bool {
        host.contains(&self.users, user) || device.is_some_and(|device| host.contains(&self.devices, device))
    }

    /// Whether the address, or one of the networks it lies in, is listed.
    pub(crate) fn lists_network(&self, host: &dyn Host, client: Address, lengths: &Lengths) -> bool {
        // Most operators list no network: one question instead of two dozen.
        if host.version(&self.networks) == 0 {
            return false;
        }
        let mut key = String::with_capacity(48);
        // Writing to a string cannot fail.
        let lengths = match canonical(client) {
            Address::V4(number) => {
                let _ = write!(key, "{}", std::net::Ipv4Addr::from(number));
                &lengths.ipv4
            }
            Address::V6((upper, lower)) => {
                let _ = write!(key, "{}", std::net::Ipv6Addr::from((u128::from(upper) << 64) | u128::from(lower)));
                &lengths.ipv6
            }
        };
        host.contains(&self.networks, &key)
            || lengths.iter().any(|length| {
                key.clear();
                write_network(&mut key, client, *length, *length);
                host.contains(&self.networks, &key)
            })
    }
}
