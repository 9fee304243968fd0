//! Covering what was found, in the text as it was sent.

use std::ops::Range;

use sluice_sdk::text::Folded;

/// A text some characters of which are to be covered.
pub(crate) struct Mask<'a> {
    original: &'a str,
    /// For each byte of the folded text, how many covers begin and end there. Empty until there is one.
    edges: Vec<i32>,
    /// Where each byte of the folded text came from.
    origins: Vec<usize>,
}

impl<'a> Mask<'a> {
    pub(crate) fn new(original: &'a str) -> Self {
        Self { original, edges: Vec::new(), origins: Vec::new() }
    }

    /// Covers the characters that `range` of `folded` came from. What stands between them, and was ignored, stays.
    pub(crate) fn cover(&mut self, folded: &Folded, range: Range<usize>) {
        if self.edges.is_empty() {
            self.edges = vec![0; folded.as_str().len() + 1];
            self.origins = (0..folded.as_str().len()).filter_map(|at| folded.origin(at)).collect();
        }
        self.edges[range.start] += 1;
        self.edges[range.end] -= 1;
    }

    /// The text with each covered character as `*`.
    pub(crate) fn apply(self) -> String {
        let mut masked = String::with_capacity(self.original.len());
        let (mut covers, mut copied) = (0, 0);
        for (edge, origin) in self.edges.iter().zip(&self.origins) {
            covers += edge;
            // Several folded bytes come from one character, which is covered once.
            if covers > 0 && *origin >= copied {
                masked.push_str(&self.original[copied..*origin]);
                masked.push('*');
                copied = origin + self.original[*origin..].chars().next().map_or(0, char::len_utf8);
            }
        }
        masked.push_str(&self.original[copied..]);
        masked
    }
}
