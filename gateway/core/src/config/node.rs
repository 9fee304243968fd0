//! `[node]` and `[log]`: this process.

use std::time::Duration;

use super::section::Section;

/// This process among its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name in metrics and leases; empty means the host's name.
    pub name: String,
    /// How long open requests and sockets may take to end after a stop signal.
    pub drain: Duration,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
}

impl Node {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            name: section.text("name", ""),
            drain: section.millis("drain_ms", 10_000, 0..=600_000),
            threads: section.number("threads", 0, 0..=1024),
        }
    }
}

/// What is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
    /// The least important level that is written.
    pub level: LogLevel,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For eyes.
    Text,
}

/// Importance of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something is broken.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What an operator wants to read.
    Info,
    /// What a developer wants to read.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word used in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Log {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        use LogLevel::{Debug, Error, Info, Trace, Warn};
        let levels = [Error, Warn, Info, Debug, Trace].map(|level| (level.as_str(), level));
        Self {
            format: section.choice("format", LogFormat::Json, &[("json", LogFormat::Json), ("text", LogFormat::Text)]),
            level: section.choice("level", Info, &levels),
        }
    }
}
