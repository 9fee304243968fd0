//! Tokens that somebody made up, against a node that follows a key set: nobody gets in, nothing is fetched or opened that a
//! token names, and no name of a token's choosing turns up among the metrics.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::issuer::{Issuer, Key, Publishes, set};
use crate::settings::CLOSED;
use crate::tokens::claims;
use crate::upstream::{Conduct, Upstream};

/// A node that believes the key `k` of an issuer, and passes requests under `/api/` on for whoever has a token of it.
struct Believer {
    key: Key,
    dev: Dev,
    edge: Edge,
    upstream: Upstream,
    _issuer: Issuer,
}

impl Believer {
    async fn start(publishes: impl Fn(&Key) -> String) -> Self {
        let key = Key::new("k");
        let issuer = Issuer::start(Publishes::Text(publishes(&key))).await.unwrap();
        let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
        let policies = format!(
            "[upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"shop\"\nprefix = \"/api\"\nupstream = \"all\"\n\
             [[policies]]\nname = \"jwt-auth\"\ntimeout_ms = 2000\nprefixes = [\"/api/\", \"/ws/\"]\nfail = {CLOSED}\n",
            upstream.address
        );
        let dev = Dev::start_with(&(issuer.settings("tokens.jwks_cooldown_ms = 600000") + &policies), &[]).await.unwrap();
        Self { key, dev, edge: Edge::new().unwrap(), upstream, _issuer: issuer }
    }

    async fn status(&self, token: &str) -> u16 {
        let request = self.edge.http.get(format!("http://{}/api/x", self.dev.edge)).bearer_auth(token);
        Answer::of(request).await.unwrap().status
    }

    /// Checks that `token` opens nothing: no request passes and no chat is opened.
    async fn refuses(&self, what: &str, token: &str) {
        let before = self.upstream.arrived().len();
        assert_eq!(self.status(token).await, 401, "{what}");
        let handshake = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let request = self.edge.http.get(format!("http://{}/ws/chat?token={token}", self.dev.edge));
        let request = handshake.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        assert_eq!(Answer::of(request).await.unwrap().status, 401, "{what}, on a handshake");
        assert_eq!(self.upstream.arrived().len(), before, "{what} arrived");
    }

    fn signed(&self, header: &Header, key: &EncodingKey) -> String {
        jsonwebtoken::encode(header, &root(), key).unwrap()
    }
}

/// What an attacker would like to be.
fn root() -> Value {
    claims("root", "admin", 3_600)
}

fn header(algorithm: Algorithm) -> Header {
    Header { kid: Some("k".into()), ..Header::new(algorithm) }
}

/// Base64url without padding (RFC 4648, 5).
fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        text.extend((0..=part.len()).map(|index| char::from(LETTERS[(number >> (18 - 6 * index) & 63) as usize])));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_key_is_no_shared_secret() {
    let node = Believer::start(|key| set(&[key])).await;
    assert_eq!(node.status(&node.key.sign(&root())).await, 200);
    for (what, secret) in [("the key in PEM", node.key.public_pem.clone()), ("the key set", set(&[&node.key]))] {
        let token = node.signed(&header(Algorithm::HS256), &EncodingKey::from_secret(secret.as_bytes()).unwrap());
        node.refuses(what, &token).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_an_algorithm_has_that_of_its_kind() {
    let without = |key: &Key| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().remove("alg");
        json!({ "keys": [jwk] }).to_string()
    };
    let node = Believer::start(without).await;
    assert_eq!(node.status(&node.key.sign(&root())).await, 200);
    // The HMAC of an empty key, made by hand: no library signs with one.
    let signed = base64url(br#"{"alg":"HS256","kid":"k"}"#) + "." + &base64url(root().to_string().as_bytes());
    for signature in ["", "AAAA", &base64url(&[0; 32])] {
        node.refuses("the empty key", &format!("{signed}.{signature}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsigned_token_is_none_in_every_spelling() {
    let node = Believer::start(|key| set(&[key])).await;
    let good = node.key.sign(&root());
    let signature = good.rsplit('.').next().unwrap();
    for spelling in ["none", "None", "nOnE", "NONE", "none ", ""] {
        let head = json!({ "alg": spelling, "typ": "JWT", "kid": "k" }).to_string();
        let unsigned = base64url(head.as_bytes()) + "." + &base64url(root().to_string().as_bytes());
        for ending in ["", ".", &format!(".{signature}")] {
            node.refuses(&format!("{spelling:?} with {ending:?}"), &(unsigned.clone() + ending)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_token_says_about_keys_is_not_acted_on() {
    let node = Believer::start(|key| set(&[key])).await;
    let (mine, elsewhere) = (Key::new("k"), Issuer::start(Publishes::Text(String::new())).await.unwrap());
    elsewhere.publish(Publishes::Text(set(&[&mine])));
    let jwk: Jwk = serde_json::from_value(mine.jwk()).unwrap();
    let url = format!("http://{}/jwks", elsewhere.address);
    let key = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).unwrap();
    let bring = |header: Header| node.signed(&header, &key);
    for (what, token) in [
        ("a key under a known name", mine.sign(&root())),
        ("a key of its own", bring(Header { jwk: Some(jwk.clone()), ..header(Algorithm::ES256) })),
        ("a key of its own alone", bring(Header { jwk: Some(jwk), ..Header::new(Algorithm::ES256) })),
        ("another server", bring(Header { jku: Some(url.clone()), ..header(Algorithm::ES256) })),
        ("another certificate", bring(Header { x5u: Some(url), ..header(Algorithm::ES256) })),
        ("a file", bring(Header { kid: Some("../../dev/null".into()), ..Header::new(Algorithm::ES256) })),
        ("a statement", bring(Header { kid: Some("x' or '1'='1".into()), ..Header::new(Algorithm::ES256) })),
        ("a name of 4 KB", bring(Header { kid: Some("k".repeat(4_096)), ..Header::new(Algorithm::ES256) })),
        ("nearly its name", bring(Header { kid: Some("K".into()), ..Header::new(Algorithm::ES256) })),
    ] {
        node.refuses(what, &token).await;
    }
    assert_eq!(elsewhere.asked(), 0, "nobody asks where a token says");
    let metrics = node.edge.http.get(node.dev.admin.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(!metrics.contains("dev/null") && !metrics.contains("kkkk"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_signed_is_what_counts() {
    let node = Believer::start(|key| set(&[key])).await;
    let good = node.key.sign(&claims("u1", "user", 3_600));
    let parts: Vec<&str> = good.split('.').collect();
    let [head, payload, signature] = parts.as_slice() else { panic!("{good}") };
    for (what, token) in [
        ("another's name under a signature", format!("{head}.{}.{signature}", base64url(root().to_string().as_bytes()))),
        ("an encrypted token", format!("{head}.{payload}.{payload}.{payload}.{signature}")),
        ("half a token", format!("{head}.{payload}")),
        ("a token twice", format!("{good}.{good}")),
        ("a signature in another alphabet", format!("{head}.{payload}.{}", signature.replace(['-', '_'], "+")) + "="),
    ] {
        node.refuses(what, &token).await;
    }
    assert_eq!(node.status(&good).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audience_names_us_or_the_token_is_somebody_elses() {
    let node = Believer::start(|key| set(&[key])).await;
    let with = |audience: Option<Value>| {
        let mut claims = claims("u1", "user", 3_600);
        match audience {
            Some(audience) => claims["aud"] = audience,
            None => drop(claims.as_object_mut().unwrap().remove("aud")),
        }
        node.key.sign(&claims)
    };
    for (what, audience) in
        [("none", None), ("an empty list", Some(json!([]))), ("a number", Some(json!(7))), ("others", Some(json!(["other", "sluice2"])))]
    {
        node.refuses(what, &with(audience)).await;
    }
    assert_eq!(node.status(&with(Some(json!(["other", "sluice"])))).await, 200);
}
