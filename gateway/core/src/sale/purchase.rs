//! The body of a purchase: what a client sent becomes a [`Purchase`] or a sentence about the first thing wrong.
//!
//! What never happens here: looking up whether the lot exists, or touching stock. Called by the purchase route before
//! any policy sees the attempt.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::{ActivityId, InvalidId, SkuId};

/// A well-formed wish to buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    /// The activity.
    pub activity: ActivityId,
    /// The SKU.
    pub sku: SkuId,
    /// Units, 1 to 9,999.
    pub qty: u32,
}

/// The first thing wrong with a body, in words for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPurchase {
    /// Not JSON text in UTF-8.
    #[error("the body is not valid JSON")]
    NotJson,
    /// JSON, but not an object.
    #[error("the body must be a JSON object")]
    NotObject,
    /// Two members of one name; parsers disagree on which counts, so neither does.
    #[error("a field is given twice")]
    FieldTwice,
    /// A member is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An id is neither a JSON integer nor a decimal string within 64 bits.
    #[error("{0} must be an integer or a decimal string")]
    Id(&'static str),
    /// The quantity is spelt in any other way than a plain integer from 1 to 9,999.
    #[error("qty must be an integer from 1 to 9999")]
    Qty,
}

impl Purchase {
    /// Reads `{activityId, skuId, qty}`; other members are ignored.
    ///
    /// Numbers are judged by their spelling, not by their value: `1.0` and `1e0` equal 1 and are refused all the same,
    /// because what is a whole number to one parser is a fraction to the next.
    pub fn parse(body: &[u8]) -> Result<Self, BadPurchase> {
        let text = std::str::from_utf8(body).map_err(|_| BadPurchase::NotJson)?;
        let fields: Fields<'_> =
            serde_json::from_str(text).map_err(|error| if error.is_data() { BadPurchase::NotObject } else { BadPurchase::NotJson })?;
        if fields.repeated {
            return Err(BadPurchase::FieldTwice);
        }
        Ok(Self {
            activity: ActivityId(id(fields.activity, "activityId", |text| ActivityId::parse(text).map(|id| id.0))?),
            sku: SkuId(id(fields.sku, "skuId", |text| SkuId::parse(text).map(|id| id.0))?),
            qty: qty(fields.qty)?,
        })
    }
}

fn id(raw: Option<&RawValue>, name: &'static str, parse: fn(&str) -> Result<u64, InvalidId>) -> Result<u64, BadPurchase> {
    let raw = raw.ok_or(BadPurchase::Missing(name))?.get();
    if raw.starts_with('"') {
        let text: String = serde_json::from_str(raw).map_err(|_| BadPurchase::Id(name))?;
        parse(&text)
    } else {
        parse(raw)
    }
    .map_err(|_| BadPurchase::Id(name))
}

fn qty(raw: Option<&RawValue>) -> Result<u32, BadPurchase> {
    let text = raw.ok_or(BadPurchase::Missing("qty"))?.get();
    let plain = (1..=4).contains(&text.len()) && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    if !plain {
        return Err(BadPurchase::Qty);
    }
    text.parse().map_err(|_| BadPurchase::Qty)
}

/// The members as they were spelt.
#[derive(Default)]
struct Fields<'a> {
    activity: Option<&'a RawValue>,
    sku: Option<&'a RawValue>,
    qty: Option<&'a RawValue>,
    repeated: bool,
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        let mut seen = BTreeSet::new();
        // As many rounds as the body has members; the body's size is bounded where it is read.
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value::<&RawValue>()?;
            match name.as_str() {
                "activityId" => fields.activity = Some(value),
                "skuId" => fields.sku = Some(value),
                "qty" => fields.qty = Some(value),
                _ => {}
            }
            fields.repeated |= !seen.insert(name);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_qty(qty: &str) -> Result<u32, BadPurchase> {
        Purchase::parse(format!(r#"{{"activityId":1,"skuId":2,"qty":{qty}}}"#).as_bytes()).map(|purchase| purchase.qty)
    }

    fn with_activity(id: &str) -> Result<u64, BadPurchase> {
        Purchase::parse(format!(r#"{{"activityId":{id},"skuId":2,"qty":1}}"#).as_bytes()).map(|purchase| purchase.activity.0)
    }

    #[test]
    fn a_quantity_is_a_plain_integer_from_1_to_9999() {
        for (text, qty) in [("1", 1), ("10", 10), ("9999", 9_999), (" 7 ", 7)] {
            assert_eq!(with_qty(text), Ok(qty), "{text}");
        }
        for text in [
            "0",
            "-0",
            "-1",
            "1.0",
            "1.5",
            "1e0",
            "1E0",
            "1e3",
            "10000",
            "2147483648",
            "4294967297",
            "9007199254740993",
            "18446744073709551617",
            "\"1\"",
            "\"\"",
            "null",
            "true",
            "[1]",
            "{}",
        ] {
            assert_eq!(with_qty(text), Err(BadPurchase::Qty), "{text}");
        }
        for text in ["01", "+1", "0x1", ".5", "1.", "NaN", "Infinity", "１", "", "1 1"] {
            assert_eq!(with_qty(text), Err(BadPurchase::NotJson), "{text}");
        }
    }

    #[test]
    fn an_id_is_an_integer_or_a_decimal_string_of_64_bits() {
        for (text, id) in [("0", 0), ("7", 7), ("\"7\"", 7), ("18446744073709551615", u64::MAX), ("\"18446744073709551615\"", u64::MAX)] {
            assert_eq!(with_activity(text), Ok(id), "{text}");
        }
        for text in [
            "-1",
            "1.0",
            "1e3",
            "18446744073709551616",
            "\"\"",
            "\"01\"",
            "\" 1\"",
            "\"1.0\"",
            "\"+1\"",
            "\"x\"",
            "null",
            "true",
            "[]",
            "{}",
        ] {
            assert_eq!(with_activity(text), Err(BadPurchase::Id("activityId")), "{text}");
        }
    }

    #[test]
    fn each_member_is_needed() {
        for (body, name) in [
            ("{}", "activityId"),
            (r#"{"skuId":2,"qty":1}"#, "activityId"),
            (r#"{"activityId":1,"qty":1}"#, "skuId"),
            (r#"{"activityId":1,"skuId":2}"#, "qty"),
            (r#"{"activityid":1,"skuId":2,"qty":1}"#, "activityId"),
        ] {
            assert_eq!(Purchase::parse(body.as_bytes()), Err(BadPurchase::Missing(name)), "{body}");
        }
    }

    #[test]
    fn other_members_are_ignored() {
        let body = r#"{"note":{"qty":5,"a":[1e999,"\ud800"]},"qty":3,"activityId":"1","coupon":null,"skuId":2}"#;
        assert_eq!(Purchase::parse(body.as_bytes()), Ok(Purchase { activity: ActivityId(1), sku: SkuId(2), qty: 3 }));
    }

    #[test]
    fn a_repeated_member_is_refused_however_it_is_spelt() {
        for body in [
            r#"{"activityId":1,"skuId":2,"qty":1,"qty":1}"#,
            r#"{"activityId":1,"skuId":2,"qty":1,"q\u0074y":2}"#,
            r#"{"activityId":1,"skuId":2,"qty":1,"a":1,"a":2}"#,
        ] {
            assert_eq!(Purchase::parse(body.as_bytes()), Err(BadPurchase::FieldTwice), "{body}");
        }
    }

    #[test]
    fn what_is_no_json_object_is_refused() {
        for body in ["[]", "1", "\"x\"", "null", "true"] {
            assert_eq!(Purchase::parse(body.as_bytes()), Err(BadPurchase::NotObject), "{body}");
        }
        let bodies: [&[u8]; 7] = [
            b"",
            b"{",
            b"qty=1",
            b"{\"activityId\":1,\"skuId\":2,\"qty\":1}x",
            b"{\"activityId\":1,\"skuId\":2,\"qty\":1,}",
            b"{\"activityId\":1,\"skuId\":2,\"qty\":1,\"n\":\"\xC0\x80\"}",
            b"\xEF\xBB\xBF{\"activityId\":1,\"skuId\":2,\"qty\":1}",
        ];
        for body in bodies {
            assert_eq!(Purchase::parse(body), Err(BadPurchase::NotJson), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let deep = "[".repeat(100_000);
        assert_eq!(Purchase::parse(deep.as_bytes()), Err(BadPurchase::NotObject));
        assert_eq!(with_qty(&deep), Err(BadPurchase::NotJson));
        let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(with_qty(&closed), Err(BadPurchase::Qty));
    }
}
