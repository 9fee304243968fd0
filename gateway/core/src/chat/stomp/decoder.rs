//! Frames out of a stream of text messages: one message may hold several, and one frame may come in several messages.
//!
//! What never happens here: trimming, guessing a missing terminator, or holding more than one frame of the largest size. A
//! fault is final: where a frame ends wrongly nobody knows where the next one begins. Called by the session.

use super::frame::unescape;
use super::{Command, Frame, Version};

/// What a frame may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StompLimits {
    /// Headers of one frame.
    pub headers_max: usize,
    /// Bytes of one line: a token in `Authorization` fits.
    pub line_bytes_max: usize,
    /// Bytes of all lines of one frame.
    pub head_bytes_max: usize,
    /// Bytes of a body.
    pub body_bytes_max: usize,
}

impl Default for StompLimits {
    fn default() -> Self {
        Self { headers_max: 64, line_bytes_max: 9 * 1024, head_bytes_max: 16 * 1024, body_bytes_max: 64 * 1024 }
    }
}

/// Why the stream cannot be read on, as a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameFault(pub &'static str);

/// Reads frames.
#[derive(Debug)]
pub struct Decoder {
    limits: StompLimits,
    /// What arrived and is not yet part of a frame that was returned.
    buffer: Vec<u8>,
    /// Bytes of it that are read.
    read: usize,
    /// Bytes of it in which the end of the line or body was already looked for.
    searched: usize,
    /// The head of the frame whose body is awaited.
    head: Option<Head>,
    fault: Option<FrameFault>,
}

#[derive(Debug)]
struct Head {
    frame: Frame,
    bytes: usize,
    /// Whether the empty line was seen.
    complete: bool,
    length: Option<usize>,
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: StompLimits) -> Self {
        Self { limits, buffer: Vec::new(), read: 0, searched: 0, head: None, fault: None }
    }

    /// Takes a text message. Frames are taken out with [`Decoder::next_frame`] before the next one comes, so what stays behind
    /// is less than a frame.
    pub fn feed(&mut self, text: &str) {
        if self.fault.is_none() {
            self.buffer.drain(..self.read);
            self.searched -= self.read;
            self.read = 0;
            self.buffer.extend_from_slice(text.as_bytes());
        }
    }

    /// Whether a frame has begun that is not complete.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        self.head.is_some() || self.read < self.buffer.len()
    }

    /// The next complete frame; `None` until more text comes. `version` is what was negotiated, `None` before that. A fault
    /// is repeated for good.
    pub fn next_frame(&mut self, version: Option<Version>) -> Result<Option<Frame>, FrameFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let next = self.advance(version);
        if let Err(fault) = &next {
            self.fault = Some(*fault);
            self.head = None;
        }
        if next.is_err() || self.read == self.buffer.len() {
            // An idle client holds no buffer.
            self.buffer = Vec::new();
            (self.read, self.searched) = (0, 0);
        }
        next
    }

    fn advance(&mut self, version: Option<Version>) -> Result<Option<Frame>, FrameFault> {
        loop {
            match self.head.take() {
                Some(head) if head.complete => return self.body(head),
                head => {
                    let Some(line) = self.line(version)? else {
                        self.head = head;
                        return Ok(None);
                    };
                    self.head = match head {
                        None => self.command(line)?,
                        Some(head) => Some(self.header(head, line, version)?),
                    };
                }
            }
        }
    }

    /// The range of the next line, without its end; the line counts as read.
    fn line(&mut self, version: Option<Version>) -> Result<Option<(usize, usize)>, FrameFault> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        let bytes = end.unwrap_or(self.buffer.len()) - self.read;
        if bytes > self.limits.line_bytes_max {
            return Err(FrameFault("a line is too long"));
        }
        let Some(end) = end else {
            self.searched = self.buffer.len();
            return Ok(None);
        };
        let start = std::mem::replace(&mut self.read, end + 1);
        self.searched = self.read;
        // 1.2 lets lines end with CR LF. What version is spoken is not known in the first frame, where no CR has a meaning.
        let crlf = version.is_none_or(|version| version == Version::V12) && self.buffer[start..end].ends_with(b"\r");
        Ok(Some((start, if crlf { end - 1 } else { end })))
    }

    fn text(&self, (start, end): (usize, usize)) -> Result<&str, FrameFault> {
        // Lines end at line feeds, so they hold whole characters.
        std::str::from_utf8(&self.buffer[start..end]).map_err(|_| FrameFault("the frame is not UTF-8"))
    }

    /// A line where a frame may begin: an empty one is a heart-beat, or follows a frame.
    fn command(&self, line: (usize, usize)) -> Result<Option<Head>, FrameFault> {
        let text = self.text(line)?;
        if text.is_empty() {
            return Ok(None);
        }
        let command = Command::parse(text).ok_or(FrameFault("no such command"))?;
        Ok(Some(Head { frame: Frame::new(command), bytes: text.len(), complete: false, length: None }))
    }

    fn header(&self, mut head: Head, line: (usize, usize), version: Option<Version>) -> Result<Head, FrameFault> {
        let text = self.text(line)?;
        if text.is_empty() {
            head.length = head.frame.header("content-length").map(|length| self.length(length)).transpose()?;
            head.complete = true;
            return Ok(head);
        }
        head.bytes += text.len();
        if head.bytes > self.limits.head_bytes_max || head.frame.headers.len() >= self.limits.headers_max {
            return Err(FrameFault("the frame has too many headers"));
        }
        if text.contains('\0') {
            return Err(FrameFault("the frame ends inside its headers"));
        }
        if version == Some(Version::V12) && text.contains('\r') {
            return Err(FrameFault("a header holds a carriage return"));
        }
        let (name, value) = text.split_once(':').ok_or(FrameFault("a header has no colon"))?;
        if name.is_empty() {
            return Err(FrameFault("a header has no name"));
        }
        let version = version.filter(|_| !head.frame.command.is_literal()).unwrap_or(Version::V10);
        let plain = |escaped| unescape(escaped, version).ok_or(FrameFault("a header holds an undefined escape"));
        head.frame.headers.push((plain(name)?, plain(value)?));
        Ok(head)
    }

    fn length(&self, text: &str) -> Result<usize, FrameFault> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let length = text.parse().ok().filter(|_| digits).ok_or(FrameFault("content-length is no number of bytes"))?;
        if length > self.limits.body_bytes_max { Err(FrameFault("the body is too large")) } else { Ok(length) }
    }

    /// `content-length` decides where a body ends, and else the first NUL.
    fn body(&mut self, mut head: Head) -> Result<Option<Frame>, FrameFault> {
        let end = match head.length {
            Some(length) => match self.buffer.get(self.read + length) {
                Some(0) => Some(self.read + length),
                Some(_) => return Err(FrameFault("no NUL follows the body")),
                None => None,
            },
            None => self.buffer[self.searched..].iter().position(|byte| *byte == 0).map(|at| self.searched + at),
        };
        if end.unwrap_or(self.buffer.len()) - self.read > self.limits.body_bytes_max {
            return Err(FrameFault("the body is too large"));
        }
        let Some(end) = end else {
            self.searched = self.buffer.len();
            self.head = Some(head);
            return Ok(None);
        };
        head.frame.body = self.text((self.read, end))?.to_owned();
        self.read = end + 1;
        self.searched = self.read;
        if !head.frame.body.is_empty() && !head.frame.command.may_have_body() {
            return Err(FrameFault("only SEND may have a body"));
        }
        Ok(Some(head.frame))
    }
}
