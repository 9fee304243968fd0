//! What is demanded of a principal that asks for a path.

use sluice_sdk::types::{Principal, Request, Role};

/// Stands in a path for the segment that names a shop.
pub(crate) const SHOP_SEGMENT: &str = "{shop}";

/// One rule. The first that covers a request decides about it.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) path: Option<Pattern>,
    pub(crate) routes: Vec<String>,
    pub(crate) methods: Vec<String>,
    /// Empty: any role.
    pub(crate) roles: Vec<Role>,
    pub(crate) scopes_all: Vec<String>,
    /// Empty: none is needed.
    pub(crate) scopes_any: Vec<String>,
    pub(crate) shop: Shop,
}

/// A path, cut where it names a shop.
#[derive(Debug)]
pub(crate) enum Pattern {
    Plain(String),
    OfShop { before: String, after: String },
}

/// What a rule demands of a principal's shop. An admin belongs to none and may enter any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shop {
    /// Nothing.
    Any,
    /// To have one.
    Required,
    /// To have the one that the path names.
    Own,
}

/// What a pattern found in a path.
enum Found<'a> {
    Path,
    Shop(&'a str),
}

impl Rule {
    /// Whether `principal` may; `None` when this rule does not cover the request.
    pub(crate) fn judge(&self, request: &Request, principal: &Principal) -> Option<bool> {
        let covered = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
        if !covered(&self.methods, &request.method) || !covered(&self.routes, &request.route) {
            return None;
        }
        let found = match &self.path {
            None => Found::Path,
            Some(pattern) => pattern.find(&request.path)?,
        };
        let has = |scope: &String| principal.scopes.contains(scope);
        let enters_shop = match (self.shop, principal.role, found) {
            (Shop::Any, ..) | (_, Role::Admin, _) => true,
            (Shop::Required, ..) => principal.shop.is_some(),
            // As text: `07` is another resource than `7` to whoever reads the path next.
            (Shop::Own, _, Found::Shop(named)) => principal.shop.is_some_and(|shop| shop.to_string() == named),
            (Shop::Own, _, Found::Path) => false,
        };
        Some(
            enters_shop
                && (self.roles.is_empty() || self.roles.contains(&principal.role))
                && self.scopes_all.iter().all(has)
                && (self.scopes_any.is_empty() || self.scopes_any.iter().any(has)),
        )
    }
}

impl Pattern {
    /// Reads a path in which [`SHOP_SEGMENT`] may stand once, as a whole segment.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        if !path.starts_with('/') {
            return None;
        }
        let Some((before, after)) = path.split_once(SHOP_SEGMENT) else {
            return (!path.contains(['{', '}'])).then(|| Self::Plain(path.to_owned()));
        };
        let whole = before.ends_with('/') && (after.is_empty() || after.starts_with('/'));
        let once = !before.contains(['{', '}']) && !after.contains(['{', '}']);
        (whole && once).then(|| Self::OfShop { before: before.to_owned(), after: after.to_owned() })
    }

    pub(crate) fn names_shop(&self) -> bool {
        matches!(self, Self::OfShop { .. })
    }

    fn find<'a>(&self, path: &'a str) -> Option<Found<'a>> {
        match self {
            Self::Plain(pattern) => guards(pattern, path).then_some(Found::Path),
            Self::OfShop { before, after } => {
                let rest = path.strip_prefix(before.as_str())?;
                let (shop, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (!shop.is_empty() && guards(after, rest)).then_some(Found::Shop(shop))
            }
        }
    }
}

/// A rule errs on the strict side: `/desk/` guards `/desk` as well, for many services answer both alike.
fn guards(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('/') {
        Some(itself) => path.strip_prefix(itself).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        None => pattern == path,
    }
}

/// The role named `word`.
pub(crate) fn role(word: &str) -> Option<Role> {
    [Role::User, Role::Agent, Role::Admin].into_iter().find(|role| self::word(*role) == word)
}

/// The word for `role` in configuration and fields.
pub(crate) fn word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "agent",
        Role::Admin => "admin",
    }
}
