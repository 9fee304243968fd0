//! `[recording]`: a sample of what policies were asked, kept so that another version can be asked the same.

use std::path::PathBuf;

use super::section::Section;

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The file, one JSON object a line; `None` records nothing.
    pub file: Option<PathBuf>,
    /// Of a thousand requests this many, chosen by their trace ids.
    pub permille: u16,
    /// Size at which the file is moved to `<file>.1`, in place of the one before, in bytes.
    pub bytes_max: u64,
}

impl Recording {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        Self {
            file: section.optional_text("file").filter(|file| !file.is_empty()).map(PathBuf::from),
            permille: section.number("permille", 10, 0..=1_000),
            bytes_max: section.number("mb_max", 64_u64, 1..=10_240) << 20,
        }
    }
}
