//! Sealing: values in cards that only the two parties of a session may read, such as phone numbers and addresses.
//!
//! A card's content is JSON. The value of each named member is replaced, where it stands, by `"sealed:KEY:TEXT"`; everything
//! else stays as the client wrote it, byte for byte, and opening restores the original bytes. What is sealed is bound to its
//! session and its member, so that it opens nowhere else. Texts of people are not searched for numbers. What never happens
//! here: keys and ciphers (the vault's). Called where messages enter the queue and where they are shown.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Fingerprint;
use super::frame::MessageKind;
use crate::id::SessionId;
use crate::ports::{KeyId, Live, Vault};

/// What a sealed value begins with.
const MARK: &str = "sealed:";

/// Levels of a card that are looked into; a card has three.
const DEPTH_MAX: u32 = 16;

/// A content with its sealed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// What is queued and stored.
    pub content: String,
    /// Of the content without what was sealed: the same message sent again under another key is the same message, and a hash
    /// of a phone number, which anybody could invert, is nowhere stored.
    pub fingerprint: Fingerprint,
}

/// There is something to seal, and no key to do it with: the message must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no key of the vault can seal now")]
pub struct Locked;

/// Seals the values of `fields` in a card. `None` when there is nothing to seal.
pub fn seal(kind: &str, content: &str, session: SessionId, fields: &[String], vault: &dyn Vault) -> Result<Option<Sealed>, Locked> {
    let card = matches!(MessageKind::parse(kind), Some(MessageKind::OrderCard | MessageKind::ProductCard));
    if !card || fields.is_empty() || vault.live() == Live::Off {
        return Ok(None);
    }
    let mut spans = Vec::new();
    walk(content, 0, DEPTH_MAX, &mut |member, span, _| {
        let named = fields.iter().any(|field| field.eq_ignore_ascii_case(member));
        if named {
            spans.push((member.to_owned(), span));
        }
        named
    });
    let (mut stored, mut masked, mut end) = (String::new(), String::new(), 0);
    for (member, span) in spans {
        let plain = content.get(span.clone()).unwrap_or_default();
        let (key, text) = vault.seal(plain.as_bytes(), &context(session, &member)).ok_or(Locked)?;
        let before = content.get(end..span.start).unwrap_or_default();
        let _ = write!(stored, "{before}\"{MARK}{}:{text}\"", key.as_str());
        let _ = write!(masked, "{before}\"{MARK}\"");
        end = span.end;
    }
    if end == 0 {
        return Ok(None);
    }
    let rest = content.get(end..).unwrap_or_default();
    stored.push_str(rest);
    masked.push_str(rest);
    Ok(Some(Sealed { content: stored, fingerprint: Fingerprint::of(kind, &masked) }))
}

/// Opens every sealed value. One that cannot be opened stays as it is: its key is gone, or somebody moved it here.
#[must_use]
pub fn open<'a>(content: &'a str, session: SessionId, vault: &dyn Vault) -> Cow<'a, str> {
    if !content.contains(MARK) {
        return Cow::Borrowed(content);
    }
    let mut values = Vec::new();
    walk(content, 0, DEPTH_MAX, &mut |member, span, raw| {
        let opened = envelope(raw).and_then(|(key, text)| vault.open(&key, text, &context(session, member)).ok());
        if let Some(plain) = opened.and_then(|plain| String::from_utf8(plain).ok()) {
            values.push((span, plain));
            return true;
        }
        false
    });
    let (mut shown, mut end) = (String::new(), 0);
    for (span, plain) in values {
        shown.push_str(content.get(end..span.start).unwrap_or_default());
        shown.push_str(&plain);
        end = span.end;
    }
    if end == 0 {
        return Cow::Borrowed(content);
    }
    shown.push_str(content.get(end..).unwrap_or_default());
    Cow::Owned(shown)
}

fn context(session: SessionId, member: &str) -> Vec<u8> {
    format!("chat/{session}/{}", member.to_ascii_lowercase()).into_bytes()
}

/// Key and text of `"sealed:KEY:TEXT"`; neither holds a character that JSON escapes.
fn envelope(raw: &str) -> Option<(KeyId, &str)> {
    let (key, text) = raw.strip_prefix('"')?.strip_suffix('"')?.strip_prefix(MARK)?.split_once(':')?;
    Some((KeyId::parse(key)?, text))
}

/// Shows each member of each object in `json`, in the order of the text: its name, its value's place from `base` on, its value.
/// True keeps the walk out of the value. What is not JSON has no members.
fn walk(json: &str, base: usize, depth: u32, see: &mut dyn FnMut(&str, Range<usize>, &str) -> bool) {
    if depth == 0 {
        return;
    }
    for (member, value) in members(json) {
        // Raw values are slices of the text.
        let start = base + (value.as_ptr() as usize - json.as_ptr() as usize);
        let seen = member.is_some_and(|member| see(&member, start..start + value.len(), value));
        if !seen && value.starts_with(['{', '[']) {
            walk(value, start, depth - 1, see);
        }
    }
}

/// The values of an object, with their names, or of a list.
fn members(json: &str) -> Vec<(Option<String>, &str)> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(Option<String>, &'de RawValue)>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("an object or a list")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                members.push((Some(name), value));
            }
            Ok(members)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(value) = list.next_element::<&RawValue>()? {
                members.push((None, value));
            }
            Ok(members)
        }
    }

    let mut text = serde_json::Deserializer::from_str(json);
    let members = text.deserialize_any(Members);
    match members {
        // Something behind the value would make the whole no JSON.
        Ok(members) if text.end().is_ok() => members.into_iter().map(|(name, value)| (name, value.get())).collect(),
        Ok(_) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;
    use crate::ports::Unsealable;

    /// Writes what it was given in other letters, together with what it was bound to.
    struct Plain(&'static str);

    impl Vault for Plain {
        fn live(&self) -> Live {
            match self.0 {
                "off" => Live::Off,
                key => KeyId::parse(key).map_or(Live::Missing, Live::Key),
            }
        }
        fn seal(&self, plain: &[u8], context: &[u8]) -> Option<(KeyId, String)> {
            Some((KeyId::parse(self.0)?, format!("{}.{}", HEXLOWER.encode(plain), HEXLOWER.encode(context))))
        }
        fn open(&self, key: &KeyId, sealed: &str, context: &[u8]) -> Result<Vec<u8>, Unsealable> {
            let (plain, bound) = sealed.split_once('.').ok_or(Unsealable)?;
            let fits = key.as_str() == "k1" && bound == HEXLOWER.encode(context);
            if fits { HEXLOWER.decode(plain.as_bytes()).map_err(|_| Unsealable) } else { Err(Unsealable) }
        }
    }

    const HERE: SessionId = SessionId(9);

    fn fields() -> Vec<String> {
        vec!["phone".into(), "address".into()]
    }

    fn sealed(content: &str) -> Option<Sealed> {
        seal("order_card", content, HERE, &fields(), &Plain("k1")).unwrap()
    }

    #[test]
    fn opening_restores_every_byte() {
        for content in [
            r#"{"phone":"13800138000"}"#,
            r#"{ "b" : 1.0e0, "Phone" : 13800138000 , "a":[ {"address":{"street":"长安街 1","no":null}} ] }"#,
            r#"{"ph\u006fne":"a\"b\\","phone":"twice","phone":""}"#,
            r#"[[{"address":[1,2]}]]"#,
        ] {
            let sealed = sealed(content).unwrap();
            for secret in ["13800138000", "长安街", "twice"] {
                assert!(!sealed.content.contains(secret), "{}", sealed.content);
            }
            assert!(serde_json::from_str::<serde_json::Value>(&sealed.content).is_ok(), "{}", sealed.content);
            assert_eq!(open(&sealed.content, HERE, &Plain("k2")), content, "also when another key seals by now");
        }
    }

    #[test]
    fn what_has_nothing_to_seal_is_left_alone() {
        for content in ["13800138000", r#"{"name":"phone"}"#, r#"{"phone":"1"} x"#, r#"{"phone":"#, "", "phone", "\"phone\""] {
            assert_eq!(sealed(content), None, "{content}");
        }
        assert_eq!(seal("text", r#"{"phone":"1"}"#, HERE, &fields(), &Plain("k1")), Ok(None), "people's words are theirs");
        assert_eq!(seal("order_card", r#"{"phone":"1"}"#, HERE, &fields(), &Plain("off")), Ok(None), "no vault");
        assert_eq!(seal("order_card", r#"{"phone":"1"}"#, HERE, &fields(), &Plain("")), Err(Locked), "a vault without a key");
        let deep = format!("{}{{\"phone\":1}}{}", "[".repeat(40), "]".repeat(40));
        assert_eq!(sealed(&deep), None, "no card is that deep");
    }

    #[test]
    fn a_sealed_value_opens_only_in_its_session_and_member() {
        let sealed = sealed(r#"{"phone":"1"}"#).unwrap().content;
        assert_eq!(open(&sealed, SessionId(8), &Plain("k1")), sealed);
        let moved = sealed.replace("phone", "address");
        assert_eq!(open(&moved, HERE, &Plain("k1")), moved);
        let forged = sealed.replace("k1", "k3");
        assert_eq!(open(&forged, HERE, &Plain("k1")), forged);
    }

    #[test]
    fn a_message_sent_again_under_another_key_is_the_same_message() {
        let content = r#"{"no":"SK1","phone":"1"}"#;
        let of = |key| seal("order_card", content, HERE, &fields(), &Plain(key)).unwrap().unwrap();
        assert_eq!(of("k1").fingerprint, of("k2").fingerprint);
        assert_ne!(of("k1").content, of("k2").content);
        assert_ne!(of("k1").fingerprint, sealed(r#"{"no":"SK2","phone":"1"}"#).unwrap().fingerprint);
    }
}
