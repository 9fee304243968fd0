//! Running a component over a recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use gateway_core::policy::{Effects, Verdict};
use gateway_core::principal::Principal;
use gateway_policy::Mode;
use gateway_policy::trial::{Lending, Subject, Trial};

use super::{Change, Line, Summary, TokenText};

/// Longest line that is read. A head is at most 64 KiB and a message 64 KiB.
const LINE_BYTES_MAX: usize = 1 << 20;

/// What is asked, and of whom.
pub struct Replay<'a> {
    /// The version that is asked.
    pub component: &'a [u8],
    /// The recording.
    pub recording: &'a Path,
    /// Which lines are asked again.
    pub wanted: &'a dyn Fn(&Line) -> bool,
    /// The configuration of a policy; the error is for the operator.
    pub config: &'a dyn Fn(&str) -> Result<String>,
    /// The entries of each list: a recording does not hold them.
    pub lists: BTreeMap<String, Vec<String>>,
}

impl Replay<'_> {
    /// Asks every wanted line again, in order, and tells each change.
    ///
    /// # Errors
    /// When the recording cannot be read, holds no wanted line, or the component cannot be asked.
    pub async fn run(self, mut tell: impl FnMut(&Change) -> Result<()>) -> Result<Summary> {
        let trial =
            Trial::new(self.component, Lending { tokens: self.tokens()?, lists: self.lists.clone() }).map_err(|error| anyhow!(error))?;
        let mut subjects: BTreeMap<String, Subject<'_>> = BTreeMap::new();
        let mut summary = Summary::default();
        for line in lines(self.recording)? {
            let Ok(line) = line? else {
                summary.unreadable += 1;
                continue;
            };
            if !(self.wanted)(&line) {
                summary.others += 1;
                continue;
            }
            if !subjects.contains_key(&line.policy) {
                let config = (self.config)(&line.policy)?;
                let subject = trial.configure(&config, Mode::Warm).await.with_context(|| format!("configuring it as {}", line.policy))?;
                subjects.insert(line.policy.clone(), subject);
            }
            let Some(subject) = subjects.get_mut(&line.policy) else { bail!("a policy is asked that is not there") };
            if let Some(change) = again(&mut summary, subject, &line).await.map_err(|problem| anyhow!("{}: {problem}", line.trace_id))? {
                tell(&change)?;
            }
        }
        Ok(summary)
    }

    /// Whom the tokens of the recording stand for.
    fn tokens(&self) -> Result<BTreeMap<String, Principal>> {
        let mut tokens = BTreeMap::new();
        for line in lines(self.recording)? {
            let Ok(line) = line? else { continue };
            for (mark, stands_for) in &line.tokens {
                if let TokenText::Principal(principal) = stands_for {
                    tokens.insert(mark.clone(), principal.read().map_err(|problem| anyhow!("{}: {problem}", line.trace_id))?);
                }
            }
        }
        Ok(tokens)
    }
}

async fn again(summary: &mut Summary, subject: &mut Subject<'_>, line: &Line) -> Result<Option<Change>, String> {
    let question = line.question()?;
    let call = question.call();
    let answer = if subject.manifest().phases.contains(&call.phase()) {
        subject.ask(call).await
    } else {
        // A version that takes no part lets everything go on.
        Ok(Verdict::Proceed(Effects::default()))
    };
    summary.compare(line, &answer)
}

/// The lines of `file`; one that is no line of a recording is an `Err` inside.
fn lines(file: &Path) -> Result<impl Iterator<Item = Result<Result<Line, ()>>>> {
    let mut reader = BufReader::new(File::open(file).with_context(|| format!("cannot read {}", file.display()))?);
    let name = file.display().to_string();
    let mut text = Vec::new();
    Ok(std::iter::from_fn(move || {
        text.clear();
        match read_line(&mut reader, &mut text) {
            Ok(false) => None,
            Ok(true) => Some(Ok(serde_json::from_slice(&text).map_err(|_| ()))),
            Err(error) => Some(Err(error).with_context(|| format!("cannot read {name}"))),
        }
    }))
}

/// Reads one line, of which at most [`LINE_BYTES_MAX`] bytes are kept; false at the end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        let part = reader.fill_buf()?;
        if part.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(part.len());
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..taken.min(room)]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_it_ends_and_a_long_one_is_cut() {
        let text = ["a\n\n", &"x".repeat(LINE_BYTES_MAX + 5), "\nlast"].concat();
        let mut reader = BufReader::with_capacity(7, text.as_bytes());
        let mut sizes = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut reader, &mut line).unwrap() {
            sizes.push(line.len());
            line.clear();
        }
        assert_eq!(sizes, [1, 0, LINE_BYTES_MAX, 4]);
    }
}
