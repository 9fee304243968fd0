//! Identifiers that must not be mixed up, each checked once where it enters.

use std::fmt;

/// Longest `sub` claim the product accepts; it bounds keys, subjects and columns.
pub const PRINCIPAL_ID_BYTES_MAX: usize = 64;

/// A client's chosen message id is stored in a 64-byte column.
pub const CLIENT_MSG_ID_BYTES_MAX: usize = 64;

/// Why a string is not an identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {kind}")]
pub struct InvalidId {
    /// The kind that was wanted, in the words clients see.
    pub kind: &'static str,
}

/// An opaque name of a person or a service: 1 to 64 bytes of `[A-Za-z0-9_.:-]`, so that it can stand in a Redis
/// key, a NATS subject token (after [`PrincipalId::subject_token`]) and an `ascii_bin` column without escaping.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalId(String);

impl PrincipalId {
    /// Checks alphabet and length.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits =
            (1..=PRINCIPAL_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: "principal id" }) }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as one NATS subject token. A dot separates tokens there, so it is written `=2E`, and `=` cannot
    /// occur in an id; the mapping is therefore one to one.
    #[must_use]
    pub fn subject_token(&self) -> String {
        self.0.replace('.', "=2E")
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! numeric_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Parses a plain decimal: no sign, no leading zero, no space, at most `u64::MAX`.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
                match text.parse() {
                    Ok(number) if plain => Ok(Self(number)),
                    Ok(_) | Err(_) => Err(InvalidId { kind: $kind }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

numeric_id!(
    /// A flash-sale activity.
    ActivityId, "activity id");
numeric_id!(
    /// A stock-keeping unit.
    SkuId, "sku id");
numeric_id!(
    /// A chat session.
    SessionId, "session id");
numeric_id!(
    /// A shop; every chat, agent and order query names one.
    ShopId, "shop id");

/// What is sold in one atomic place: one SKU of one activity. Its Redis keys share the hash tag `{A:S}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lot {
    /// The activity.
    pub activity: ActivityId,
    /// The SKU inside it.
    pub sku: SkuId,
}

impl fmt::Display for Lot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.activity, self.sku)
    }
}

/// An order's public number and idempotence key: `SK` and 16 base32 characters. Made by [`crate::sale::order_no()`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderNo(String);

impl OrderNo {
    /// `SK` plus 80 bits in base32.
    pub const LEN: usize = 18;

    /// The number that spells `bits`.
    pub(crate) fn from_bits(bits: [u8; 10]) -> Self {
        Self(format!("SK{}", data_encoding::BASE32_NOPAD.encode(&bits)))
    }

    /// Checks shape only; whether such an order exists is another question.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let shaped = text.len() == Self::LEN
            && text.starts_with("SK")
            && text[2..].bytes().all(|b| b.is_ascii_uppercase() || (b'2'..=b'7').contains(&b));
        if shaped { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: "order number" }) }
    }

    /// The number as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OrderNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Longest payment number of a provider that is accepted; the column holds as much.
pub const PAY_NO_BYTES_MAX: usize = 64;

/// A payment's number as the provider gave it: 1 to 64 printable ASCII bytes without space. One payment pays one order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayNo(String);

impl PayNo {
    /// Checks alphabet and length.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = (1..=PAY_NO_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: "payment number" }) }
    }

    /// The number as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PayNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id a client gave its message: 1 to 64 printable ASCII bytes without space. With session and sender it is the
/// idempotence key of a send.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientMsgId(String);

impl ClientMsgId {
    /// Checks alphabet and length.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = (1..=CLIENT_MSG_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: "clientMsgId" }) }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name a client gives the device it runs on: 1 to 64 of `[A-Za-z0-9_.:-]`. With the principal it names the device's
/// cursors.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(String);

impl DeviceId {
    /// Checks alphabet and length.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        // The alphabet of a principal's id.
        PrincipalId::parse(text).map(|id| Self(id.0)).map_err(|_| InvalidId { kind: "device id" })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_id_is_one_to_sixty_four_safe_bytes() {
        for good in ["u", "agent:7", "a.b-c_D", &"x".repeat(64)] {
            assert!(PrincipalId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "用户", "a/b", "a*", "a>", "a{b}", &"x".repeat(65)] {
            assert!(PrincipalId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn subject_tokens_never_split() {
        let id = PrincipalId::parse("a.b.c").expect("valid");
        assert_eq!(id.subject_token(), "a=2Eb=2Ec");
    }

    #[test]
    fn numeric_ids_refuse_every_other_spelling() {
        assert_eq!(SkuId::parse("0"), Ok(SkuId(0)));
        assert_eq!(SkuId::parse("18446744073709551615"), Ok(SkuId(u64::MAX)));
        for bad in ["", "01", "+1", "-1", " 1", "1 ", "1.0", "1e0", "0x1", "18446744073709551616"] {
            assert!(SkuId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_order_number_has_one_shape() {
        assert!(OrderNo::parse("SKABCDEFGHIJ234567").is_ok());
        for bad in ["", "SK", "SKABCDEFGHIJ23456", "SKabcdefghij234567", "SKABCDEFGHIJ23456é", "XXABCDEFGHIJ234567", "SKABCDEFGHIJ234561"]
        {
            assert!(OrderNo::parse(bad).is_err(), "{bad}");
        }
    }
}
