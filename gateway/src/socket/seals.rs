//! Where sealed values are closed and opened: closed before a message leaves this node for the queue or the ledger, opened where
//! it comes back to be shown. Neither the queue, nor Redis, nor MySQL ever holds the plain value.
//!
//! What never happens here: deciding what is sealed (`core::chat::seal`) or with which key (`vault`).

use std::borrow::Cow;

use gateway_core::chat::event::Event;
use gateway_core::chat::seal::{self, Locked};
use gateway_core::chat::{MessageRecord, Send as ChatSend};
use gateway_core::ports::Vault;

use crate::node::Node;

/// Closes what is to be closed in `send`.
pub(crate) fn close(node: &Node, send: &mut ChatSend) -> Result<(), Locked> {
    let sealed = seal::seal(&send.kind, &send.content, send.session, &node.config.vault.fields, &*node.ports.vault)?;
    if let Some(sealed) = sealed {
        send.content = sealed.content;
        send.fingerprint = sealed.fingerprint;
    }
    Ok(())
}

/// Opens a message.
pub(crate) fn open(vault: &dyn Vault, message: &mut MessageRecord) {
    if let Cow::Owned(opened) = seal::open(&message.content, message.session, vault) {
        message.content = opened;
    }
}

/// Opens the message of an event, if it has one.
pub(crate) fn open_event(vault: &dyn Vault, mut event: Event) -> Event {
    if let Event::Stored { message, .. } = &mut event {
        open(vault, message);
    }
    event
}
