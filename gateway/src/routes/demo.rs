//! The demo shop of `sluice dev`: its files, and the state its pages start from. Never part of `sluice serve`.

use std::time::Duration;

use gateway_core::id::PrincipalId;
use gateway_core::principal::Role;
use gateway_core::request::RequestHead;
use gateway_core::sale::Shard;
use serde_json::json;

use crate::clock;
use crate::node::Node;
use crate::routes::outcome::{Failure, Outcome};
use crate::token::{self, Grant};

/// How long a page's token lasts.
const TOKEN_TTL: Duration = Duration::from_secs(12 * 3_600);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, media type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../../web/index.html")),
    ("/desk", HTML, include_str!("../../web/desk.html")),
    ("/demo/index.html", HTML, include_str!("../../web/index.html")),
    ("/demo/desk.html", HTML, include_str!("../../web/desk.html")),
    ("/demo/style.css", CSS, include_str!("../../web/style.css")),
    ("/demo/shop.js", SCRIPT, include_str!("../../web/shop.js")),
    ("/demo/desk.js", SCRIPT, include_str!("../../web/desk.js")),
    ("/demo/thread.js", SCRIPT, include_str!("../../web/thread.js")),
    ("/demo/page.js", SCRIPT, include_str!("../../web/page.js")),
    ("/demo/i18n.js", SCRIPT, include_str!("../../web/i18n.js")),
    ("/demo/purchase.js", SCRIPT, include_str!("../../web/purchase.js")),
    ("/demo/chat-client.js", SCRIPT, include_str!("../../web/chat-client.js")),
    ("/demo/chat-events.js", SCRIPT, include_str!("../../web/chat-events.js")),
    ("/demo/chat-state.js", SCRIPT, include_str!("../../web/chat-state.js")),
    ("/demo/product.svg", SVG, include_str!("../../web/product.svg")),
    ("/demo/icon.svg", SVG, include_str!("../../web/icon.svg")),
];

/// A file, or the state.
pub(crate) async fn answer(node: &Node, head: &RequestHead, path: &str) -> Result<Outcome, Failure> {
    if path == "/demo/state" {
        return state(node, head).await;
    }
    FILES.iter().find(|(name, ..)| *name == path).map(|(_, media_type, text)| Outcome::File { media_type, text }).ok_or(Failure::NotFound)
}

async fn state(node: &Node, head: &RequestHead) -> Result<Outcome, Failure> {
    let demo = node.demo.get().ok_or(Failure::NotFound)?;
    let named = |wanted: &str, default: &str| {
        let query = head.query.as_deref().unwrap_or_default();
        let name = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == wanted).map_or(default, |(_, v)| v);
        PrincipalId::parse(name)
            .map_err(|_| Failure::BadRequest(format!("{wanted} must be 1 to 64 letters, digits, dots, dashes or colons")))
    };
    let user = named("user", "alice")?;
    let agent = named("agent", "a1")?;
    let record = node.catalog.find(demo.lot).await?.ok_or(Failure::UnknownItem)?;
    let stock = node.ports.admission.stock(Shard::first(demo.lot)).await?;
    let now = clock::now();
    let mint = |id: &PrincipalId, role, shop| {
        let grant = Grant { id: id.clone(), role, shop, scope: String::new(), ttl: TOKEN_TTL };
        token::mint(&node.config.tokens, &grant, now).map_err(|error| {
            tracing::error!(%error, "cannot mint a demo token");
            Failure::Internal
        })
    };
    Ok(Outcome::Data(json!({
        "serverTime": now.0,
        "userId": user.as_str(), "userToken": mint(&user, Role::User, None)?,
        "agentId": agent.as_str(), "agentToken": mint(&agent, Role::Agent, Some(demo.shop))?,
        "shopId": demo.shop.to_string(),
        "activity": {
            "activityId": demo.lot.activity.to_string(), "skuId": demo.lot.sku.to_string(),
            "title": demo.title, "name": record.name,
            "priceCents": record.price_cents, "originalPriceCents": demo.original_price_cents,
            "startAt": record.start.0, "endAt": record.end.0,
            "stock": record.stock, "left": stock.map_or(record.stock, |stock| stock.left), "perUser": record.per_user,
        },
    })))
}
