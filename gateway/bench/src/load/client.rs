//! An HTTP/1.1 client that costs little: bytes prepared once, connections kept alive, answers with a length.
//!
//! What never happens here: asking again. Whoever asked knows whether that is allowed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Header fields of an answer; ours have about ten.
const FIELDS_MAX: usize = 64;
/// Longest answer, head and body. An activity of a thousand products is shorter.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// An answer to a purchase fits in one read.
const READ_BYTES: usize = 4 << 10;

/// A request, ready to be written. It can be asked again without being built again.
#[derive(Debug, Clone)]
pub struct Request(Vec<u8>);

impl Request {
    /// With a body when it is not empty. Header values are the caller's and hold no line breaks.
    #[must_use]
    pub fn new(method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Self {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: sluice\r\n");
        for (name, value) in fields {
            text.extend([name, ": ", value, "\r\n"]);
        }
        if !body.is_empty() {
            text.push_str("content-type: application/json\r\n");
        }
        if method != "GET" {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(body);
        Self(text.into_bytes())
    }
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body; null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// The `code` of the body; empty when there is none.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

/// Keeps connections to any number of servers, and bounds how many are in use at once.
#[derive(Debug)]
pub struct Client {
    turns: Semaphore,
    idle: Mutex<HashMap<SocketAddr, Vec<Connection>>>,
    within: Duration,
}

impl Client {
    /// At most `connections` at once, each answer within `within`. A request waits for its turn as long as it takes; its
    /// latency includes that.
    #[must_use]
    pub fn new(connections: usize, within: Duration) -> Self {
        Self { turns: Semaphore::new(connections), idle: Mutex::default(), within }
    }

    /// One answer, or why there was none: it may or may not have been carried out then.
    pub async fn ask(&self, server: SocketAddr, request: &Request) -> io::Result<Answer> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let kept = self.idle().get_mut(&server).and_then(Vec::pop);
        let asking = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => Connection::open(server).await?,
            };
            let answer = connection.ask(request).await?;
            io::Result::Ok((connection, answer))
        };
        match timeout(self.within, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok((connection, (answer, keep))) => {
                if keep {
                    self.idle().entry(server).or_default().push(connection);
                }
                Ok(answer)
            }
            Err(error) => {
                // The others to a server that went away are as dead as this one.
                self.idle().remove(&server);
                Err(error)
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    async fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(READ_BYTES) })
    }

    /// The answer, and whether the connection may be used again.
    async fn ask(&mut self, request: &Request) -> io::Result<(Answer, bool)> {
        self.stream.write_all(&request.0).await?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = Head::parse(&self.read)? {
                let end = head.bytes + head.body_bytes;
                if end > ANSWER_BYTES_MAX {
                    return Err(malformed("an answer is too long"));
                }
                while self.read.len() < end {
                    if self.stream.read_buf(&mut self.read).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                let body = serde_json::from_slice(&self.read[head.bytes..end]).unwrap_or(Value::Null);
                return Ok((Answer { status: head.status, body }, head.keep && self.read.len() == end));
            }
            if self.read.len() > ANSWER_BYTES_MAX {
                return Err(malformed("the head of an answer is too long"));
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
    keep: bool,
}

impl Head {
    /// `None` while it is not complete.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(length) = response.parse(bytes).map_err(io::Error::other)? else { return Ok(None) };
        let field = |name: &str| {
            let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(field.value).ok()
        };
        let body_bytes = field("content-length").and_then(|text| text.parse().ok());
        Ok(Some(Self {
            status: response.code.unwrap_or_default(),
            bytes: length,
            body_bytes: body_bytes.ok_or_else(|| malformed("an answer has no content-length"))?,
            keep: field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")),
        }))
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        assert_eq!(Head::parse(&whole[..40]).unwrap(), None);
        let head = Head { status: 202, bytes: whole.len() - 2, body_bytes: 2, keep: false };
        assert_eq!(Head::parse(whole).unwrap(), Some(head));
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "without a length the end cannot be told");
    }

    #[test]
    fn a_request_is_what_goes_over_the_wire() {
        let get = Request::new("GET", "/x", &[("a", "b")], "");
        assert_eq!(get.0, b"GET /x HTTP/1.1\r\nhost: sluice\r\na: b\r\n\r\n");
        let post = Request::new("POST", "/x", &[], "{}");
        assert_eq!(post.0, b"POST /x HTTP/1.1\r\nhost: sluice\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    }

    /// Answers each request on a connection with its number; after `per_connection` the connection ends.
    async fn server(per_connection: usize) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    for number in 1..=per_connection {
                        let mut byte = [0; 512];
                        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                            return;
                        }
                        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{number}", number.to_string().len());
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let (server, client) = (server(9).await, Client::new(4, Duration::from_secs(20)));
        for number in 1..=3 {
            let answer = client.ask(server, &Request::new("GET", "/", &[], "")).await.unwrap();
            assert_eq!((answer.status, answer.body), (200, Value::from(number)));
        }
    }

    #[tokio::test]
    async fn a_cut_connection_is_an_error_and_the_next_request_opens_another() {
        let (server, client) = (server(1).await, Client::new(4, Duration::from_secs(20)));
        let request = Request::new("GET", "/", &[], "");
        assert_eq!(client.ask(server, &request).await.unwrap().body, Value::from(1));
        client.ask(server, &request).await.unwrap_err();
        assert_eq!(client.ask(server, &request).await.unwrap().body, Value::from(1));
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = Client::new(1, Duration::from_millis(20));
        let error = client.ask(listener.local_addr().unwrap(), &Request::new("GET", "/", &[], "")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
