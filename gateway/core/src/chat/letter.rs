//! A message that the ledger cannot take, as a dead letter, and back.
//!
//! What never happens here: deciding that it cannot be taken (the worker does), or that it is queued again (an operator does).

use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::event::QueuedSend;
use crate::sale::{Letter, LetterKind, NewLetter};

/// Letters of a digest in a letter's name: 128 bits.
const DIGEST_CHARS: usize = 32;

/// The letter of a message. The same message has the same letter, however often it is given up.
#[must_use]
pub fn of_send(queued: &QueuedSend, error: &str, attempts: u32) -> NewLetter {
    let send = &queued.send;
    let shop = send.sender.shop.map(|shop| shop.to_string());
    let (side, sender, client_msg_id) = (send.sender.side.as_str(), send.sender.id.as_str(), send.client_msg_id.as_str());
    // No id holds a line break, so no two names run together.
    let name = format!("{side}\n{}\n{sender}\n{client_msg_id}", shop.as_deref().unwrap_or_default());
    let payload = json!({
        "session": send.session.to_string(), "side": side, "shop": shop, "sender": sender, "clientMsgId": client_msg_id,
        "send": serde_json::from_slice::<Value>(&queued.encode()).unwrap_or_default(),
    });
    letter(format!("{}:{}", send.session, digest(name.as_bytes())), payload, error, attempts)
}

/// The letter of an entry of the queue that is no message.
#[must_use]
pub fn of_bytes(entry: &[u8], error: &str) -> NewLetter {
    letter(format!("entry:{}", digest(entry)), json!({ "entry": BASE64.encode(entry) }), error, 1)
}

/// The message of a letter; `None`: there is none in it.
#[must_use]
pub fn send_of(letter: &Letter) -> Option<QueuedSend> {
    let payload: Value = serde_json::from_str(&letter.what.payload).ok()?;
    let send = payload.get("send")?.to_string();
    (letter.what.kind == LetterKind::ChatMessage).then(|| QueuedSend::decode(send.as_bytes()).ok())?
}

#[allow(clippy::needless_pass_by_value, reason = "made for it")]
fn letter(source_id: String, payload: Value, error: &str, attempts: u32) -> NewLetter {
    let attempts = u16::try_from(attempts).unwrap_or(u16::MAX);
    NewLetter { kind: LetterKind::ChatMessage, source_id, payload: payload.to_string(), error: error.to_owned(), attempts }
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = HEXLOWER.encode(&Sha256::digest(bytes));
    digest.truncate(DIGEST_CHARS);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Fingerprint, Party, Send};
    use crate::id::{ClientMsgId, PrincipalId, SessionId, ShopId};
    use crate::sale::LetterState;
    use crate::time::UnixMillis;

    fn queued(sender: Party) -> QueuedSend {
        let send = Send {
            session: SessionId(u64::MAX),
            sender,
            client_msg_id: ClientMsgId::parse(&"m".repeat(64)).unwrap(),
            kind: "text".into(),
            content: "\"茶\" 😂\n".into(),
            fingerprint: Fingerprint::of("text", "another"),
            origin: "c".into(),
            bot: false,
        };
        QueuedSend { send, queued_at: UnixMillis(7) }
    }

    fn written(what: NewLetter) -> Letter {
        Letter { id: 1, what, state: LetterState::Open, created: UnixMillis(1), decision: None }
    }

    #[test]
    fn a_message_is_read_back_from_its_letter() {
        let id = PrincipalId::parse(&"p".repeat(64)).unwrap();
        for sender in [Party::user(id.clone()), Party::agent(ShopId(u64::MAX), id)] {
            let queued = queued(sender);
            let letter = of_send(&queued, "no", 5);
            assert!(letter.source_id.len() <= 96 && letter.source_id.is_ascii(), "{}", letter.source_id);
            assert_eq!(letter.source_id, of_send(&queued, "again", 6).source_id);
            assert_eq!(send_of(&written(letter)), Some(queued));
        }
    }

    #[test]
    fn senders_of_one_name_have_letters_of_their_own() {
        let id = PrincipalId::parse("7").unwrap();
        let senders = [Party::user(id.clone()), Party::agent(ShopId(1), id.clone()), Party::agent(ShopId(2), id)];
        let names: std::collections::BTreeSet<_> = senders.map(|sender| of_send(&queued(sender), "no", 1).source_id).into();
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn an_entry_that_is_no_message_is_kept_whole() {
        let letter = of_bytes(b"\xff\0", "no");
        assert_eq!(letter.payload, r#"{"entry":"/wA="}"#);
        assert_eq!(send_of(&written(letter)), None);
    }
}
