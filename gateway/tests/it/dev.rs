//! One `sluice dev` on memory alone, for tests that need no service.

use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::admin::Admin;
use crate::process::{Process, excerpt};
use crate::settings;

/// A running `sluice dev` with a configuration of its own.
#[derive(Debug)]
pub(crate) struct Dev {
    /// The process.
    pub(crate) process: Process,
    /// Where clients connect.
    pub(crate) edge: SocketAddr,
    /// What operators use.
    pub(crate) admin: Admin,
    folder: TempDir,
}

impl Dev {
    /// Starts it with the settings of all tests and `extra`.
    pub(crate) async fn start(extra: &str) -> anyhow::Result<Self> {
        Self::start_with(&(settings::base()? + extra), &[]).await
    }

    /// Starts it with this configuration and further arguments.
    pub(crate) async fn start_with(config: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("sluice-dev-").tempdir()?;
        let file = folder.path().join("sluice.toml");
        std::fs::write(&file, config)?;
        let file = file.display().to_string();
        let arguments = [&["dev", "--config", &file], arguments].concat();
        let mut process = Process::start(&arguments, &[], log(folder.path()))?;
        let edge = process.listening("edge").await?;
        let admin = Admin::new(process.listening("admin").await?);
        Ok(Self { process, edge, admin, folder })
    }
}

fn log(folder: &Path) -> std::path::PathBuf {
    folder.join("dev.log")
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", excerpt(&log(self.folder.path())));
            self.folder.disable_cleanup(true);
        }
    }
}
