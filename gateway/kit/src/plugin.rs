//! A plugin's folder with a built component in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gateway_core::policy::bundle::COMPONENT_BYTES_MAX;
use gateway_guest::Language;
use gateway_policy::trial::{Manifest, Trial};
use tokio::runtime::Runtime;

use crate::vectors;

/// A plugin as its author has it.
#[derive(Debug)]
pub struct Plugin {
    /// Its name, the folder's.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The bytes of `<folder>/<name>.wasm`.
    pub component: Vec<u8>,
}

impl Plugin {
    /// Reads what `sluice plugin build` has made.
    ///
    /// # Errors
    /// When it has not, or the component is too large.
    pub fn open(folder: &Path) -> Result<Self> {
        let name = gateway_guest::name(folder)?;
        let file = folder.join(&name).with_extension("wasm");
        let component = std::fs::read(&file)
            .with_context(|| format!("read {}; `sluice plugin build {}` makes it", file.display(), folder.display()))?;
        ensure!(
            component.len() <= COMPONENT_BYTES_MAX,
            "{} has {} bytes, more than the {COMPONENT_BYTES_MAX} that nodes accept",
            file.display(),
            component.len()
        );
        Ok(Self { name, folder: folder.to_owned(), component })
    }

    /// What `config.json` says, as text.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn config(&self) -> Result<String> {
        vectors::configuration(&self.folder).map(|config| config.to_string()).map_err(anyhow::Error::msg)
    }

    /// The language it is written in.
    ///
    /// # Errors
    /// When its build file is gone.
    pub fn language(&self) -> Result<Language> {
        Language::of(&self.folder)
    }

    /// Whether the manifest calls the plugin what its folder calls it.
    ///
    /// # Errors
    /// When it does not.
    pub fn has_name_of(&self, manifest: &Manifest) -> Result<()> {
        ensure!(
            manifest.name == self.name,
            "the policy calls itself {:?} and its folder is {:?}: a plugin has one name, change either",
            manifest.name,
            self.name
        );
        Ok(())
    }
}

/// Compiles `component` for a trial.
pub(crate) fn trial(component: &[u8], lending: gateway_policy::trial::Lending) -> Result<Trial> {
    Trial::new(component, lending).map_err(anyhow::Error::msg)
}

/// A runtime for calls one after the other.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build().context("cannot start a runtime")
}
