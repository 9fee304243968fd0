//! Proves who is asking, and which role may ask for what.
//!
//! The token itself is judged by the host (`identity.verify`); here lives only where a token may stand and which paths
//! need one. Configured as [`Config`]; README.md says why it is the way it is.

use serde::Deserialize;
use sluice_sdk::types::{Effects, Facts, Manifest, Phases, Principal, Refusal, Request, Role, Verdict};
use sluice_sdk::{HeaderBlock, Host, Policy, RequestView, configuration};

/// Where the WebSocket subprotocol list carries a token; browsers cannot set `Authorization` on a handshake.
const SUBPROTOCOL_BEARER: &str = "bearer.";

/// The configuration document.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Paths that need no token. One that ends in `/` covers everything below it, any other covers itself.
    exempt: Vec<String>,
    /// Who may enter where; the first entry that covers the path decides, a path without entry is open to every role.
    roles: Vec<RoleRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleRule {
    path: String,
    roles: Vec<String>,
}

/// The configured policy.
#[derive(Debug)]
pub struct JwtAuth {
    exempt: Vec<String>,
    roles: Vec<(String, Vec<Role>)>,
}

impl Policy for JwtAuth {
    fn configure(config: &str) -> Result<Self, String> {
        let Config { exempt, roles } = configuration(config)?;
        let roles = roles.into_iter().map(|rule| Ok((rule.path, rule.roles.iter().map(|r| role(r)).collect::<Result<_, String>>()?)));
        Ok(Self { exempt, roles: roles.collect::<Result<_, String>>()? })
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            name: "jwt-auth".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            phases: Phases::REQUEST,
            headers: vec!["authorization".into(), "sec-websocket-protocol".into()],
        }
    }

    fn on_request(&self, host: &dyn Host, request: &Request, _facts: &Facts) -> Verdict {
        if self.exempt.iter().any(|pattern| covers(pattern, &request.path)) {
            return Verdict::proceed();
        }
        let Some(token) = token(request) else { return unauthenticated("请先登录") };
        match host.verify(token) {
            Ok(principal) if self.admits(&request.path, &principal) => {
                Verdict::Proceed(Effects { principal: Some(principal), ..Effects::default() })
            }
            Ok(_) => Verdict::Refuse(Refusal::new(403, "FORBIDDEN", "没有权限")),
            Err(_) => unauthenticated("登录已失效,请重新登录"),
        }
    }
}

impl JwtAuth {
    fn admits(&self, path: &str, principal: &Principal) -> bool {
        self.roles.iter().find(|(pattern, _)| covers(pattern, path)).is_none_or(|(_, roles)| roles.contains(&principal.role))
    }
}

/// The token of a request. A token in the URL ends up in logs and histories, so it is only read where a client cannot
/// send a header: sockets, the short link of a mini-program, and the result page that is opened by navigation.
fn token(request: &Request) -> Option<&str> {
    if let Some(token) = request.bearer() {
        return Some(token);
    }
    let path = request.path.as_str();
    if let Some(token) = path.strip_prefix("/im/") {
        return Some(token);
    }
    if path.starts_with("/ws/") {
        return subprotocol_token(request).or_else(|| request.parameter("token"));
    }
    path.starts_with("/api/seckill/result/").then(|| request.parameter("token")).flatten()
}

fn subprotocol_token(request: &Request) -> Option<&str> {
    request.header("sec-websocket-protocol")?.split(',').find_map(|name| name.trim().strip_prefix(SUBPROTOCOL_BEARER))
}

fn covers(pattern: &str, path: &str) -> bool {
    if pattern.ends_with('/') { path.starts_with(pattern) } else { path == pattern }
}

fn role(word: &str) -> Result<Role, String> {
    match word {
        "user" => Ok(Role::User),
        "agent" => Ok(Role::Agent),
        "admin" => Ok(Role::Admin),
        other => Err(format!("roles: {other:?} is none of user, agent, admin")),
    }
}

fn unauthenticated(message: &str) -> Verdict {
    Verdict::Refuse(Refusal::new(401, "UNAUTHENTICATED", message))
}

#[cfg(target_family = "wasm")]
sluice_sdk::export!(JwtAuth);

#[cfg(test)]
mod tests {
    use sluice_sdk::testing::{FakeHost, facts, principal, request};

    use super::*;

    const CONFIG: &str = r#"{"exempt": ["/api/time", "/api/public/"], "roles": [{"path": "/api/desk/", "roles": ["agent", "admin"]}]}"#;

    fn host() -> FakeHost {
        FakeHost::default().with_token("t.u", principal("u1", Role::User)).with_token("t.a", principal("a1", Role::Agent))
    }

    /// The principal's id, or the refusal's code, or `anyone`.
    fn ask(path: &str, query: &str, headers: &str) -> String {
        let policy = JwtAuth::configure(CONFIG).expect("valid");
        let request = Request { query: (!query.is_empty()).then(|| query.into()), headers: headers.into(), ..request(path) };
        match policy.on_request(&host(), &request, &facts()) {
            Verdict::Proceed(effects) => effects.principal.map_or("anyone".into(), |p| p.id),
            Verdict::Refuse(refusal) => refusal.code,
        }
    }

    #[test]
    fn reads_a_token_where_its_path_allows_one() {
        let protocol = "sec-websocket-protocol: chat.v1.json, bearer.t.u\n";
        for (path, query, headers, answer) in [
            ("/api/x", "", "authorization: Bearer t.u\n", "u1"),
            ("/api/x", "", "", "UNAUTHENTICATED"),
            ("/api/x", "", "authorization: Bearer other\n", "UNAUTHENTICATED"),
            ("/api/x", "", "authorization: Basic t.u\n", "UNAUTHENTICATED"),
            ("/api/x", "token=t.u", "", "UNAUTHENTICATED"),
            ("/api/x", "", protocol, "UNAUTHENTICATED"),
            ("/api/seckill/result/SK1", "token=t.u", "", "u1"),
            ("/ws/chat", "token=t.u&last_ack_seq=4", "", "u1"),
            ("/ws/chat", "", protocol, "u1"),
            ("/ws/chat", "", "sec-websocket-protocol: chat.v1.json\n", "UNAUTHENTICATED"),
            ("/im/t.u", "", "", "u1"),
            ("/im/", "", "", "UNAUTHENTICATED"),
            ("/im/t.u/x", "", "", "UNAUTHENTICATED"),
        ] {
            assert_eq!(ask(path, query, headers), answer, "{path} {query} {headers}");
        }
    }

    #[test]
    fn a_bad_header_is_not_rescued_by_a_good_parameter() {
        assert_eq!(ask("/ws/chat", "token=t.u", "authorization: Bearer other\n"), "UNAUTHENTICATED");
    }

    #[test]
    fn exempt_paths_need_no_token() {
        for (path, answer) in [
            ("/api/time", "anyone"),
            ("/api/public/a/b", "anyone"),
            ("/api/time/x", "UNAUTHENTICATED"),
            ("/api/public", "UNAUTHENTICATED"),
            ("/api/publicity", "UNAUTHENTICATED"),
        ] {
            assert_eq!(ask(path, "", ""), answer, "{path}");
        }
    }

    #[test]
    fn a_role_rule_keeps_other_roles_out() {
        assert_eq!(ask("/api/desk/queue", "", "authorization: Bearer t.a\n"), "a1");
        assert_eq!(ask("/api/desk/queue", "", "authorization: Bearer t.u\n"), "FORBIDDEN");
    }

    #[test]
    fn refuses_configuration_it_does_not_understand() {
        for bad in [r#"{"exemt": []}"#, r#"{"roles": [{"path": "/", "roles": ["root"]}]}"#, "[]", "{"] {
            assert!(JwtAuth::configure(bad).is_err(), "{bad}");
        }
        assert!(JwtAuth::configure("").is_ok());
    }
}
