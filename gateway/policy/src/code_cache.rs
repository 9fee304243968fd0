//! Compiled code on disk, so that a node that starts again, or goes back to a version, does not compile.
//!
//! What lies here is run as it is, so nobody but this node may put anything here: the folder is private, and each file
//! carries a message authentication code under a key that only this node has. A file that does not fit is ignored and
//! written anew. Several nodes of one machine may share a folder, and then they share the key. What never happens here: failing
//! a load. Without the cache everything works, only later.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use gateway_core::policy::Digest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Most files, and most bytes of all of them; the oldest go first. A usual policy's code is under 1 MB, that of one with a
/// scripting engine 40 MB.
const FILES_MAX: usize = 64;
const BYTES_MAX: u64 = 512 << 20;

/// The node's own key; as long as a block of SHA-256, so that HMAC takes it as it is.
const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 64;

/// A half-written file that is older was left behind: writing one takes a moment, and somebody else may be writing now.
const PARTIAL_AGE: Duration = Duration::from_secs(60);

/// Length of the authentication code at a file's start: HMAC-SHA-256.
const TAG_BYTES: usize = 32;

/// A private folder of compiled code.
pub(crate) struct CodeCache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
}

impl CodeCache {
    /// Opens the folder, and makes it and its key when they are not there.
    ///
    /// # Errors
    /// When it is not private to this user, or cannot be used.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let found = fs::symlink_metadata(dir)?;
        let refuse = |problem| Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        if !found.is_dir() {
            return refuse("it is a link, not a folder");
        }
        if found.mode() & 0o022 != 0 {
            return refuse("others may write to it; `chmod 700` it");
        }
        let cache = Self { dir: dir.to_owned(), key: [0; KEY_BYTES] };
        cache.sweep();
        // What we create is ours; whatever else is ours has the same owner.
        let probe = cache.partial();
        let owner = create(&probe)?.metadata()?.uid();
        remove(&probe)?;
        if found.uid() != owner {
            return refuse("it belongs to another user");
        }
        let key = cache.key(owner)?;
        Ok(Self { key, ..cache })
    }

    /// The code of the component called `digest`, if it is here, whole, and from this node.
    pub(crate) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let name = name(engine, digest);
        let path = self.dir.join(&name);
        let mut file = File::open(&path).ok()?;
        if file.metadata().ok()?.len() > BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (tag, code) = bytes.split_at_checked(TAG_BYTES)?;
        if self.mac(&name, code).verify_slice(tag).is_err() {
            tracing::warn!(file = %path.display(), "compiled code is damaged or foreign; it is ignored");
            return None;
        }
        // Used again, so it is young again. It may have been swept meanwhile, which does not matter.
        let _ = file.set_modified(SystemTime::now());
        match deserialize(engine, code) {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "compiled code does not fit this program; it is ignored");
                None
            }
        }
    }

    /// Keeps the code of `component`. When that fails, the next start compiles again.
    pub(crate) fn store(&self, engine: &Engine, digest: &Digest, component: &Component) {
        let stored = component.serialize().map_err(|error| error.to_string()).and_then(|code| {
            let name = name(engine, digest);
            let tag = self.mac(&name, &code).finalize().into_bytes();
            self.write(&name, &[&tag, &code]).map_err(|error| error.to_string())
        });
        if let Err(error) = stored {
            tracing::warn!(dir = %self.dir.display(), error, "compiled code could not be kept");
        }
        self.sweep();
    }

    fn mac(&self, name: &str, code: &[u8]) -> Hmac<Sha256> {
        // The name is part of it, so that a file cannot stand for another. It has no zero byte.
        let mac = Hmac::<Sha256>::new(&self.key.into());
        mac.chain_update(name).chain_update([0]).chain_update(code)
    }

    /// Writes a file that appears whole.
    fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let partial = self.partial();
        let written = create(&partial).and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)));
        let written = written.and_then(|()| fs::rename(&partial, self.dir.join(name)));
        if written.is_err() {
            // It may not even be there.
            let _ = fs::remove_file(&partial);
        }
        written
    }

    /// A name nobody else is writing to, unless he has our process id, and then one of us fails to create it.
    fn partial(&self) -> PathBuf {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        self.dir.join(format!("{}-{}.partial", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The node's key; made when there is none that could be one.
    fn key(&self, owner: u32) -> io::Result<[u8; KEY_BYTES]> {
        let path = self.dir.join(KEY_FILE);
        match self.read_key(&path, owner) {
            Ok(Some(key)) => return Ok(key),
            Ok(None) => remove(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        // A link, unlike a renaming, never takes the place of a key that another node has made meanwhile.
        let partial = self.partial();
        let linked = create(&partial).and_then(|mut file| file.write_all(&key)).and_then(|()| fs::hard_link(&partial, &path));
        remove(&partial)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => {
                let key = self.read_key(&path, owner)?;
                key.ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, "its key is not private to this user"))
            }
        }
    }

    /// `None` when what lies there is not a key that only we know.
    fn read_key(&self, path: &Path, owner: u32) -> io::Result<Option<[u8; KEY_BYTES]>> {
        let found = fs::symlink_metadata(path)?;
        let private = found.is_file() && found.uid() == owner && found.mode() & 0o077 == 0;
        let bytes = if private { fs::read(path)? } else { Vec::new() };
        Ok(bytes.try_into().ok())
    }

    /// Removes what was left half-written, and the oldest files beyond the bounds.
    fn sweep(&self) {
        let Ok(files) = fs::read_dir(&self.dir) else { return };
        let mut kept = Vec::new();
        for file in files.flatten() {
            let path = file.path();
            let Ok(found) = file.metadata() else { continue };
            if path.extension() == Some(OsStr::new("partial")) {
                let age = found.modified().ok().and_then(|written| written.elapsed().ok()).unwrap_or_default();
                if age > PARTIAL_AGE {
                    let _ = fs::remove_file(&path);
                }
            } else if path.extension() == Some(OsStr::new("code")) {
                kept.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len(), path));
            }
        }
        kept.sort_unstable();
        let mut bytes: u64 = kept.iter().map(|(_, length, _)| length).sum();
        let mut files = kept.len();
        for (_, length, path) in &kept {
            if files <= FILES_MAX && bytes <= BYTES_MAX {
                break;
            }
            let _ = fs::remove_file(path);
            (files, bytes) = (files - 1, bytes - length);
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes a file, which may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A file's name: the component, and what its code depends on besides.
fn name(engine: &Engine, digest: &Digest) -> String {
    // Another hash in another release costs one compilation; wasmtime itself checks that code fits when it reads it.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{digest}-{:016x}.code", hasher.finish())
}

#[expect(unsafe_code, reason = "the one way to take compiled code back; see below why it is sound")]
fn deserialize(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must come from `Component::serialize`. They do: this function is called with nothing but bytes in
    // memory whose HMAC was checked just before, under a random key that lies in a file only this user can read, and the
    // only place that signs with it is `store`, which signs what `serialize` returned. Whoever can read the key can also
    // replace the program.
    unsafe { Component::deserialize(engine, code) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::thread;

    use tempfile::TempDir;

    use super::*;
    use crate::engine::EngineRoom;

    /// The smallest component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    struct Rig {
        dir: TempDir,
        room: EngineRoom,
        digest: Digest,
    }

    impl Rig {
        fn new() -> Self {
            Self { dir: TempDir::new().unwrap(), room: EngineRoom::new(1, 1 << 20).unwrap(), digest: Digest::of(EMPTY) }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("code")
        }

        fn cache(&self) -> CodeCache {
            CodeCache::open(&self.path()).unwrap()
        }

        fn store(&self, cache: &CodeCache) -> PathBuf {
            let engine = self.room.engine();
            cache.store(engine, &self.digest, &Component::from_binary(engine, EMPTY).unwrap());
            self.path().join(name(engine, &self.digest))
        }

        fn finds(&self, cache: &CodeCache) -> bool {
            cache.load(self.room.engine(), &self.digest).is_some()
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_was_kept_is_found_after_a_restart_and_is_private() {
        let rig = Rig::new();
        assert!(!rig.finds(&rig.cache()));
        let file = rig.store(&rig.cache());
        assert!(rig.finds(&rig.cache()));
        assert_eq!([mode(&rig.path()), mode(&file), mode(&rig.path().join(KEY_FILE))], [0o700, 0o600, 0o600]);
    }

    #[test]
    fn a_changed_shortened_or_swapped_file_is_ignored_and_written_anew() {
        let rig = Rig::new();
        let cache = rig.cache();
        let file = rig.store(&cache);
        let whole = fs::read(&file).unwrap();
        for position in [0, TAG_BYTES, whole.len() / 2, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            fs::write(&file, changed).unwrap();
            assert!(!rig.finds(&cache), "bit of byte {position}");
        }
        for length in [0, TAG_BYTES - 1, TAG_BYTES, whole.len() - 1] {
            fs::write(&file, &whole[..length]).unwrap();
            assert!(!rig.finds(&cache), "{length} bytes");
        }
        let other = rig.path().join(name(rig.room.engine(), &Digest::of(b"other")));
        fs::write(&other, &whole).unwrap();
        assert!(cache.load(rig.room.engine(), &Digest::of(b"other")).is_none(), "another component's code");
        rig.store(&cache);
        assert!(rig.finds(&cache));
    }

    #[test]
    fn code_of_another_node_is_foreign() {
        let rig = Rig::new();
        rig.store(&rig.cache());
        fs::remove_file(rig.path().join(KEY_FILE)).unwrap();
        assert!(!rig.finds(&rig.cache()));
        // A key that others could read is no key.
        rig.store(&rig.cache());
        fs::set_permissions(rig.path().join(KEY_FILE), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!rig.finds(&rig.cache()));
    }

    #[test]
    fn nodes_that_start_at_once_in_one_new_folder_share_one_key() {
        for _ in 0..50 {
            let rig = Rig::new();
            let keys: BTreeSet<_> = thread::scope(|scope| {
                let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| rig.cache().key)).collect();
                opening.into_iter().map(|key| key.join().unwrap()).collect()
            });
            assert_eq!(keys.len(), 1);
            assert_eq!(fs::read_dir(rig.path()).unwrap().count(), 1, "nothing but the key is left");
        }
    }

    #[test]
    fn a_folder_that_is_not_private_is_refused() {
        let rig = Rig::new();
        drop(rig.cache());
        let link = rig.dir.path().join("link");
        symlink(rig.path(), &link).unwrap();
        assert!(CodeCache::open(&link).err().unwrap().to_string().contains("link"));
        for open in [0o770, 0o702, 0o777] {
            fs::set_permissions(rig.path(), fs::Permissions::from_mode(open)).unwrap();
            assert!(CodeCache::open(&rig.path()).err().unwrap().to_string().contains("chmod 700"), "{open:o}");
        }
        let file = rig.dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(CodeCache::open(&file).is_err());
    }

    #[test]
    fn the_oldest_files_go_when_there_are_too_many() {
        let rig = Rig::new();
        let cache = rig.cache();
        let newest = rig.store(&cache);
        for age in 1..=FILES_MAX + 5 {
            let file = File::create(rig.path().join(format!("{age}.code"))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(60 * u64::try_from(age).unwrap())).unwrap();
        }
        let left = File::create(rig.path().join("left.partial")).unwrap();
        left.set_modified(SystemTime::now() - 2 * PARTIAL_AGE).unwrap();
        fs::write(rig.path().join("young.partial"), "").unwrap();
        cache.sweep();
        let mut left: Vec<_> = fs::read_dir(rig.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left.len(), FILES_MAX + 2, "and the key, and what somebody may be writing: {left:?}");
        assert!(newest.is_file() && left.contains(&"1.code".to_owned()) && !left.contains(&format!("{}.code", FILES_MAX)));
    }
}
