//! Where a request goes after the policies let it through. Thin: parse, call the core through ports, return an outcome.

pub(crate) mod chat;
pub(crate) mod demo;
pub(crate) mod outcome;
pub(crate) mod proxy;
pub(crate) mod seckill;

use gateway_core::route::{Match, Router};

/// What a path and a method name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `POST /api/seckill/buy`.
    Buy,
    /// `GET /api/seckill/result/{orderNo}`.
    Result(String),
    /// `POST /api/seckill/orders/{orderNo}/cancel`.
    Cancel(String),
    /// `GET /ws/chat` or `GET /im/{token}`.
    ChatSocket,
    /// The chat without a WebSocket: a path under `/api/chat/`.
    Chat(chat::Question),
    /// A file or the state of the demo shop.
    Demo(String),
    /// A configured route.
    Upstream {
        /// Its name.
        route: std::sync::Arc<str>,
        /// Its upstream group.
        group: std::sync::Arc<str>,
    },
    /// The path exists, for these methods.
    WrongMethod(String),
    /// Nothing.
    Nothing,
}

impl Target {
    /// The label of metrics and of the access log.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Buy => "seckill.buy",
            Self::Result(_) => "seckill.result",
            Self::Cancel(_) => "seckill.cancel",
            Self::ChatSocket => "chat.socket",
            Self::Chat(question) => question.label(),
            Self::Demo(_) => "demo",
            Self::Upstream { route, .. } => route,
            Self::WrongMethod(_) | Self::Nothing => "none",
        }
    }

    /// Finds the target. The product's own paths come before configured routes, so that no route can shadow them.
    pub(crate) fn find(router: &Router, demo: bool, host: &str, method: &str, path: &str) -> Self {
        let own = |wanted: &str, target: Self| match (wanted, method) {
            (wanted, method) if wanted == method => target,
            ("GET", "HEAD") => target,
            ("GET", _) => Self::WrongMethod("GET, HEAD".to_owned()),
            _ => Self::WrongMethod(wanted.to_owned()),
        };
        if path == "/api/seckill/buy" {
            return own("POST", Self::Buy);
        }
        if let Some(order_no) = path.strip_prefix("/api/seckill/result/") {
            return own("GET", Self::Result(order_no.to_owned()));
        }
        let order = path.strip_prefix("/api/seckill/orders/").and_then(|rest| rest.strip_suffix("/cancel"));
        if let Some(order_no) = order.filter(|order_no| !order_no.is_empty() && !order_no.contains('/')) {
            return own("POST", Self::Cancel(order_no.to_owned()));
        }
        if path == "/ws/chat" || path.strip_prefix("/im/").is_some_and(|token| !token.is_empty() && !token.contains('/')) {
            return own("GET", Self::ChatSocket);
        }
        if let Some(found) = chat::Question::find(path, method) {
            return found.map_or_else(Self::WrongMethod, Self::Chat);
        }
        if demo && (path == "/" || path == "/desk" || path.starts_with("/demo/")) {
            return own("GET", Self::Demo(path.to_owned()));
        }
        match router.find(host, method, path) {
            Match::Found(route) => Self::Upstream { route: route.name.clone(), group: route.upstream.clone() },
            Match::MethodNotAllowed { allow } => Self::WrongMethod(allow.join(", ")),
            Match::None => Self::Nothing,
        }
    }
}
