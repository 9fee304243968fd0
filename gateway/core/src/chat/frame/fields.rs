//! Reading single fields of a client's frame. Each reader says which field is wrong and what it should be.
//!
//! What never happens here: rounding, trimming or guessing. `1.0` is no integer and `"42"` is no seq.

use serde_json::{Map, Value};

use super::{ReqId, SEQ_END};
use crate::id::{ClientMsgId, SessionId, ShopId};
use crate::time::UnixMillis;

/// Longest `reqId` and `nonce`, in bytes: enough for a UUID or a hash, small enough to echo.
const TOKEN_BYTES_MAX: usize = 64;

/// The members of one frame.
pub(super) struct Fields(Map<String, Value>);

/// What is wrong with a field, as a sentence for the client.
pub(super) type Wrong = String;

impl Fields {
    pub(super) fn new(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// A member that counts as absent when it is `null`, as JavaScript clients send it. Not for sequence numbers.
    fn optional(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, Wrong> {
        self.optional(name).and_then(Value::as_str).ok_or_else(|| format!("{name} must be a string"))
    }

    pub(super) fn optional_text(&self, name: &str) -> Result<Option<&str>, Wrong> {
        self.optional(name).map(|value| value.as_str().ok_or_else(|| format!("{name} must be a string"))).transpose()
    }

    pub(super) fn list(&self, name: &str) -> Result<&Vec<Value>, Wrong> {
        self.optional(name).and_then(Value::as_array).ok_or_else(|| format!("{name} must be a list"))
    }

    /// A sequence number from `least` up to 2^53 − 1, a JSON integer.
    pub(super) fn seq(&self, name: &str, least: u64) -> Result<u64, Wrong> {
        self.0
            .get(name)
            .and_then(Value::as_u64)
            .filter(|seq| (least..SEQ_END).contains(seq))
            .ok_or_else(|| format!("{name} must be an integer from {least} to {}", SEQ_END - 1))
    }

    pub(super) fn optional_seq(&self, name: &str, least: u64) -> Result<Option<u64>, Wrong> {
        self.0.contains_key(name).then(|| self.seq(name, least)).transpose()
    }

    pub(super) fn optional_count(&self, name: &str, max: u32) -> Result<Option<u32>, Wrong> {
        let wrong = || format!("{name} must be an integer from 1 to {max}");
        self.0
            .get(name)
            .map(|value| value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=max).contains(n)).ok_or_else(wrong))
            .transpose()
    }

    /// An id, as JSON integer or decimal string.
    fn id(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        value
            .as_u64()
            .or_else(|| value.as_str().and_then(|text| SessionId::parse(text).ok()).map(|id| id.0))
            .map(Some)
            .ok_or_else(|| format!("{name} must be an id: an integer or a decimal string"))
    }

    pub(super) fn session(&self) -> Result<SessionId, Wrong> {
        self.id("sessionId")?.map(SessionId).ok_or_else(|| "sessionId is missing".to_owned())
    }

    pub(super) fn optional_shop(&self) -> Result<Option<ShopId>, Wrong> {
        Ok(self.id("shopId")?.map(ShopId))
    }

    pub(super) fn client_msg_id(&self) -> Result<Option<ClientMsgId>, Wrong> {
        self.optional_text("clientMsgId")?
            .map(|text| ClientMsgId::parse(text).map_err(|_| "clientMsgId must be 1 to 64 printable ASCII characters".to_owned()))
            .transpose()
    }

    pub(super) fn req_id(&self) -> Result<Option<ReqId>, Wrong> {
        match self.optional("reqId") {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= TOKEN_BYTES_MAX => Ok(Some(ReqId::Text(text.clone()))),
            Some(value) => value
                .as_u64()
                .map(|number| Some(ReqId::Number(number)))
                .ok_or_else(|| format!("reqId must be a string of at most {TOKEN_BYTES_MAX} bytes or an integer")),
        }
    }

    pub(super) fn nonce(&self) -> Result<Option<String>, Wrong> {
        let wrong = || format!("nonce must be a string of 1 to {TOKEN_BYTES_MAX} bytes");
        self.optional("nonce")
            .map(|value| value.as_str().filter(|text| (1..=TOKEN_BYTES_MAX).contains(&text.len())).map(str::to_owned).ok_or_else(wrong))
            .transpose()
    }

    pub(super) fn timestamp(&self) -> Result<Option<UnixMillis>, Wrong> {
        self.optional("timestamp")
            .map(|value| value.as_u64().map(UnixMillis).ok_or_else(|| "timestamp must be Unix milliseconds".to_owned()))
            .transpose()
    }

    /// The epoch a client believes in. Epochs are opaque strings to clients, so a string we never issued is not an error
    /// but an epoch that is not ours.
    pub(super) fn epoch(&self) -> Result<super::EpochClaim, Wrong> {
        use super::EpochClaim;
        let Some(value) = self.optional("epoch") else { return Ok(EpochClaim::Absent) };
        let number = match value {
            Value::String(text) => SessionId::parse(text).ok().map(|number| number.0),
            Value::Number(number) => number.as_u64(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err("epoch must be a string".to_owned());
            }
        };
        Ok(number.and_then(|number| u32::try_from(number).ok()).map_or(EpochClaim::Foreign, EpochClaim::Is))
    }
}
