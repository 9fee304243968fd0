//! Numbers into docs/benchmarks.md: each bench owns the text between its two markers.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Prints `text` and puts it between the markers of `bench`.
pub(super) fn publish(root: &Path, bench: &str, text: &str) -> Result<()> {
    eprintln!("\n{text}");
    let path = root.join("docs/benchmarks.md");
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let (begin, end) = (format!("<!-- {bench}: measured -->\n"), format!("<!-- {bench}: end -->"));
    let (head, rest) = page.split_once(&begin).with_context(|| format!("{} has no place for {bench}", path.display()))?;
    let (_, tail) = rest.split_once(&end).with_context(|| format!("{} has no end for {bench}", path.display()))?;
    fs::write(&path, format!("{head}{begin}\n{text}\n{end}{tail}")).with_context(|| format!("write {}", path.display()))
}

/// The middle of `values`.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
