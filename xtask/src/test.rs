//! `cargo xtask test`: every test there is, counted into one closing line.

#![expect(clippy::print_stdout, reason = "what the tests say is what the command prints")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::cargo::cargo;
use crate::plugins;

/// The RFC 6455 suite; a Python package, kept in a virtual environment of its own.
const KOSOKU: &str = "kosoku==0.1.0";

/// Prepares what the tests run on, runs them, and fails when one failed.
pub(crate) fn run(root: &Path) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(root);
    prepare(&sh, root)?;
    let mut tally = Tally::default();
    // Guests have a workspace of their own; their rules are tested natively, without wasm.
    tally.cargo(
        root,
        &["test", "--locked", "--manifest-path", "plugins/Cargo.toml", "--workspace", "--target-dir", "target/plugins-native"],
    )?;
    tally.cargo(root, &["test", "--locked", "--workspace", "--no-fail-fast"])?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    ensure!(tally.failed == 0 && tally.broken.is_empty(), "failed: {}", tally.broken.join("; "));
    ensure!(tally.passed > 0, "no test ran");
    Ok(())
}

/// Plugins, the browser driver, the JavaScript compiler and the RFC 6455 suite. What is there already is not fetched again.
fn prepare(sh: &Shell, root: &Path) -> Result<()> {
    plugins::build_all()?;
    for (what, folder, proof) in [
        ("the browser driver", "tests/browser", "playwright-core"),
        ("clients of message brokers", "tests/stomp", "@stomp/stompjs"),
        ("the compiler of JavaScript policies", "plugins/examples/js", "@bytecodealliance/componentize-js"),
    ] {
        if !root.join(folder).join("node_modules").join(proof).join("package.json").exists() {
            println!("installing {what} (npm)");
            let _dir = sh.push_dir(folder);
            cmd!(sh, "npm ci --ignore-scripts --no-audit --no-fund --silent").run().with_context(|| format!("cannot install {folder}"))?;
        }
    }
    if !root.join("target/venv/bin/kosoku").exists() {
        println!("installing the RFC 6455 suite ({KOSOKU})");
        cmd!(sh, "python3 -m venv target/venv").run().context("cannot make target/venv")?;
        cmd!(sh, "target/venv/bin/pip install --quiet --disable-pip-version-check {KOSOKU}").run().context("cannot install kosoku")?;
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// Commands that failed, so that a test binary that does not even start is not mistaken for zero failures.
    broken: Vec<String>,
}

impl Tally {
    /// Runs cargo, passes its output on, and adds up its result lines.
    fn cargo(&mut self, root: &Path, args: &[&str]) -> Result<()> {
        let mut child = cargo(root).args(args).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        let Some(output) = child.stdout.take() else {
            bail!("cargo has no output");
        };
        let mut out = std::io::stdout().lock();
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read cargo's output")?;
            writeln!(out, "{line}").context("cannot print")?;
            if let Some((passed, failed)) = result_line(&line) {
                self.passed += passed;
                self.failed += failed;
            }
        }
        let status = child.wait().context("cargo was lost")?;
        if !status.success() {
            self.broken.push(format!("cargo {}", args.join(" ")));
        }
        Ok(())
    }
}

/// Counts of `test result: ok. 3 passed; 1 failed; …`.
fn result_line(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let (before, _) = counts.split_once(word)?;
        before.trim_end().rsplit(' ').next()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        assert_eq!(result_line("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured"), Some((12, 0)));
        assert_eq!(result_line("test result: FAILED. 3 passed; 1 failed; 0 ignored"), Some((3, 1)));
        assert_eq!(result_line("test a ... ok"), None);
    }
}
