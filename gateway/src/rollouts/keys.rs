//! Whose signatures this node believes: the `*.pub` files of a folder, read again each time, so that a key is added or withdrawn
//! without a restart.
//!
//! Blocking: called from threads that may wait.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gateway_core::policy::Digest;
use gateway_core::policy::bundle::{self, BundleError, Label, TrustedKeys};
use gateway_core::policy::rollout::BundleRef;
use gateway_core::ports::Artefact;

/// Files that are read; a security team has a handful.
const KEYS_MAX: usize = 100;

/// A key is one line; the rest is comment.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// A bundle that was proved.
#[derive(Debug, Clone)]
pub(crate) struct Proved {
    /// What it says of itself.
    pub(crate) label: Label,
    /// Whose signature it has.
    pub(crate) signer: String,
    /// Its names.
    pub(crate) names: BundleRef,
    /// Its component.
    pub(crate) artefact: Artefact,
}

/// The folder.
#[derive(Debug, Clone)]
pub(crate) struct Keyring(PathBuf);

impl Keyring {
    /// The keys in `dir`, which need not exist.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// Proves `bytes`. The error is a sentence for the operator.
    pub(crate) fn prove(&self, bytes: &Bytes) -> Result<Proved, String> {
        let trusted = self.read()?;
        let opened = bundle::open(bytes, &trusted).map_err(|error| match error {
            BundleError::UnknownSigner => format!("{error}; {} of {} are trusted", count(&trusted), self.0.display()),
            BundleError::TooLarge | BundleError::NotABundle | BundleError::Label(_) | BundleError::OtherComponent => error.to_string(),
        })?;
        let digest = opened.label.component.clone();
        let names = BundleRef { component: digest.clone(), bundle: Digest::of(bytes) };
        let artefact = Artefact { digest, component: bytes.slice_ref(opened.component) };
        Ok(Proved { label: opened.label, signer: opened.signer, names, artefact })
    }

    fn read(&self) -> Result<TrustedKeys, String> {
        let mut trusted = TrustedKeys::default();
        let failed = |path: &Path, error: &dyn std::fmt::Display| format!("cannot read the trusted keys: {}: {error}", path.display());
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(trusted),
            Err(error) => return Err(failed(&self.0, &error)),
        };
        let mut files = Vec::new();
        for entry in entries.take(10 * KEYS_MAX) {
            let path = entry.map_err(|error| failed(&self.0, &error))?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                files.push(path);
            }
        }
        files.sort();
        for path in files.iter().take(KEYS_MAX) {
            let mut text = String::new();
            let file = File::open(path).map_err(|error| failed(path, &error))?;
            file.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(path, &error))?;
            // One file that is no key does not make the others worthless; whoever misses it finds it in the log.
            if let Err(error) = trusted.add(&text) {
                tracing::warn!(file = %path.display(), %error, "a key that is not used");
            }
        }
        Ok(trusted)
    }
}

fn count(trusted: &TrustedKeys) -> String {
    match trusted.len() {
        0 => "no keys".to_owned(),
        1 => "1 key".to_owned(),
        more => format!("{more} keys"),
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::policy::bundle::SigningSeed;

    use super::*;

    fn sealed(seed: u8) -> Bytes {
        let component = b"\0asm";
        let label = Label {
            plugin: "demo".into(),
            version: "1".into(),
            component: Digest::of(component),
            phases: Vec::new(),
            headers: Vec::new(),
            capabilities: Vec::new(),
        };
        bundle::seal(&label, component, &SigningSeed::new(&[seed; 32])).unwrap().into()
    }

    #[test]
    fn a_key_counts_from_the_moment_it_lies_there_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keyring::new(folder.path().join("keys"));
        assert!(keys.prove(&sealed(1)).unwrap_err().contains("no keys of"), "the folder does not even exist");
        fs::create_dir(folder.path().join("keys")).unwrap();
        let file = folder.path().join("keys/team.pub");
        fs::write(&file, SigningSeed::new(&[1; 32]).public_key()).unwrap();
        fs::write(folder.path().join("keys/broken.pub"), "not a key").unwrap();
        fs::write(folder.path().join("keys/signing.key"), SigningSeed::new(&[2; 32]).public_key()).unwrap();
        let proved = keys.prove(&sealed(1)).unwrap();
        assert_eq!((&proved.artefact.component[..], proved.signer), (&b"\0asm"[..], SigningSeed::new(&[1; 32]).id()));
        assert!(keys.prove(&sealed(2)).unwrap_err().contains("1 key of"), "only *.pub files are keys");
        fs::remove_file(&file).unwrap();
        assert!(keys.prove(&sealed(1)).is_err(), "withdrawn");
    }
}
