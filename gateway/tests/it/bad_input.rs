//! Well-framed requests that make no sense: each is answered with the contract's status and code, in the one shape.

use reqwest::Method;
use serde_json::{Value, json};

use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::sale::{self, Lot, Terms};
use crate::{settings, tokens};

async fn dev() -> Dev {
    Dev::start(&("edge.body_bytes_max = 4096\nchat.origins = [\"https://shop.example\"]\n".to_owned() + &settings::chain())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_is_taken_by_its_spelling() {
    let dev = dev().await;
    let lot = sale::open(&dev.admin, 3001, Terms::open(5)).await.unwrap();
    let edge = Edge::new().unwrap();
    let send = async |user: &str, body: String| {
        let request = edge.http.post(format!("http://{}/api/seckill/buy", dev.edge)).bearer_auth(tokens::user(user));
        Answer::of(request.header("content-type", "application/json").body(body)).await.unwrap()
    };
    let Lot { activity, sku } = lot;
    for (number, body) in [
        "".to_owned(),
        "null".into(),
        "[]".into(),
        "7".into(),
        "{".into(),
        "{}".into(),
        "\u{feff}{}".into(),
        format!("{{\"activityId\":{activity},\"skuId\":{sku}}}"),
        format!("{{\"skuId\":{sku},\"qty\":1}}"),
        format!("{{\"activityId\":{activity},\"qty\":1}}"),
        format!("{{\"activityId\":-1,\"skuId\":{sku},\"qty\":1}}"),
        format!("{{\"activityId\":1.0,\"skuId\":{sku},\"qty\":1}}"),
        format!("{{\"activityId\":\"x\",\"skuId\":{sku},\"qty\":1}}"),
        format!("{{\"activityId\":18446744073709551616,\"skuId\":{sku},\"qty\":1}}"),
        format!("{{\"activityId\":{activity},\"skuId\":null,\"qty\":1}}"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = send(&format!("spelling-{number}"), body.clone()).await;
        assert_eq!(answer.verdict(), (400, "BAD_REQUEST"), "{body}: {}", answer.body);
        answer.assert_refusal(400, "BAD_REQUEST");
    }
    for (number, qty) in ["0", "-1", "1.0", "1.5", "1e0", "01", "\"1\"", "null", "true", "[1]", "10000", "2147483648", "9007199254740993"]
        .into_iter()
        .enumerate()
    {
        let body = format!("{{\"activityId\":{activity},\"skuId\":{sku},\"qty\":{qty}}}");
        send(&format!("qty-{number}"), body).await.assert_refusal(400, "BAD_REQUEST");
    }
    let strings = send("strings", format!("{{\"activityId\":\"{activity}\",\"skuId\":\"{sku}\",\"qty\":1,\"more\":{{}}}}")).await;
    assert_eq!(strings.verdict(), (202, "QUEUED"), "ids in strings, and fields nobody knows: {}", strings.body);
    send("unknown", format!("{{\"activityId\":{activity},\"skuId\":9,\"qty\":1}}")).await.assert_refusal(404, "UNKNOWN_ITEM");
    send("unknown-2", "{\"activityId\":999999,\"skuId\":1,\"qty\":1}".into()).await.assert_refusal(404, "UNKNOWN_ITEM");
    let many = send("many", format!("{{\"activityId\":{activity},\"skuId\":{sku},\"qty\":2}}")).await;
    many.assert_refusal(409, "LIMIT_EXCEEDED");
    send("large", format!("{{\"pad\":\"{}\"}}", "x".repeat(5_000))).await.assert_refusal(413, "TOO_LARGE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_sells_inside_its_window_only() {
    let dev = dev().await;
    let edge = Edge::new().unwrap();
    for (sku, starts_in_s, ends_in_s, code) in [(3002, 600, 1_200, "NOT_STARTED"), (3003, -600, -300, "ENDED")] {
        let lot = sale::open(&dev.admin, sku, Terms { starts_in_s, ends_in_s, ..Terms::open(5) }).await.unwrap();
        edge.buy(dev.edge, &tokens::user(&format!("window-{sku}")), lot, "k").await.unwrap().assert_refusal(409, code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_too_often_is_told_when_to_come_back() {
    let dev = dev().await;
    // One is left for whoever asks for one: so the node has to ask the store, and what is asked is charged.
    let lot = sale::open(&dev.admin, 3004, Terms { per_user: 2, ..Terms::open(2) }).await.unwrap();
    let edge = Edge::new().unwrap();
    let (winner, loser) = (tokens::user("quick"), tokens::user("slow"));
    assert_eq!(edge.buy(dev.edge, &winner, lot, "a").await.unwrap().status, 202);
    let ask = async |key: &str| edge.buy_units(dev.edge, &loser, lot, key, 2).await.unwrap();
    ask("a").await.assert_refusal(409, "SOLD_OUT");
    ask("a").await.assert_refusal(409, "SOLD_OUT");
    let another = ask("b").await;
    another.assert_refusal(429, "RISK_REFUSED");
    assert!(another.body["retryAfterMs"].as_u64().is_some_and(|ms| (1..=5_000).contains(&ms)), "{}", another.body);
    let holder = edge.buy(dev.edge, &winner, lot, "b").await.unwrap();
    assert_eq!((holder.status, &holder.body["replayed"]), (202, &Value::Bool(true)), "a holder who asks again makes no new attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_not_there_says_so() {
    let dev = dev().await;
    let edge = Edge::new().unwrap();
    let token = tokens::user("somebody");
    let ask = async |method: Method, path: &str| {
        Answer::of(edge.http.request(method, format!("http://{}{path}", dev.edge)).bearer_auth(&token)).await.unwrap()
    };
    for path in
        ["/nothing", "/api/nothing", "/api/seckill", "/api/seckill/result/", "/api/seckill/result/SK-no-number", "/ws", "/ws/chat/x"]
    {
        ask(Method::GET, path).await.assert_refusal(404, "NOT_FOUND");
    }
    for path in ["/api/seckill/result/SKABCDEFGHIJ234567", "/api/seckill/result/%F0%9F%98%80", "/api/seckill/result/SK1%00"] {
        let answer = ask(Method::GET, path).await;
        assert!(matches!(answer.verdict(), (404, "NOT_FOUND") | (400, "BAD_REQUEST")), "{path}: {} {}", answer.status, answer.body);
    }
    for (method, path, allow) in [
        (Method::GET, "/api/seckill/buy", "POST"),
        (Method::PUT, "/api/seckill/buy", "POST"),
        (Method::POST, "/api/seckill/result/SKABCDEFGHIJ234567", "GET, HEAD"),
        (Method::POST, "/ws/chat", "GET, HEAD"),
    ] {
        let answer = ask(method.clone(), path).await;
        answer.assert_refusal(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.headers.get("allow").and_then(|allow| allow.to_str().ok()), Some(allow), "{method} {path}");
    }
    ask(Method::GET, "/ws/chat").await.assert_refusal(426, "UPGRADE_REQUIRED");
    let agent = edge.buy(dev.edge, &tokens::agent("desk", 1), Lot { activity: 1, sku: 1 }, "k").await.unwrap();
    agent.assert_refusal(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_opens_no_chat() {
    let dev = dev().await;
    let edge = Edge::new().unwrap();
    let shake = async |fields: &[(&str, &str)]| {
        let mut request = edge.http.get(format!("http://{}/ws/chat", dev.edge)).bearer_auth(tokens::user("somebody"));
        for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")].iter().chain(fields) {
            request = request.header(*name, *value);
        }
        Answer::of(request).await.unwrap()
    };
    let version = ("sec-websocket-version", "13");
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    for origin in ["https://evil.example", "null", "https://shop.example.evil.example", "http://shop.example", "https://shop.example:444"] {
        shake(&[version, key, ("origin", origin)]).await.assert_refusal(403, "FORBIDDEN");
    }
    assert_eq!(shake(&[version, key, ("origin", "https://shop.example")]).await.status, 101);
    assert_eq!(shake(&[version, key]).await.status, 101, "a program without pages has no origin");
    let url = format!("http://{}/ws/chat", dev.edge);
    for origin in [None, Some("https://shop.example")] {
        let mut request = edge.http.get(&url).header("cookie", format!("token={}", tokens::user("somebody")));
        let fields = [("connection", "upgrade"), ("upgrade", "websocket"), version, key];
        for (name, value) in fields.into_iter().chain(origin.map(|origin| ("origin", origin))) {
            request = request.header(name, value);
        }
        Answer::of(request).await.unwrap().assert_refusal(401, "UNAUTHENTICATED");
    }
    shake(&[("sec-websocket-version", "8"), key]).await.assert_refusal(426, "UPGRADE_REQUIRED");
    shake(&[key]).await.assert_refusal(426, "UPGRADE_REQUIRED");
    for bad in ["", "short", "dGhlIHNhbXBsZSBub25jZSBpcyB0b28gbG9uZw=="] {
        shake(&[version, ("sec-websocket-key", bad)]).await.assert_refusal(400, "BAD_REQUEST");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_needs_the_token_and_sense() {
    let dev = dev().await;
    let edge = Edge::new().unwrap();
    let plain = async |token: Option<&str>, path: &str| {
        let mut request = edge.http.get(dev.admin.url(path));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        Answer::of(request).await.unwrap()
    };
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(plain(None, path).await.status, 200, "{path} needs no token");
    }
    for token in [None, Some(""), Some("wrong"), Some(tokens::user("root").as_str())] {
        for path in ["/admin/plugins", "/admin/activities/1"] {
            assert_eq!(plain(token, path).await.verdict(), (401, "UNAUTHENTICATED"), "{path} with {token:?}");
        }
    }
    let sku = json!({ "skuId": "1", "name": "x", "priceCents": 1, "stock": 1 });
    dev.admin.post("/admin/skus", &sku).await.unwrap();
    let activity = |field: &str, value: Value| {
        let mut body = json!({ "title": "x", "startAt": 1_000, "endAt": 2_000, "products": [{ "skuId": "1", "priceCents": 1, "stock": 1, "perUser": 1 }] });
        body[field] = value;
        body.to_string().into_bytes()
    };
    for (what, body) in [
        ("no JSON", b"{".to_vec()),
        ("no title", activity("title", json!("  "))),
        ("no order in time", activity("endAt", json!(1_000))),
        ("a time without offset", activity("startAt", json!("2026-06-01T10:00:00"))),
        ("no products", activity("products", json!([]))),
        ("no stock", activity("products", json!([{ "skuId": "1", "priceCents": 1, "stock": 0 }]))),
        ("a typing error", activity("titel", json!("x"))),
    ] {
        let answer = dev.admin.ask(Method::POST, "/admin/activities", body).await.unwrap();
        assert_eq!(answer.verdict(), (400, "BAD_REQUEST"), "{what}: {}", answer.body);
        assert!(answer.body["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}");
    }
    let unknown = activity("products", json!([{ "skuId": "9", "priceCents": 1, "stock": 1 }]));
    assert_eq!(dev.admin.ask(Method::POST, "/admin/activities", unknown).await.unwrap().status, 409);
    for path in ["/admin/activities/999999", "/admin/activities/x", "/admin/decisions/none", "/admin/nothing"] {
        assert_eq!(dev.admin.ask(Method::GET, path, Vec::new()).await.unwrap().verdict(), (404, "NOT_FOUND"), "{path}");
    }
}
