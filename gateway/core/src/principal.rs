//! Who is asking: the identity that a policy proved and everybody after it trusts.

use crate::id::{PrincipalId, ShopId};
use crate::time::UnixMillis;

/// What a principal may be. Wire spelling is the lower-case name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A shopper.
    User,
    /// A customer-service agent of one shop.
    Agent,
    /// An operator.
    Admin,
}

impl Role {
    /// The wire spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }

    /// Reads the wire spelling; anything else is no role.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "user" => Some(Self::User),
            "agent" => Some(Self::Agent),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

/// A proved identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The token's `sub`.
    pub id: PrincipalId,
    /// The token's `role`.
    pub role: Role,
    /// The token's `shop_id`; an agent always has one.
    pub shop: Option<ShopId>,
    /// The token's `scope`, split.
    pub scopes: Vec<String>,
    /// The token's `exp`; open sockets end with it.
    pub expires_at: UnixMillis,
    /// The token's `jti`, by which it can be revoked.
    pub token_id: Option<String>,
}
