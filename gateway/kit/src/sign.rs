//! Signing: `demo/demo.wasm` becomes `demo/demo.bundle`, which nodes accept that trust the key.
//!
//! What never happens here: a secret leaving the machine, or a key that others may read.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gateway_core::policy::bundle::{Label, SigningSeed, seal};
use gateway_core::policy::{Digest, Phase};
use gateway_policy::Mode;
use gateway_policy::trial::Lending;
use rand::TryRngCore as _;

use crate::plugin::{Plugin, runtime, trial};

/// The folder of the author's keys, in the folder the command is run in.
pub const KEY_FOLDER: &str = ".sluice";

/// What was signed, and with which key.
#[derive(Debug)]
pub struct Signed {
    /// The bundle's file.
    pub bundle: PathBuf,
    /// What it says.
    pub label: Label,
    /// The key's id.
    pub signer: String,
    /// The public key's file, when this call drew the key.
    pub new_key: Option<PathBuf>,
}

/// Signs the component of `plugin` with the key in `key`, or with [`KEY_FOLDER`]`/signing.key`, which is drawn when it is not
/// there.
///
/// # Errors
/// When the component does not take its `config.json`, or the key cannot be used.
pub fn run(plugin: &Plugin, key: Option<&Path>) -> Result<Signed> {
    let label = label(plugin)?;
    let (seed, new_key) = match key {
        Some(file) => (read_key(file)?, None),
        None => own_key(Path::new(KEY_FOLDER))?,
    };
    let bytes = seal(&label, &plugin.component, &seed)?;
    let bundle = plugin.folder.join(&plugin.name).with_extension("bundle");
    gateway_guest::write_whole(&bundle, &bytes)?;
    Ok(Signed { bundle, label, signer: seed.id(), new_key })
}

/// What the component says of itself.
fn label(plugin: &Plugin) -> Result<Label> {
    let compiled = trial(&plugin.component, Lending::default())?;
    let config = plugin.config()?;
    compiled.check_configuration(&config).map_err(anyhow::Error::msg).context("config.json")?;
    let runtime = runtime()?;
    let subject = runtime.block_on(compiled.configure(&config, Mode::Warm)).context("config.json")?;
    let manifest = subject.manifest();
    plugin.has_name_of(manifest)?;
    Ok(Label {
        plugin: plugin.name.clone(),
        version: manifest.version.clone(),
        component: Digest::of(&plugin.component),
        phases: manifest.phases.iter().copied().map(Phase::as_str).map(str::to_owned).collect(),
        headers: manifest.headers.clone(),
        capabilities: compiled.capabilities(),
    })
}

/// The key in `folder`, drawn at its first use.
fn own_key(folder: &Path) -> Result<(SigningSeed, Option<PathBuf>)> {
    let secret = folder.join("signing.key");
    if secret.exists() {
        return Ok((read_key(&secret)?, None));
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).context("the system has no randomness")?;
    let seed = SigningSeed::new(&bytes);
    let public = folder.join("keys").join(seed.id()).with_extension("pub");
    fs::create_dir_all(folder.join("keys")).with_context(|| format!("make {}", folder.display()))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).with_context(|| format!("close {} to others", folder.display()))?;
    fs::write(&public, format!("# signs policies\n{}\n", seed.public_key())).with_context(|| format!("write {}", public.display()))?;
    // The secret comes last: as long as it is not there, the next call draws another key.
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret).with_context(|| format!("write {}", secret.display()))?;
    file.write_all(format!("# the secret key of {}; whoever has it can sign policies\n{}\n", seed.id(), seed.to_text()).as_bytes())?;
    file.sync_all()?;
    Ok((seed, Some(public)))
}

fn read_key(file: &Path) -> Result<SigningSeed> {
    let mode = fs::metadata(file).with_context(|| format!("read the key {}", file.display()))?.permissions().mode();
    ensure!(
        mode & 0o077 == 0,
        "{} can be read by others (mode {:o}): chmod 600 it, and draw another if it may be known",
        file.display(),
        mode & 0o777
    );
    let text = fs::read_to_string(file).with_context(|| format!("read the key {}", file.display()))?;
    SigningSeed::parse(&text).with_context(|| format!("{}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_drawn_once_and_is_nobody_elses_to_read() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join(".sluice");
        let (first, public) = own_key(&folder).unwrap();
        let public = public.expect("a new key");
        assert!(public.ends_with(format!("keys/{}.pub", first.id())));
        let mut trusted = gateway_core::policy::bundle::TrustedKeys::default();
        trusted.add(&fs::read_to_string(public).unwrap()).unwrap();
        assert_eq!(fs::metadata(folder.join("signing.key")).unwrap().permissions().mode() & 0o777, 0o600);
        let (again, public) = own_key(&folder).unwrap();
        assert_eq!((again.id(), public), (first.id(), None));
    }

    #[test]
    fn refuses_a_key_that_others_can_read() {
        let temp = tempfile::tempdir().unwrap();
        own_key(temp.path()).unwrap();
        let file = temp.path().join("signing.key");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_key(&file).err().unwrap().to_string().contains("chmod 600"));
    }
}
