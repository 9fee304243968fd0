//! Tokens, good and forged, at the verifier. The keys in `keys/` were made for these tests and open nothing.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::principal::{Principal, Role};
use gateway_core::time::UnixMillis;
use gateway_policy::{Keys, KeysError, Lists, Verifier, VerifierSettings, VerifyError};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::support::{AUDIENCE, ISSUER, NOW, SECRET};

const RSA: &[u8] = include_bytes!("keys/rsa.pem");
const RSA_PUBLIC: &str = include_str!("keys/rsa.pub.pem");
const EC: &[u8] = include_bytes!("keys/ec.pem");
const EC_PUBLIC: &str = include_str!("keys/ec.pub.pem");
const ED: &[u8] = include_bytes!("keys/ed.pem");
const ED_PUBLIC: &str = include_str!("keys/ed.pub.pem");

const NOW_S: u64 = NOW.0 / 1_000;

/// What an issuer of ours writes.
#[derive(Clone, Serialize)]
pub(crate) struct Claims {
    pub(crate) sub: String,
    pub(crate) role: String,
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
}

impl Claims {
    pub(crate) fn good() -> Self {
        Self { sub: "u1".into(), role: "user".into(), iss: ISSUER.into(), aud: AUDIENCE.into(), exp: NOW_S + 600, scope: None }
    }
}

pub(crate) fn hs256(claims: &Claims) -> String {
    encode(&Header::new(Algorithm::HS256), claims, &secret_key(SECRET)).unwrap()
}

pub(crate) fn principal(id: &str) -> Principal {
    Principal { id: PrincipalId::parse(id).unwrap(), role: Role::User, shop: None, scopes: Vec::new(), expires_at: NOW, token_id: None }
}

fn secret_key(secret: &[u8]) -> EncodingKey {
    EncodingKey::from_secret(secret).unwrap()
}

fn verifier(keys: Keys) -> Verifier {
    let leeway = Duration::from_secs(5);
    Verifier::new(VerifierSettings { issuer: ISSUER.into(), audience: AUDIENCE.into(), leeway, keys }).unwrap()
}

fn secret() -> Verifier {
    verifier(Keys::Secret(SECRET.to_vec()))
}

/// Good claims with `changes` merged over them; `null` removes one.
fn claims(changes: Value) -> Value {
    let mut claims = serde_json::to_value(Claims::good()).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn signed(algorithm: Algorithm, kid: Option<&str>, claims: &Value, key: &EncodingKey) -> String {
    encode(&Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) }, claims, key).unwrap()
}

fn hs(changes: Value) -> String {
    signed(Algorithm::HS256, None, &claims(changes), &secret_key(SECRET))
}

/// A token with a header of the attacker's choice.
fn raw(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    format!("{}.{}.{}", part(header), part(claims), BASE64URL_NOPAD.encode(signature))
}

/// A set of the RSA key as `rsa-1` and the EC key as `ec-1`.
fn jwks() -> Value {
    let key = |key: EncodingKey, algorithm, kid: &str| {
        let mut jwk = Jwk::from_encoding_key(&key, algorithm).unwrap();
        jwk.common.key_id = Some(kid.to_owned());
        serde_json::to_value(jwk).unwrap()
    };
    let rsa = key(EncodingKey::from_rsa_pem(RSA).unwrap(), Algorithm::RS256, "rsa-1");
    let ec = key(EncodingKey::from_ec_pem(EC).unwrap(), Algorithm::ES256, "ec-1");
    json!({ "keys": [rsa, ec] })
}

#[test]
fn every_kind_of_key_verifies_its_own_algorithm() {
    for (keys, algorithm, key) in [
        (Keys::Secret(SECRET.to_vec()), Algorithm::HS256, secret_key(SECRET)),
        (Keys::PublicKeyPem(RSA_PUBLIC.into()), Algorithm::RS256, EncodingKey::from_rsa_pem(RSA).unwrap()),
        (Keys::PublicKeyPem(EC_PUBLIC.into()), Algorithm::ES256, EncodingKey::from_ec_pem(EC).unwrap()),
        (Keys::PublicKeyPem(ED_PUBLIC.into()), Algorithm::EdDSA, EncodingKey::from_ed_pem(ED).unwrap()),
    ] {
        let verified = verifier(keys).verify(&signed(algorithm, None, &claims(json!({})), &key), NOW).unwrap();
        assert_eq!(verified.expires_at, UnixMillis((NOW_S + 600) * 1_000), "{algorithm:?}");
    }
}

#[test]
fn what_is_revoked_is_refused_from_that_moment_on_though_it_was_verified_before() {
    let lists = Arc::new(Lists::default());
    let verifier = secret().refusing(lists.clone(), "revoked");
    let [stolen, own] = ["stolen", "own"].map(|id| hs(json!({ "jti": id })));
    let revoke = |entries: &[&str]| lists.replace("revoked", entries.iter().map(|&entry| entry.to_owned())).unwrap();
    assert!(verifier.verify(&stolen, NOW).is_ok());
    revoke(&["stolen"]);
    assert_eq!(verifier.verify(&stolen, NOW), Err(VerifyError::Revoked));
    assert!(!verifier.revokes(&verifier.verify(&own, NOW).unwrap()));
    revoke(&["u1"]);
    for token in [&own, &hs(json!({})), &stolen] {
        assert_eq!(verifier.verify(token, NOW), Err(VerifyError::Revoked), "all tokens of a sub");
    }
    revoke(&[]);
    assert!(verifier.verify(&stolen, NOW).is_ok(), "the list says what is revoked, not what was");
}

#[test]
fn claims_become_a_principal() {
    for (changes, shop, scopes) in [
        (json!({}), None, 0),
        (json!({"shop_id": 7}), Some(ShopId(7)), 0),
        (json!({"shop_id": "18446744073709551615", "role": "agent"}), Some(ShopId(u64::MAX)), 0),
        (json!({"scope": "a b  c"}), None, 3),
        (json!({"aud": ["other", AUDIENCE]}), None, 0),
        (json!({"exp": NOW_S as f64 + 0.5, "unknown": {"x": 1}}), None, 0),
    ] {
        let verified = secret().verify(&hs(changes.clone()), NOW).unwrap_or_else(|error| panic!("{changes}: {error}"));
        assert_eq!((verified.shop, verified.scopes.len()), (shop, scopes), "{changes}");
    }
    assert_eq!(secret().verify(&hs(json!({"jti": "t-1"})), NOW).unwrap().token_id.as_deref(), Some("t-1"));
    assert_eq!(secret().verify(&hs(json!({"jti": null})), NOW).unwrap().token_id, None);
}

#[test]
fn refuses_claims_that_do_not_fit() {
    use VerifyError::{BadClaims, Expired, NotYetValid, WrongAudience, WrongIssuer};
    for (changes, error) in [
        (json!({"iss": null}), BadClaims),
        (json!({"aud": null}), BadClaims),
        (json!({"exp": null}), BadClaims),
        (json!({"sub": null}), BadClaims),
        (json!({"jti": ""}), BadClaims),
        (json!({"jti": "x".repeat(129)}), BadClaims),
        (json!({"role": null}), BadClaims),
        (json!({"iss": "other"}), WrongIssuer),
        (json!({"iss": [ISSUER]}), BadClaims),
        (json!({"aud": "other"}), WrongAudience),
        (json!({"aud": []}), WrongAudience),
        (json!({"aud": 7}), BadClaims),
        (json!({"exp": NOW_S - 6}), Expired),
        (json!({"exp": -1}), BadClaims),
        (json!({"exp": "soon"}), BadClaims),
        (json!({"nbf": NOW_S + 6}), NotYetValid),
        (json!({"nbf": "soon"}), BadClaims),
        (json!({"sub": "a b"}), BadClaims),
        (json!({"sub": "x".repeat(65)}), BadClaims),
        (json!({"role": "root"}), BadClaims),
        (json!({"role": "agent"}), BadClaims),
        (json!({"shop_id": "07"}), BadClaims),
        (json!({"shop_id": -1}), BadClaims),
        (json!({"scope": vec!["s"; 33].join(" ")}), BadClaims),
    ] {
        assert_eq!(secret().verify(&hs(changes.clone()), NOW), Err(error), "{changes}");
    }
}

#[test]
fn clocks_may_disagree_by_the_leeway_and_no_more() {
    let token = hs(json!({"exp": NOW_S, "nbf": NOW_S}));
    let verifier = secret();
    // Twice each: the second answer comes from the cache and must be the same.
    for _ in 0..2 {
        for (now, good) in [(NOW.0 - 5_001, false), (NOW.0 - 5_000, true), (NOW.0 + 4_999, true), (NOW.0 + 5_000, false)] {
            assert_eq!(verifier.verify(&token, UnixMillis(now)).is_ok(), good, "{now}");
        }
    }
}

#[test]
fn refuses_unsigned_tokens_in_every_spelling() {
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        for signature in [&b""[..], b"x"] {
            let token = raw(&json!({"alg": algorithm, "typ": "JWT"}), &claims(json!({})), signature);
            assert_eq!(secret().verify(&token, NOW), Err(VerifyError::Malformed), "{algorithm:?}");
        }
    }
    let no_algorithm = raw(&json!({"typ": "JWT"}), &claims(json!({})), b"");
    assert_eq!(secret().verify(&no_algorithm, NOW), Err(VerifyError::Malformed));
}

#[test]
fn a_public_key_is_not_a_shared_secret() {
    let forged = |secret: &[u8]| signed(Algorithm::HS256, None, &claims(json!({})), &secret_key(secret));
    for public in [RSA_PUBLIC, EC_PUBLIC, ED_PUBLIC] {
        for secret in [public.as_bytes(), public.trim().as_bytes()] {
            assert_eq!(verifier(Keys::PublicKeyPem(public.into())).verify(&forged(secret), NOW), Err(VerifyError::WrongAlgorithm));
        }
    }
    let kid_of_rsa = signed(Algorithm::HS256, Some("rsa-1"), &claims(json!({})), &secret_key(RSA_PUBLIC.as_bytes()));
    assert_eq!(verifier(Keys::Jwks(jwks().to_string())).verify(&kid_of_rsa, NOW), Err(VerifyError::WrongAlgorithm));
}

#[test]
fn the_algorithm_is_the_keys_even_inside_one_family() {
    let rs384 = signed(Algorithm::RS384, None, &claims(json!({})), &EncodingKey::from_rsa_pem(RSA).unwrap());
    assert_eq!(verifier(Keys::PublicKeyPem(RSA_PUBLIC.into())).verify(&rs384, NOW), Err(VerifyError::WrongAlgorithm));
    let hs512 = signed(Algorithm::HS512, None, &claims(json!({})), &secret_key(SECRET));
    assert_eq!(secret().verify(&hs512, NOW), Err(VerifyError::WrongAlgorithm));
}

#[test]
fn a_kid_is_an_exact_name_of_a_key() {
    let verifier = verifier(Keys::Jwks(jwks().to_string()));
    let rsa = EncodingKey::from_rsa_pem(RSA).unwrap();
    let token = |kid: Option<&str>| signed(Algorithm::RS256, kid, &claims(json!({})), &rsa);
    assert!(verifier.verify(&token(Some("rsa-1")), NOW).is_ok());
    let long = "k".repeat(4_096);
    for kid in [None, Some(""), Some("rsa"), Some("RSA-1"), Some("rsa-1 "), Some("../../dev/null"), Some("/dev/null"), Some(long.as_str())]
    {
        assert_eq!(verifier.verify(&token(kid), NOW), Err(VerifyError::UnknownKey), "{kid:?}");
    }
    assert_eq!(verifier.verify(&token(Some("ec-1")), NOW), Err(VerifyError::WrongAlgorithm), "another key's name");
}

#[test]
fn keys_that_a_token_brings_along_are_not_looked_at() {
    let attacker = EncodingKey::from_rsa_pem(RSA).unwrap();
    let header = Header {
        jwk: Some(Jwk::from_encoding_key(&attacker, Algorithm::RS256).unwrap()),
        jku: Some("https://attacker.example/keys".into()),
        x5u: Some("https://attacker.example/cert".into()),
        ..Header::new(Algorithm::RS256)
    };
    let token = encode(&header, &claims(json!({})), &attacker).unwrap();
    assert_eq!(secret().verify(&token, NOW), Err(VerifyError::WrongAlgorithm));
    assert_eq!(verifier(Keys::Jwks(jwks().to_string())).verify(&token, NOW), Err(VerifyError::UnknownKey));
}

#[test]
fn refuses_a_token_that_was_changed_or_is_none() {
    let token = hs(json!({}));
    let (head, signature) = token.rsplit_once('.').unwrap();
    let other = hs(json!({"sub": "u2"}));
    let (other_head, _) = other.rsplit_once('.').unwrap();
    assert_eq!(secret().verify(&format!("{other_head}.{signature}"), NOW), Err(VerifyError::BadSignature));
    assert!(secret().verify(&format!("{head}."), NOW).is_err());
    for garbage in ["", ".", "..", "...", "a.b", "a.b.c", "用.户.名", &format!("{token}.x"), &"x".repeat(9_000)] {
        assert_eq!(secret().verify(garbage, NOW), Err(VerifyError::Malformed), "{garbage}");
    }
    let critical = raw(&json!({"alg": "HS256", "crit": ["exp"], "exp": 1}), &claims(json!({})), b"x");
    assert_eq!(secret().verify(&critical, NOW), Err(VerifyError::Malformed), "an extension that must be understood");
}

#[test]
fn a_claim_given_twice_is_refused() {
    let body = format!(r#"{{"sub":"u1","sub":"root","role":"user","iss":"{ISSUER}","aud":"{AUDIENCE}","exp":{}}}"#, NOW_S + 60);
    let message = format!("{}.{}", BASE64URL_NOPAD.encode(br#"{"alg":"HS256"}"#), BASE64URL_NOPAD.encode(body.as_bytes()));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &secret_key(SECRET), Algorithm::HS256).unwrap();
    assert_eq!(secret().verify(&format!("{message}.{signature}"), NOW), Err(VerifyError::BadClaims));
}

#[test]
fn refuses_keys_that_could_not_be_trusted() {
    let read = |keys| Verifier::new(VerifierSettings { issuer: String::new(), audience: String::new(), leeway: Duration::ZERO, keys });
    let jwks_with = |change: fn(&mut Value)| {
        let mut set = jwks();
        change(&mut set);
        read(Keys::Jwks(set.to_string())).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(matches!(read(Keys::Secret(vec![1; 31])).err(), Some(KeysError::ShortSecret)));
    assert!(matches!(read(Keys::PublicKeyPem("-----BEGIN X-----".into())).err(), Some(KeysError::Pem)));
    assert!(matches!(read(Keys::PublicKeyPem(String::from_utf8_lossy(RSA).into_owned())).err(), Some(KeysError::Pem)), "a private key");
    assert!(matches!(read(Keys::Jwks("{}".into())).err(), Some(KeysError::Jwks(_))));
    assert!(matches!(read(Keys::Jwks(r#"{"keys": []}"#.into())).err(), Some(KeysError::Empty)));
    assert!(jwks_with(|set| set["keys"][0]["alg"] = json!("HS256")).contains("key 0"), "an RSA key for HS256");
    assert!(jwks_with(|set| set["keys"][1]["kid"] = json!("rsa-1")).contains("key 1"), "two keys of one name");
    assert!(jwks_with(|set| set["keys"][0] = json!({"kty": "oct", "k": "AAAA", "alg": "HS256"})).contains("shared secret"));
    assert_eq!(jwks_with(|set| set["keys"].as_array_mut().unwrap().push(json!({"kty": "AKP", "kid": "new"}))), "", "RFC 7517, 5");
    assert_eq!(jwks_with(|set| drop(set["keys"][0].as_object_mut().unwrap().remove("alg"))), "");
}

#[test]
fn t1_a_public_key_is_not_a_secret_t2_and_an_empty_secret_is_no_key() {
    let mut set = jwks();
    set["keys"][0].as_object_mut().unwrap().remove("alg");
    let verifier = verifier(Keys::Jwks(set.to_string()));
    let empty = raw(&json!({"alg": "HS256", "kid": "rsa-1"}), &claims(json!({})), b"");
    assert_eq!(verifier.verify(&empty, NOW), Err(VerifyError::WrongAlgorithm));
    // The signature that an empty HMAC key would make.
    let signed = jsonwebtoken::encode(
        &Header { kid: Some("rsa-1".into()), ..Header::new(Algorithm::HS256) },
        &claims(json!({})),
        &secret_key(RSA_PUBLIC.as_bytes()),
    );
    assert_eq!(verifier.verify(&signed.unwrap(), NOW), Err(VerifyError::WrongAlgorithm));
}

#[test]
fn t5_a_key_vouches_only_for_tokens_that_name_it() {
    let verifier = verifier(Keys::Jwks(jwks().to_string()));
    let ec = EncodingKey::from_ec_pem(EC).unwrap();
    let borrowed = signed(Algorithm::ES256, Some("rsa-1"), &claims(json!({})), &ec);
    assert_eq!(verifier.verify(&borrowed, NOW), Err(VerifyError::WrongAlgorithm));
    // Five parts are an encrypted token, which nobody here decrypts.
    assert_eq!(verifier.verify("a.b.c.d.e", NOW), Err(VerifyError::Malformed));
}

#[test]
fn t6_a_token_is_for_us_when_it_says_so() {
    for (audience, good) in [(json!(null), false), (json!([]), false), (json!(["other", AUDIENCE]), true), (json!(7), false)] {
        assert_eq!(secret().verify(&hs(json!({ "aud": audience })), NOW).is_ok(), good, "{audience}");
    }
}

fn rsa_token(kid: &str) -> String {
    signed(Algorithm::RS256, Some(kid), &claims(json!({})), &EncodingKey::from_rsa_pem(RSA).unwrap())
}

#[test]
fn a_withdrawn_key_takes_the_tokens_it_signed_with_it() {
    let verifier = verifier(Keys::Jwks(jwks().to_string()));
    let token = rsa_token("rsa-1");
    assert!(verifier.verify(&token, NOW).is_ok());
    assert!(verifier.key_is_known(&token));

    let mut without = jwks();
    without["keys"].as_array_mut().unwrap().remove(0);
    verifier.replace(Keys::Jwks(without.to_string())).unwrap();
    assert_eq!(verifier.verify(&token, NOW), Err(VerifyError::UnknownKey), "though it was verified before");
    assert!(!verifier.key_is_known(&token));

    verifier.replace(Keys::Jwks(jwks().to_string())).unwrap();
    assert!(verifier.verify(&token, NOW).is_ok(), "the key is back");
}

#[test]
fn another_key_under_the_same_name_is_another_key() {
    let rsa = verifier(Keys::PublicKeyPem(RSA_PUBLIC.into()));
    let token = rsa_token("any");
    assert!(rsa.verify(&token, NOW).is_ok());
    rsa.replace(Keys::PublicKeyPem(EC_PUBLIC.into())).unwrap();
    assert_eq!(rsa.verify(&token, NOW), Err(VerifyError::WrongAlgorithm));
}

#[test]
fn keys_that_cannot_be_read_leave_the_old_ones() {
    let verifier = secret();
    assert!(verifier.replace(Keys::Jwks("{}".into())).is_err());
    assert!(verifier.verify(&hs(json!({})), NOW).is_ok());
}

#[test]
fn without_keys_every_token_is_of_an_unknown_key() {
    let verifier = verifier(Keys::None);
    let token = hs(json!({}));
    assert_eq!(verifier.verify(&token, NOW), Err(VerifyError::UnknownKey));
    assert!(!verifier.key_is_known(&token));
    verifier.replace(Keys::Secret(SECRET.to_vec())).unwrap();
    assert!(verifier.verify(&token, NOW).is_ok());
    verifier.forget_keys();
    assert_eq!(verifier.verify(&token, NOW), Err(VerifyError::UnknownKey), "cached or not");
}

#[test]
fn only_a_key_that_could_come_is_worth_looking_for() {
    let verifier = verifier(Keys::Jwks(jwks().to_string()));
    for (token, known) in [
        (rsa_token("rsa-1"), true),
        (rsa_token("rsa-2"), false),
        (hs(json!({})), true),
        ("x.y.z".to_owned(), true),
        ("x".repeat(9_000), true),
    ] {
        assert_eq!(verifier.key_is_known(&token), known, "{token:.40}");
    }
}
