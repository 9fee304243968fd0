//! Test vectors on every form of a policy: native where its language allows, compiled and warm, compiled and fresh.
//!
//! A case passes when the answer is the expected one and every form gives the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use gateway_guest::Language;
use gateway_policy::Mode;
use gateway_policy::trial::{Trial, Unusable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cases::{Question, answer, lending};
use crate::plugin::{Plugin, runtime, trial};
use crate::vectors::{Answer, Vectors};

/// What came of a file of vectors.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The plugin.
    pub plugin: String,
    /// Whether the policy ran natively too; only Rust can.
    pub native: bool,
    /// Every case, in the order of the file.
    pub cases: Vec<Outcome>,
}

/// What came of one case.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// What is wrong; a case passes when nothing is.
    pub problems: Vec<String>,
}

impl Report {
    /// How many cases passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.cases.iter().filter(|case| case.problems.is_empty()).count()
    }

    /// How many did not.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.len() - self.passed()
    }
}

/// Runs the vectors of `plugin`.
///
/// # Errors
/// When there is nothing to run, or nothing to run it on.
pub fn run(plugin: &Plugin) -> Result<Report> {
    let vectors = Vectors::read(&plugin.folder).map_err(anyhow::Error::msg)?;
    let native = match plugin.language()? {
        Language::Rust => Some(natively(&plugin.folder)?),
        Language::JavaScript | Language::C => None,
    };
    let trial = trial(&plugin.component, lending(&vectors)?)?;
    let runtime = runtime()?;
    let warm = runtime.block_on(compiled(&trial, &vectors, Mode::Warm))?;
    let fresh = runtime.block_on(compiled(&trial, &vectors, Mode::Fresh))?;

    let mut cases = Vec::with_capacity(vectors.cases.len());
    for ((case, warm), fresh) in vectors.cases.iter().zip(warm).zip(fresh) {
        let mut problems: Vec<String> = case.problem(&warm).into_iter().collect();
        if fresh != warm {
            problems.push(format!("a fresh instance answers {fresh}, a warm one {warm}: something is remembered between calls"));
        }
        if let Some(native) = &native {
            match native.get(&case.name) {
                Some(native) if *native == warm => {}
                Some(native) => problems.push(format!("natively it answers {native}, compiled {warm}")),
                None => problems.push("the native run did not ask it".to_owned()),
            }
        }
        cases.push(Outcome { name: case.name.clone(), problems });
    }
    Ok(Report { plugin: plugin.name.clone(), native: native.is_some(), cases })
}

/// The component's answers in the order of the file. In warm mode one instance answers all cases of one configuration, as it
/// would in a node, so what it remembers shows.
async fn compiled(trial: &Trial, vectors: &Vectors, mode: Mode) -> Result<Vec<Value>> {
    let mut answers = vec![Value::Null; vectors.cases.len()];
    let configs: BTreeSet<String> = vectors.cases.iter().map(|case| vectors.config_of(case)).collect();
    for config in configs {
        let mut subject = trial.configure(&config, mode).await;
        for (case, place) in vectors.cases.iter().zip(&mut answers).filter(|(case, _)| vectors.config_of(case) == config) {
            let question = Question::new(vectors, case)?;
            let answer = match &mut subject {
                Ok(subject) if subject.manifest().phases.contains(&question.phase()) => answer(subject.ask(question.call()).await),
                Ok(_) => Answer::Fault("no-phase".to_owned()),
                Err(Unusable::Refused(problem)) => Answer::Configure(problem.clone()),
                Err(Unusable::Failed(fault)) => Answer::Fault(fault.as_str().to_owned()),
                Err(Unusable::Manifest(problem)) => bail!("case {:?}: {problem}", case.name),
            };
            *place = serde_json::from_str(&answer.to_json()).context("a verdict is JSON")?;
        }
    }
    Ok(answers)
}

#[derive(Deserialize)]
struct Line {
    case: String,
    verdict: Value,
}

/// The native answers by case, from `cargo test --test vectors`.
fn natively(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let folder = folder.canonicalize().with_context(|| format!("open {}", folder.display()))?;
    let answers = tempfile::NamedTempFile::new().context("make a temporary file")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--quiet", "--test", "vectors"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", gateway_guest::target_dir(&folder)?.join("native"))
        .env("SLUICE_VERDICTS", answers.path())
        .stdin(Stdio::null())
        .output()
        .context("start cargo")?;
    let text = fs::read_to_string(answers.path()).context("read the native answers")?;
    if text.is_empty() {
        let said = [output.stdout, output.stderr].concat();
        bail!("the native run, `cargo test --test vectors` in {}, gave no answer:\n{}", folder.display(), String::from_utf8_lossy(&said));
    }
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Line { case, verdict } = serde_json::from_str(line).with_context(|| format!("the native answer {line}"))?;
        found.insert(case, verdict);
    }
    Ok(found)
}
