//! Order numbers: a keyed function of what is bought by whom, so that every retry on every node gets the same number
//! and nobody can guess another's.
//!
//! What never happens here: drawing randomness, counting, looking anything up. Called by the purchase route before the
//! admission store is asked.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::id::{Lot, OrderNo, PrincipalId};

/// The shortest secret accepted: half of SHA-256's output, and more than the 80 bits a number shows.
pub const ORDER_KEY_BYTES_MIN: usize = 16;

/// The secret behind order numbers; the same on every node, and for as long as orders live.
#[derive(Clone)]
pub struct OrderKey(Hmac<Sha256>);

/// The secret is shorter than [`ORDER_KEY_BYTES_MIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the order key needs at least {ORDER_KEY_BYTES_MIN} bytes")]
pub struct ShortKey;

impl OrderKey {
    /// Takes the secret's bytes, at least [`ORDER_KEY_BYTES_MIN`] of them.
    pub fn new(secret: &[u8]) -> Result<Self, ShortKey> {
        if secret.len() < ORDER_KEY_BYTES_MIN {
            return Err(ShortKey);
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| ShortKey)
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey(***)")
    }
}

/// The number of `user`'s order for `lot`. `generation` rises when a closed order is bought again.
///
/// `SK` and the first 80 bits of HMAC-SHA256 in base32 (RFC 4648, section 6), over activity, SKU (8 bytes each) and
/// generation (2 bytes), big-endian, and the user's name; only the last field varies in length, so no two inputs are
/// encoded alike.
#[must_use]
pub fn order_no(key: &OrderKey, lot: Lot, user: &PrincipalId, generation: u16) -> OrderNo {
    let mac = key
        .0
        .clone()
        .chain_update(lot.activity.0.to_be_bytes())
        .chain_update(lot.sku.0.to_be_bytes())
        .chain_update(generation.to_be_bytes())
        .chain_update(user.as_str())
        .finalize()
        .into_bytes();
    let mut bits = [0; 10];
    bits.copy_from_slice(&mac[..10]);
    OrderNo::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::id::{ActivityId, SkuId};

    fn number(secret: &[u8], activity: u64, sku: u64, user: &str, generation: u16) -> OrderNo {
        let key = OrderKey::new(secret).expect("long enough");
        let lot = Lot { activity: ActivityId(activity), sku: SkuId(sku) };
        order_no(&key, lot, &PrincipalId::parse(user).expect("valid"), generation)
    }

    const SECRET: &[u8] = b"0123456789abcdef";

    #[test]
    fn numbers_stay_what_they_are() {
        // Computed independently with Python's hmac, hashlib and base64.
        assert_eq!(number(SECRET, 1, 2, "u-88", 0).as_str(), "SKQNKL5LWWI6FME5W4");
    }

    #[test]
    fn every_field_and_the_key_matter() {
        let numbers = BTreeSet::from([
            number(SECRET, 1, 2, "u", 0),
            number(SECRET, 2, 2, "u", 0),
            number(SECRET, 1, 1, "u", 0),
            number(SECRET, 1, 2, "v", 0),
            number(SECRET, 1, 2, "u", 1),
            number(b"another secret key", 1, 2, "u", 0),
        ]);
        assert_eq!(numbers.len(), 6);
    }

    #[test]
    fn fields_that_concatenate_alike_give_different_numbers() {
        let numbers = BTreeSet::from([
            number(SECRET, 1, 23, "4", 0),
            number(SECRET, 12, 3, "4", 0),
            number(SECRET, 1, 2, "34", 0),
            number(SECRET, 1, 2, "3", 4),
            number(SECRET, 1, 2, "3:4", 0),
        ]);
        assert_eq!(numbers.len(), 5);
    }

    #[test]
    fn a_number_has_the_public_shape() {
        let number = number(SECRET, u64::MAX, u64::MAX, &"x".repeat(64), u16::MAX);
        assert_eq!(OrderNo::parse(number.as_str()), Ok(number));
    }

    #[test]
    fn a_short_secret_is_refused_and_a_good_one_is_never_shown() {
        assert_eq!(OrderKey::new(b"fifteen bytes..").err(), Some(ShortKey));
        assert_eq!(format!("{:?}", OrderKey::new(SECRET).expect("long enough")), "OrderKey(***)");
    }
}
