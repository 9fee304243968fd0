//! Which route a request belongs to. A router is built once from the configuration; the edge asks it for every request
//! that no handler of our own claims.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A rule that passes requests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name in logs and metrics.
    pub name: Arc<str>,
    /// The host it is for, lower case, without port; `None` is any host.
    pub host: Option<String>,
    /// The methods it is for, upper case; none is all. `GET` includes `HEAD` (RFC 9110, 9.3.2).
    pub methods: Vec<String>,
    /// The paths it is for.
    pub path: PathRule,
    /// The upstream group that answers.
    pub upstream: Arc<str>,
}

/// A rule for normalised paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathRule {
    /// This path.
    Exact(String),
    /// This path and everything below it: `/api` has `/api` and `/api/x` but not `/apix`. With a final slash the path
    /// itself is left out: `/api/` has `/api/x` and `/api/` but not `/api`.
    Prefix(String),
}

impl PathRule {
    /// Whether `path`, which is normalised, falls under this rule.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => {
                path.strip_prefix(prefix.as_str()).is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
            }
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) => path,
        }
    }
}

/// What a router says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match<'a> {
    /// This route takes it.
    Found(&'a Route),
    /// Routes take this path, but not with this method.
    MethodNotAllowed {
        /// The methods they take, sorted: the value of `Allow`.
        allow: Vec<&'a str>,
    },
    /// No route takes this path.
    None,
}

/// A set of routes, searched in order of precision.
#[derive(Debug, Clone, Default)]
pub struct Router {
    by_host: BTreeMap<String, Vec<Route>>,
    any_host: Vec<Route>,
}

impl Router {
    /// Orders `routes`: exact before prefix, longer before shorter, routes with methods before those without, and equals
    /// by name, so that the order they come in does not matter.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        let mut router = Self::default();
        for route in routes {
            match &route.host {
                Some(host) => router.by_host.entry(host.clone()).or_default().push(route),
                None => router.any_host.push(route),
            }
        }
        router.by_host.values_mut().chain([&mut router.any_host]).for_each(|routes| routes.sort_by(|a, b| rank(a).cmp(&rank(b))));
        router
    }

    /// The route for a request: those of its own host come before those of any host, then the order of [`Router::new`].
    /// `host` is lower case without port, `path` is normalised. A route that does not take the method lets a later
    /// one have the request.
    #[must_use]
    pub fn find(&self, host: &str, method: &str, path: &str) -> Match<'_> {
        let mut allow: Vec<&str> = Vec::new();
        let own = self.by_host.get(host).map(Vec::as_slice).unwrap_or_default();
        for route in own.iter().chain(&self.any_host).filter(|route| route.path.matches(path)) {
            if route.takes(method) {
                return Match::Found(route);
            }
            allow.extend(route.methods.iter().map(String::as_str));
            if route.takes("HEAD") {
                allow.push("HEAD");
            }
        }
        if allow.is_empty() {
            return Match::None;
        }
        allow.sort_unstable();
        allow.dedup();
        Match::MethodNotAllowed { allow }
    }
}

impl Route {
    fn takes(&self, method: &str) -> bool {
        let listed = |method: &str| self.methods.iter().any(|listed| listed == method);
        self.methods.is_empty() || listed(method) || (method == "HEAD" && listed("GET"))
    }
}

fn rank(route: &Route) -> impl Ord + '_ {
    let prefix = matches!(route.path, PathRule::Prefix(_));
    (prefix, std::cmp::Reverse(route.path.as_str().len()), route.methods.is_empty(), &*route.name, &*route.upstream)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Match, PathRule, Route, Router};

    fn route(name: &str, host: &str, methods: &[&str], path: PathRule) -> Route {
        let host = (!host.is_empty()).then(|| host.to_owned());
        Route { name: name.into(), host, methods: methods.iter().map(|m| (*m).to_owned()).collect(), path, upstream: "shop".into() }
    }

    fn prefix(path: &str) -> PathRule {
        PathRule::Prefix(path.to_owned())
    }

    fn exact(path: &str) -> PathRule {
        PathRule::Exact(path.to_owned())
    }

    fn found(router: &Router, host: &str, method: &str, path: &str) -> String {
        match router.find(host, method, path) {
            Match::Found(route) => route.name.to_string(),
            Match::MethodNotAllowed { allow } => format!("allow {}", allow.join(", ")),
            Match::None => "none".to_owned(),
        }
    }

    fn example() -> Vec<Route> {
        vec![
            route("all", "", &[], prefix("/")),
            route("api", "", &[], prefix("/api")),
            route("api-v2", "", &[], prefix("/api/v2")),
            route("health", "", &["GET"], exact("/api/health")),
            route("desk", "desk.example", &[], prefix("/")),
            route("files", "", &[], prefix("/files/")),
        ]
    }

    #[test]
    fn the_most_precise_route_wins() {
        let router = Router::new(example());
        for (host, method, path, name) in [
            ("", "GET", "/", "all"),
            ("", "GET", "/api", "api"),
            ("", "GET", "/api/", "api"),
            ("", "GET", "/api/x", "api"),
            ("", "GET", "/apix", "all"),
            ("", "GET", "/api/v2", "api-v2"),
            ("", "GET", "/api/v2/x", "api-v2"),
            ("", "GET", "/api/v20", "api"),
            ("", "GET", "/api/health", "health"),
            ("", "HEAD", "/api/health", "health"),
            ("", "POST", "/api/health", "api"),
            ("", "GET", "/files", "all"),
            ("", "GET", "/files/", "files"),
            ("", "GET", "/files/a", "files"),
            ("desk.example", "GET", "/api/v2", "desk"),
            ("other.example", "GET", "/api/v2", "api-v2"),
        ] {
            assert_eq!(found(&router, host, method, path), name, "{host} {method} {path}");
        }
    }

    #[test]
    fn says_which_methods_a_path_has() {
        let router = Router::new(vec![
            route("read", "", &["GET"], exact("/cart")),
            route("write", "", &["PUT", "DELETE"], prefix("/cart")),
            route("post-only", "", &["POST"], prefix("/orders")),
        ]);
        assert_eq!(found(&router, "", "POST", "/cart"), "allow DELETE, GET, HEAD, PUT");
        assert_eq!(found(&router, "", "PUT", "/cart"), "write");
        assert_eq!(found(&router, "", "get", "/orders"), "allow POST");
        assert_eq!(found(&router, "", "GET", "/elsewhere"), "none");
    }

    #[test]
    fn finds_nothing_without_routes() {
        assert_eq!(Router::new(Vec::new()).find("", "GET", "/"), Match::None);
    }

    fn routes() -> impl Strategy<Value = Vec<Route>> {
        let path = (any::<bool>(), proptest::sample::select(vec!["/", "/a", "/a/", "/a/b", "/ab"]))
            .prop_map(|(is_exact, path)| if is_exact { exact(path) } else { prefix(path) });
        let methods = proptest::sample::select(vec![vec![], vec!["GET"], vec!["POST", "PUT"]]);
        let one = (proptest::sample::select(vec!["", "shop"]), methods, path);
        proptest::collection::vec(one, 0..8).prop_map(|routes| {
            routes.into_iter().enumerate().map(|(at, (host, methods, path))| route(&format!("r{at}"), host, &methods, path)).collect()
        })
    }

    proptest! {
        #[test]
        fn order_of_insertion_does_not_matter(
            (routes, shuffled) in routes().prop_flat_map(|routes| (Just(routes.clone()), Just(routes).prop_shuffle()))
        ) {
            let (router, other) = (Router::new(routes), Router::new(shuffled));
            for host in ["", "shop", "else"] {
                for method in ["GET", "POST", "HEAD", "PATCH"] {
                    for path in ["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b"] {
                        prop_assert_eq!(router.find(host, method, path), other.find(host, method, path));
                    }
                }
            }
        }
    }
}
