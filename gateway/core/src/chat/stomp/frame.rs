//! A STOMP frame, and how it is written.
//!
//! What never happens here: deciding what a frame means, or changing a value. Called by the decoder and by the session.

use std::fmt::Write;

use super::Version;

/// What a frame asks for, or says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Opens the conversation.
    Connect,
    /// The same, by the name that 1.1 gave it.
    Stomp,
    /// Sends a body to a destination.
    Send,
    /// Listens to a destination.
    Subscribe,
    /// Ends that.
    Unsubscribe,
    /// A message was read.
    Ack,
    /// A message was not taken.
    Nack,
    /// Begins a transaction.
    Begin,
    /// Ends it.
    Commit,
    /// Gives it up.
    Abort,
    /// Says goodbye.
    Disconnect,
    /// The server's answer to CONNECT.
    Connected,
    /// A message of a subscription.
    Message,
    /// A frame was carried out.
    Receipt,
    /// A frame could not be carried out; the connection ends.
    Error,
}

impl Command {
    const ALL: [Self; 15] = [
        Self::Connect,
        Self::Stomp,
        Self::Send,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Ack,
        Self::Nack,
        Self::Begin,
        Self::Commit,
        Self::Abort,
        Self::Disconnect,
        Self::Connected,
        Self::Message,
        Self::Receipt,
        Self::Error,
    ];

    /// Wire spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Stomp => "STOMP",
            Self::Send => "SEND",
            Self::Subscribe => "SUBSCRIBE",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::Ack => "ACK",
            Self::Nack => "NACK",
            Self::Begin => "BEGIN",
            Self::Commit => "COMMIT",
            Self::Abort => "ABORT",
            Self::Disconnect => "DISCONNECT",
            Self::Connected => "CONNECTED",
            Self::Message => "MESSAGE",
            Self::Receipt => "RECEIPT",
            Self::Error => "ERROR",
        }
    }

    /// Reads the wire spelling; case matters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.as_str() == text)
    }

    /// "Only the SEND, MESSAGE, and ERROR frames MAY have a body."
    #[must_use]
    pub fn may_have_body(self) -> bool {
        matches!(self, Self::Send | Self::Message | Self::Error)
    }

    /// Whether its headers are written without escapes in every version, so that 1.0 and 1.2 can meet in it.
    pub(super) fn is_literal(self) -> bool {
        matches!(self, Self::Connect | Self::Connected)
    }
}

/// A frame, in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its command.
    pub command: Command,
    /// Its headers as they came, unescaped; of repeated names the first counts.
    pub headers: Vec<(String, String)>,
    /// Its body; empty for frames that have none.
    pub body: String,
}

impl Frame {
    /// A frame without headers and body.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { command, headers: Vec::new(), body: String::new() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The same with one more header if there is a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The same with a body, its type and its length.
    #[must_use]
    pub fn with_body(self, content_type: &str, body: impl Into<String>) -> Self {
        let body = body.into();
        let mut frame = self.with("content-type", content_type).with("content-length", body.len().to_string());
        frame.body = body;
        frame
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The frame as text. In 1.0, which has no escapes, a line break in a header becomes a space.
    #[must_use]
    pub fn encode(&self, version: Version) -> String {
        let mut text = String::with_capacity(64 + self.body.len() + self.headers.iter().map(|(n, v)| n.len() + v.len() + 2).sum::<usize>());
        text.push_str(self.command.as_str());
        text.push('\n');
        let version = if self.command.is_literal() { Version::V10 } else { version };
        for (name, value) in &self.headers {
            escape(name, version, &mut text);
            text.push(':');
            escape(value, version, &mut text);
            text.push('\n');
        }
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\n{}\0", self.body);
        text
    }
}

fn escape(plain: &str, version: Version, into: &mut String) {
    for c in plain.chars() {
        match (c, version) {
            ('\\', Version::V11 | Version::V12) => into.push_str("\\\\"),
            ('\n', Version::V11 | Version::V12) => into.push_str("\\n"),
            (':', Version::V11 | Version::V12) => into.push_str("\\c"),
            ('\r', Version::V12) => into.push_str("\\r"),
            ('\n', Version::V10) => into.push(' '),
            (other, _) => into.push(other),
        }
    }
}

/// Reads an escaped header name or value; `None` when it holds what no escape of this version says.
pub(super) fn unescape(escaped: &str, version: Version) -> Option<String> {
    if version == Version::V10 || !escaped.contains('\\') {
        return Some(escaped.to_owned());
    }
    let mut plain = String::with_capacity(escaped.len());
    let mut rest = escaped.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match (rest.next()?, version) {
            ('\\', _) => '\\',
            ('n', _) => '\n',
            ('c', _) => ':',
            ('r', Version::V12) => '\r',
            (_, Version::V10 | Version::V11 | Version::V12) => return None,
        });
    }
    Some(plain)
}
