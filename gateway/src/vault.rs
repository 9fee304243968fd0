//! The vault: keys from a file or a key service, kept in memory, and AES-256-GCM with them.
//!
//! `keyring` reads the keys and says which one seals today. What never happens here: deciding what is secret
//! (`core::chat::seal`), or writing a key anywhere. Made by `wiring`; keys are looked for again every `vault.refresh_ms`, and
//! those that are known stay when that fails.

mod keyring;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use data_encoding::BASE64URL_NOPAD;
use gateway_core::config::{Vault as VaultConfig, VaultKeys};
use gateway_core::ports::{KeyId, Live, PortError, PortErrorKind, Store, Unsealable, Vault};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use ring::aead::{Aad, NONCE_LEN, Nonce};
use tokio::time::{MissedTickBehavior, interval};

use self::keyring::Keyring;
use crate::clock;
use crate::health::Dependency;

/// Bytes of a key list: some ten years of daily keys.
const LIST_BYTES_MAX: usize = 256 * 1024;
/// How long the key service may take.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// No vault: nothing is sealed, and what was sealed stays shut.
pub(crate) struct Absent;

impl Vault for Absent {
    fn live(&self) -> Live {
        Live::Off
    }

    fn seal(&self, _: &[u8], _: &[u8]) -> Option<(KeyId, String)> {
        None
    }

    fn open(&self, _: &KeyId, _: &str, _: &[u8]) -> Result<Vec<u8>, Unsealable> {
        Err(Unsealable)
    }
}

/// Keys in memory.
pub(crate) struct Safe {
    keys: ArcSwap<Keyring>,
    source: VaultKeys,
}

impl Safe {
    /// Reads the keys once. A file must be there and hold keys; a key service may still be away.
    pub(crate) async fn open(config: &VaultConfig) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(source) = config.keys.clone() else { return Ok(None) };
        let keys = match (&source, list(&source).await) {
            (_, Ok(keys)) => keys,
            (VaultKeys::File(_), Err(error)) => return Err(error),
            (VaultKeys::Url { .. }, Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the key service does not answer yet");
                Keyring::default()
            }
        };
        Ok(Some(Arc::new(Self { keys: ArcSwap::from_pointee(keys), source })))
    }

    /// Looks for keys every `every`, for as long as the process runs.
    pub(crate) fn watch(self: &Arc<Self>, every: Duration) {
        let this = self.clone();
        tokio::spawn(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                match list(&this.source).await {
                    Ok(keys) => this.keys.store(Arc::new(keys)),
                    Err(error) => tracing::warn!(error = format!("{error:#}"), "cannot read the vault's keys; the known ones stay"),
                }
            }
        });
    }
}

impl Vault for Safe {
    fn live(&self) -> Live {
        self.keys.load().live(clock::now()).map_or(Live::Missing, |(id, _)| Live::Key(id.clone()))
    }

    fn seal(&self, plain: &[u8], context: &[u8]) -> Option<(KeyId, String)> {
        let keys = self.keys.load();
        let (id, key) = keys.live(clock::now())?;
        // 96 random bits: a day's key would have to seal billions of values before two nonces meet.
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = plain.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut text).ok()?;
        Some((id.clone(), BASE64URL_NOPAD.encode(&[&nonce[..], &text].concat())))
    }

    fn open(&self, key: &KeyId, sealed: &str, context: &[u8]) -> Result<Vec<u8>, Unsealable> {
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).map_err(|_| Unsealable)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(Unsealable)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Unsealable)?;
        let keys = self.keys.load();
        let mut text = text.to_vec();
        let plain = keys.key(key).ok_or(Unsealable)?.open_in_place(nonce, Aad::from(context), &mut text).map_err(|_| Unsealable)?;
        Ok(plain.to_vec())
    }
}

/// `/readyz` calls a node unready that would have to refuse cards.
#[async_trait]
impl Dependency for Safe {
    fn name(&self) -> &'static str {
        "vault"
    }

    async fn ping(&self) -> Result<(), PortError> {
        match self.live() {
            Live::Key(_) | Live::Off => Ok(()),
            Live::Missing => {
                Err(PortError { kind: PortErrorKind::Unavailable, store: Store::Vault, doing: "find a key that seals today", source: None })
            }
        }
    }
}

/// One line for `sluice check`: which key seals today. Fails when none does.
pub(crate) async fn describe(config: &VaultConfig) -> anyhow::Result<String> {
    let Some(source) = &config.keys else { return Ok("vault: none, nothing is sealed".into()) };
    let keys = list(source).await?;
    let Some((live, _)) = keys.live(clock::now()) else { bail!("vault: {} keys, and none of them is valid today", keys.len()) };
    Ok(format!("vault: key {} seals, {} keys open", live.as_str(), keys.len()))
}

async fn list(source: &VaultKeys) -> anyhow::Result<Keyring> {
    match source {
        VaultKeys::File(file) => {
            let text = read(file).await.with_context(|| format!("vault.key_file: cannot read {}", file.display()))?;
            Keyring::parse(&text).with_context(|| format!("vault.key_file: {}", file.display()))
        }
        VaultKeys::Url { url, token } => {
            let token = token.as_ref().map(|token| token.expose());
            let text = fetch(url, token).await.with_context(|| format!("vault.kms_url: {url}"))?;
            Keyring::parse(&text).with_context(|| format!("vault.kms_url: {url}"))
        }
    }
}

async fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = tokio::fs::metadata(file).await?.len();
    ensure!(bytes <= LIST_BYTES_MAX as u64, "{bytes} bytes are too many");
    Ok(tokio::fs::read_to_string(file).await?)
}

async fn fetch(url: &str, token: Option<&str>) -> anyhow::Result<String> {
    // Whoever is first chooses the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(FETCH_MAX).redirect(Policy::none()).build()?;
    let request = client.get(url);
    let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
    let mut response = request.send().await?;
    ensure!(response.status() == StatusCode::OK, "answered {}", response.status());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        ensure!(body.len() + part.len() <= LIST_BYTES_MAX, "the answer is too long");
        body.extend_from_slice(&part);
    }
    Ok(String::from_utf8(body)?)
}

#[cfg(test)]
mod tests {
    use gateway_core::config::Secret;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn safe(list: &str) -> Safe {
        Safe { keys: ArcSwap::from_pointee(Keyring::parse(list).unwrap()), source: VaultKeys::File("unused".into()) }
    }

    fn line(id: &str, day: &str, byte: u8) -> String {
        format!("{id} {day} {}\n", data_encoding::BASE64.encode(&[byte; 32]))
    }

    #[test]
    fn what_one_key_sealed_opens_after_the_next_has_taken_over_and_not_without_it() {
        let old = line("old", "2020-01-01", 1);
        let before = safe(&old);
        let (id, text) = before.seal("长安街".as_bytes(), b"chat/9/address").unwrap();
        assert_eq!(id.as_str(), "old");
        let after = safe(&(old + &line("new", "2021-01-01", 2)));
        assert_eq!(after.live(), Live::Key(KeyId::parse("new").unwrap()));
        assert_eq!(after.open(&id, &text, b"chat/9/address").unwrap(), "长安街".as_bytes());
        let without = safe(&line("new", "2021-01-01", 2));
        assert_eq!(without.open(&id, &text, b"chat/9/address"), Err(Unsealable));
    }

    #[test]
    fn what_was_changed_or_moved_does_not_open() {
        let safe = safe(&line("k", "2020-01-01", 1));
        let (id, text) = safe.seal(b"1", b"here").unwrap();
        assert_ne!(safe.seal(b"1", b"here").unwrap().1, text, "the same value never looks the same");
        assert_eq!(safe.open(&id, &text, b"there"), Err(Unsealable));
        let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(safe.open(&id, &BASE64URL_NOPAD.encode(&bytes), b"here"), Err(Unsealable), "byte {at}");
            bytes[at] ^= 1;
        }
        for short in ["", "AAAA", "not base64!"] {
            assert_eq!(safe.open(&id, short, b"here"), Err(Unsealable), "{short}");
        }
    }

    #[tokio::test]
    async fn a_key_service_is_asked_with_its_token_and_must_say_ok() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let source = VaultKeys::Url { url: format!("http://{}/keys", server.local_addr().unwrap()), token: Some(Secret::new("t0ken")) };
        let serving = tokio::spawn(async move {
            let body = line("k", "2020-01-01", 1);
            for status in ["200 OK", "302 Found", "503 Service Unavailable"] {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0, "the head ends");
                }
                assert!(String::from_utf8_lossy(&head).contains("authorization: Bearer t0ken"), "the token goes along");
                let answer =
                    format!("HTTP/1.1 {status}\r\nlocation: /other\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        assert_eq!(list(&source).await.unwrap().len(), 1);
        for _ in 0..2 {
            assert!(list(&source).await.is_err(), "keys are taken from a plain success only");
        }
        serving.await.unwrap();
        assert!(list(&source).await.is_err(), "nobody is there");
    }

    #[test]
    fn a_vault_whose_first_key_is_for_tomorrow_is_missing_one() {
        assert_eq!(safe(&line("k", "2999-01-01", 1)).live(), Live::Missing);
    }
}
