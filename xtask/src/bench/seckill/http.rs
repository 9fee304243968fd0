//! An operator's call, with nothing but the standard library.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Longest call.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// `method path` at `server`; anything but 2xx is an error.
pub(super) fn ask(server: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> Result<Value> {
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
    serde_json::from_str(body).with_context(|| format!("the answer to {path} is no JSON"))
}
