//! Taking a message back: who may, and how long.
//!
//! What never happens here: doing it; a recall is a message of its own, stored by the ledger. Called by the ledgers.

use std::time::Duration;

use super::{MessageRecord, Party, RECALLED};
use crate::time::UnixMillis;

/// How long a message may be taken back: what users of large messengers are used to.
pub const WINDOW: Duration = Duration::from_secs(120);

/// Whether a message may be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Granted,
    /// There is no such message of this sender.
    NotFound,
    /// It was written too long ago.
    TooLate,
}

/// Judges a recall of `message` by `party` at `now`. Somebody else's message and one that does not exist are the same.
#[must_use]
pub fn judge(message: Option<&MessageRecord>, party: &Party, now: UnixMillis) -> Verdict {
    let own = |message: &&MessageRecord| (message.side, &message.sender) == (party.side, &party.id) && message.kind != RECALLED;
    match message.filter(own) {
        None => Verdict::NotFound,
        Some(message) if now.since(message.at) > WINDOW => Verdict::TooLate,
        Some(_) => Verdict::Granted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Side;
    use crate::id::{ClientMsgId, PrincipalId, SessionId, ShopId};

    fn message(kind: &str) -> MessageRecord {
        MessageRecord {
            session: SessionId(1),
            epoch: 1,
            seq: 7,
            side: Side::User,
            sender: PrincipalId::parse("88").unwrap(),
            client_msg_id: ClientMsgId::parse("m").unwrap(),
            kind: kind.into(),
            content: "7".into(),
            recalled: false,
            bot: false,
            at: UnixMillis(1_000),
        }
    }

    #[test]
    fn only_its_sender_may_and_only_for_two_minutes() {
        let sender = Party::user(PrincipalId::parse("88").unwrap());
        let others = [Party::user(PrincipalId::parse("89").unwrap()), Party::agent(ShopId(1), PrincipalId::parse("88").unwrap())];
        let text = message("text");
        assert_eq!(judge(Some(&text), &sender, UnixMillis(121_000)), Verdict::Granted);
        assert_eq!(judge(Some(&text), &sender, UnixMillis(121_001)), Verdict::TooLate);
        for other in others {
            assert_eq!(judge(Some(&text), &other, UnixMillis(2_000)), Verdict::NotFound);
        }
        assert_eq!(judge(None, &sender, UnixMillis(2_000)), Verdict::NotFound);
        assert_eq!(judge(Some(&message(RECALLED)), &sender, UnixMillis(2_000)), Verdict::NotFound, "a recall is not taken back");
    }
}
