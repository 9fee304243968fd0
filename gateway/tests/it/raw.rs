//! Bytes to the edge and bytes back, past every HTTP library: what is sent is exactly what the test says.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Every exchange ends within this: by an answer, or by the end of the connection.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// More than any answer of the gateway itself.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How a raw exchange ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The statuses of all answers, in order.
    pub(crate) statuses: Vec<u16>,
    /// Whether the server ended the connection.
    pub(crate) closed: bool,
    /// Everything it said.
    pub(crate) text: String,
}

/// Sends `bytes` and reads until the server ends the connection; a server that keeps it open is left after it has been
/// silent for `patience` behind at least one answer.
pub(crate) async fn exchange(edge: SocketAddr, bytes: &[u8], patience: Duration) -> anyhow::Result<Ending> {
    let deadline = Instant::now() + ENDS_WITHIN;
    let mut stream = TcpStream::connect(edge).await?;
    // A server may answer and end the connection before it has read everything.
    let _ = timeout_at(deadline, stream.write_all(bytes)).await.context("the server does not read")?;
    let mut said = Vec::new();
    let closed = loop {
        let mut part = [0; 4096];
        let until = if said.is_empty() { deadline } else { deadline.min(Instant::now() + patience) };
        match timeout_at(until, stream.read(&mut part)).await {
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(read)) => said.extend_from_slice(&part[..read]),
            Err(_) if !said.is_empty() => break false,
            Err(_) => bail!("neither an answer nor an end within {ENDS_WITHIN:?}"),
        }
        if said.len() > ANSWER_BYTES_MAX {
            bail!("an answer without end");
        }
    };
    let text = String::from_utf8_lossy(&said).into_owned();
    let statuses = text.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()).collect();
    Ok(Ending { statuses, closed, text })
}
