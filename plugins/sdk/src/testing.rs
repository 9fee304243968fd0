//! A host and subjects for tests of rules: `cargo test`, no component, no gateway. [`crate::vectors!`] runs a plugin's test
//! vectors.

// Tests run natively: a component carries no reader of YAML.
#[cfg(not(target_family = "wasm"))]
pub mod file;
#[cfg(not(target_family = "wasm"))]
pub mod vectors;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::host::{Host, Level};
use crate::types::{Address, Attempt, Facts, Message, Principal, Request, Role};

/// A host that knows what the test told it and remembers what the policy said.
#[derive(Default)]
pub struct FakeHost {
    /// Tokens that verify, and as whom.
    pub tokens: BTreeMap<String, Principal>,
    /// Entries of every list.
    pub lists: BTreeSet<(String, String)>,
    /// What was logged.
    pub lines: RefCell<Vec<String>>,
    /// What was counted.
    pub values: RefCell<Vec<(String, f64)>>,
}

impl FakeHost {
    /// A host to which `token` means `principal`.
    #[must_use]
    pub fn with_token(mut self, token: &str, principal: Principal) -> Self {
        self.tokens.insert(token.to_owned(), principal);
        self
    }

    /// A host with `key` on `list`.
    #[must_use]
    pub fn with_entry(mut self, list: &str, key: &str) -> Self {
        self.lists.insert((list.to_owned(), key.to_owned()));
        self
    }
}

impl Host for FakeHost {
    fn verify(&self, token: &str) -> Result<Principal, String> {
        self.tokens.get(token).cloned().ok_or_else(|| "unknown-token".to_owned())
    }

    fn contains(&self, list: &str, key: &str) -> bool {
        self.lists.contains(&(list.to_owned(), key.to_owned()))
    }

    fn version(&self, list: &str) -> u64 {
        // A list in a test only grows, so its length says enough.
        self.entries(list).len() as u64
    }

    fn entries(&self, list: &str) -> Vec<String> {
        self.lists.iter().filter(|(name, _)| name == list).map(|(_, key)| key.clone()).collect()
    }

    fn log(&self, _level: Level, text: &str) {
        self.lines.borrow_mut().push(text.to_owned());
    }

    fn metric(&self, name: &str, value: f64) {
        self.values.borrow_mut().push((name.to_owned(), value));
    }
}

/// `GET path` from 192.0.2.1 without any field.
#[must_use]
pub fn request(path: &str) -> Request {
    Request {
        method: "GET".into(),
        path: path.into(),
        query: None,
        host: "shop.example".into(),
        client: Address::V4(u32::from_be_bytes([192, 0, 2, 1])),
        route: "api".into(),
        headers: String::new(),
    }
}

/// Nobody, on no device, at second one.
#[must_use]
pub fn facts() -> Facts {
    Facts { now_ms: 1_000, principal: None, device: None, tags: Vec::new() }
}

/// A proved principal.
#[must_use]
pub fn principal(id: &str, role: Role) -> Principal {
    Principal { id: id.into(), role, shop: (role == Role::Agent).then_some(7), scopes: Vec::new(), expires_ms: 60_000 }
}

/// One unit of SKU 2 in activity 1.
#[must_use]
pub fn attempt() -> Attempt {
    Attempt { activity: 1, sku: 2, qty: 1, idempotency_key: None }
}

/// A text in session 1 of shop 7.
#[must_use]
pub fn message(content: &str) -> Message {
    Message { session: 1, shop: 7, kind: "text".into(), content: content.into() }
}
