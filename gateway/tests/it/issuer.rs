//! An identity provider of the tests: keys of its own, and a server that publishes them as it is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A P-256 key with a name.
pub(crate) struct Key {
    id: &'static str,
    signing: EncodingKey,
    /// The public key in PEM.
    pub(crate) public_pem: String,
}

impl Key {
    /// A new key called `id`.
    pub(crate) fn new(id: &'static str) -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        let signing = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        Self { id, signing, public_pem: pair.public_key_pem() }
    }

    /// A token of these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.signing).unwrap()
    }

    /// The public key for a key set.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.signing, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        serde_json::to_value(jwk).unwrap()
    }
}

/// A set of these keys.
pub(crate) fn set(keys: &[&Key]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string()
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) enum Publishes {
    /// 200 with this body.
    Text(String),
    /// This status and no body.
    Status(u16),
    /// 302 to this place.
    Redirect(String),
}

#[derive(Debug)]
struct Desk {
    publishes: Publishes,
    asked: usize,
}

/// A running provider; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Issuer {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    desk: Arc<Mutex<Desk>>,
    task: JoinHandle<()>,
}

impl Issuer {
    /// Starts one.
    pub(crate) async fn start(publishes: Publishes) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Mutex::new(Desk { publishes, asked: 0 }));
        let router = Router::new().route("/{*path}", get(answer)).with_state(desk.clone());
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, desk, task })
    }

    /// Publishes something else from now on.
    pub(crate) fn publish(&self, publishes: Publishes) {
        open(&self.desk).publishes = publishes;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        open(&self.desk).asked
    }

    /// Settings that follow it, in place of the tests' shared secret.
    pub(crate) fn settings(&self, times: &str) -> String {
        let own = format!("tokens.jwks_url = \"http://{}/jwks\"\n{times}", self.address);
        let base = crate::settings::base().unwrap();
        let lines = base.lines().map(|line| if line.starts_with("tokens.secret") { own.as_str() } else { line });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn open(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(desk): State<Arc<Mutex<Desk>>>) -> Response {
    let publishes = {
        let mut desk = open(&desk);
        desk.asked += 1;
        desk.publishes.clone()
    };
    match publishes {
        Publishes::Text(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Publishes::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Publishes::Redirect(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
    }
}
