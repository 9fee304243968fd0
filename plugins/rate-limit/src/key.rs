//! Whose account a request goes to.

use std::fmt::Write as _;

use sluice_sdk::types::{Facts, Request, Role};
use sluice_sdk::{HeaderBlock, write_network};

/// Longest device name and field value that make an account; both are the client's to invent.
const CLIENT_VALUE_BYTES_MAX: usize = 64;

/// Longest name of a field that makes an account.
const FIELD_NAME_BYTES_MAX: usize = 40;

/// Most bytes of an account's name.
const ACCOUNT_BYTES_MAX: usize = 200;

/// One key: parts that all have to be there. Parts hold no blank, so joined by one they cannot be taken apart in two ways.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    User,
    Shop,
    Role,
    Device,
    Ip { v4_bits: u8, v6_bits: u8 },
    Network { v4_bits: u8, v6_bits: u8 },
    Route,
    Header(String),
    Constant,
}

impl Key {
    /// Reads `user`, `shop`, `role`, `device`, `ip`, `network:24/48`, `route`, `header:x-name`, `constant`, or several joined by
    /// `+`. `ip_bits` make one address' account.
    pub(crate) fn parse(text: &str, ip_bits: (u8, u8)) -> Result<Self, String> {
        let parts: Vec<Part> = text.split('+').map(|word| Part::parse(word, ip_bits)).collect::<Result<_, _>>()?;
        let bytes: usize = parts.iter().map(|part| part.bytes_max() + 1).sum();
        if bytes > ACCOUNT_BYTES_MAX {
            return Err(format!("{text:?} could make names of {bytes} bytes; the host takes {ACCOUNT_BYTES_MAX}"));
        }
        Ok(Self(parts))
    }

    /// Whether every request has it.
    pub(crate) fn is_certain(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Ip { .. } | Part::Network { .. } | Part::Route | Part::Constant))
    }

    /// The fields it is made from.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|part| if let Part::Header(name) = part { Some(name) } else { None })
    }

    /// Writes the account's name, or leaves `account` empty when a part is not there.
    pub(crate) fn write(&self, account: &mut String, request: &Request, facts: &Facts) -> bool {
        for part in &self.0 {
            if !account.is_empty() {
                account.push(' ');
            }
            if part.write(account, request, facts).is_none() {
                account.clear();
                return false;
            }
        }
        true
    }
}

impl Part {
    fn parse(word: &str, (v4_bits, v6_bits): (u8, u8)) -> Result<Self, String> {
        match word.split_once(':') {
            None => match word {
                "user" => Ok(Self::User),
                "shop" => Ok(Self::Shop),
                "role" => Ok(Self::Role),
                "device" => Ok(Self::Device),
                "ip" => Ok(Self::Ip { v4_bits, v6_bits }),
                "route" => Ok(Self::Route),
                "constant" => Ok(Self::Constant),
                _ => Err(format!("{word:?} is no key: user, shop, role, device, ip, network:24/48, route, header:x-name, constant")),
            },
            Some(("network", bits)) => {
                let bits = bits.split_once('/').and_then(|(v4, v6)| Some((v4.parse().ok()?, v6.parse().ok()?)));
                match bits {
                    Some((v4_bits @ 0..=32, v6_bits @ 0..=128)) => Ok(Self::Network { v4_bits, v6_bits }),
                    _ => Err(format!("{word:?}: write the bits of a network as network:24/48, at most 32 and 128")),
                }
            }
            Some(("header", name)) => {
                let token = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
                if token && (1..=FIELD_NAME_BYTES_MAX).contains(&name.len()) {
                    Ok(Self::Header(name.to_owned()))
                } else {
                    Err(format!("{word:?}: a field's name is 1 to {FIELD_NAME_BYTES_MAX} of a-z, 0-9, - and _"))
                }
            }
            Some(_) => Err(format!("{word:?} is no key")),
        }
    }

    /// Most bytes it writes.
    fn bytes_max(&self) -> usize {
        match self {
            Self::User => "user:".len() + 64,
            Self::Shop => "shop:".len() + 20,
            Self::Role => "role:agent".len(),
            Self::Device => "device:".len() + CLIENT_VALUE_BYTES_MAX,
            Self::Ip { .. } => "ip:".len() + 43,
            Self::Network { .. } => "network:".len() + 43,
            Self::Route => "route:".len() + 40,
            Self::Header(name) => "header:".len() + name.len() + 1 + CLIENT_VALUE_BYTES_MAX,
            Self::Constant => "constant".len(),
        }
    }

    fn write(&self, account: &mut String, request: &Request, facts: &Facts) -> Option<()> {
        let principal = || facts.principal.as_ref();
        match self {
            Self::User => put(account, "user:", &principal()?.id),
            // Writing to a string cannot fail.
            Self::Shop => drop(write!(account, "shop:{}", principal()?.shop?)),
            Self::Role => put(account, "role:", word(principal()?.role)),
            Self::Device => put(account, "device:", believed(facts.device.as_deref()?)?),
            Self::Ip { v4_bits, v6_bits } => {
                account.push_str("ip:");
                write_network(account, request.client, *v4_bits, *v6_bits);
            }
            Self::Network { v4_bits, v6_bits } => {
                account.push_str("network:");
                write_network(account, request.client, *v4_bits, *v6_bits);
            }
            Self::Route => put(account, "route:", &request.route),
            Self::Header(name) => {
                let value = believed(request.header(name)?)?;
                put(account, "header:", name);
                put(account, ":", value);
            }
            Self::Constant => account.push_str("constant"),
        }
        Some(())
    }
}

fn put(account: &mut String, kind: &str, value: &str) {
    account.push_str(kind);
    account.push_str(value);
}

fn believed(value: &str) -> Option<&str> {
    ((1..=CLIENT_VALUE_BYTES_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic())).then_some(value)
}

fn word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "agent",
        Role::Admin => "admin",
    }
}
