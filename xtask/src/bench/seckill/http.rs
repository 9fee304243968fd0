//! An operator's call, with nothing but the standard library.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Longest call.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// `method path` at `server`, as JSON.
pub(super) fn ask(server: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> Result<Value> {
    let text = exchange(server, token, method, path, body)?;
    serde_json::from_str(&text).with_context(|| format!("the answer to {path} is no JSON"))
}

/// The metric `name`, of which there is one, at the admin listener `server`.
pub(super) fn metric(server: SocketAddr, name: &str) -> Result<f64> {
    let text = exchange(server, "", "GET", "/metrics", "")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    value.with_context(|| format!("{server} has no metric {name}"))
}

/// The body of an answer; anything but 2xx is an error.
fn exchange(server: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_WITHIN).with_context(|| format!("reach {server}"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).context("set a deadline")?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).with_context(|| format!("ask {path}"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("read the answer to {path}"))?;
    ensure!(answer.starts_with("HTTP/1.1 2"), "{method} {path} was answered with {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    Ok(body.to_owned())
}
