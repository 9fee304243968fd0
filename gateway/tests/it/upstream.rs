//! Servers behind the gateway, small enough to say exactly what they do.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Longest request head an upstream of the tests accepts.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What an upstream does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Conduct {
    /// Answers 200 with this text.
    Answer(&'static str),
    /// Reads the request, body included, and ends the connection without an answer.
    Die,
    /// Answers 200 once the semaphore has a permit to take.
    Hold(Arc<Semaphore>),
    /// Sends a 101 and, in the same breath, these bytes; then echoes.
    Tunnel(&'static [u8]),
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    /// `METHOD target`.
    pub(crate) line: String,
    /// Header fields, names in lower case; those that came several times are joined by `, `.
    pub(crate) headers: BTreeMap<String, String>,
}

/// A running upstream; it stops accepting when this is dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Starts one.
    pub(crate) async fn start(conduct: Conduct) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let kept = arrived.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (conduct, kept) = (conduct.clone(), kept.clone());
                tokio::spawn(async move { serve(stream, conduct, &kept).await });
            }
        });
        Ok(Self { address, arrived, task })
    }

    /// Every request so far. Health checks send none: they only connect.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address at which nobody listens: it was free a moment ago.
pub(crate) async fn nobody() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

/// One connection; any failure ends it.
async fn serve(mut stream: TcpStream, conduct: Conduct, kept: &Mutex<Vec<Arrived>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let arrived = request(&mut stream, &mut buffer).await?;
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(arrived);
        match &conduct {
            Conduct::Answer(text) => answer(&mut stream, text).await?,
            Conduct::Die => return None,
            Conduct::Hold(gate) => {
                gate.acquire().await.ok()?.forget();
                answer(&mut stream, "held").await?;
            }
            Conduct::Tunnel(first) => {
                let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                stream.write_all(&[head, *first].concat()).await.ok()?;
                return echo(&mut stream, &buffer).await;
            }
        }
    }
}

async fn answer(stream: &mut TcpStream, text: &str) -> Option<()> {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    stream.write_all(answer.as_bytes()).await.ok()
}

async fn echo(stream: &mut TcpStream, early: &[u8]) -> Option<()> {
    stream.write_all(early).await.ok()?;
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part).await.ok()? {
            0 => return None,
            read => stream.write_all(&part[..read]).await.ok()?,
        }
    }
}

/// Reads one request with its body off `stream`; what lies behind it stays in `buffer`.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Arrived> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let mut lines = head.lines();
    let line = lines.next()?.rsplit_once(' ')?.0.to_owned();
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        headers.entry(name.to_lowercase()).and_modify(|all| *all = format!("{all}, {value}")).or_insert_with(|| value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    buffer.drain(..length);
    Some(Arrived { line, headers })
}
