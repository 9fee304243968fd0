//! One command to a Redis and its answer as text: enough to set servers up and to look at them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

/// A healthy server on this machine answers within milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks without a password. Elements of a list are joined by spaces.
pub(super) fn ask(port: u16, words: &[&str]) -> anyhow::Result<String> {
    ask_all(port, &[words])
}

/// Asks with the default user's password.
pub(super) fn ask_with(port: u16, password: &str, words: &[&str]) -> anyhow::Result<String> {
    ask_all(port, &[&["AUTH", password], words])
}

/// The answer to the last of `commands`, when all of them succeed.
fn ask_all(port: u16, commands: &[&[&str]]) -> anyhow::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut stream = BufReader::new(stream);
    let mut last = String::new();
    for words in commands {
        let mut command = format!("*{}\r\n", words.len());
        for word in *words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.get_mut().write_all(command.as_bytes())?;
        last = answer(&mut stream).with_context(|| format!("{} at {address}", words.first().copied().unwrap_or_default()))?;
    }
    Ok(last)
}

fn answer(stream: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.trim_end();
    let Some(kind) = line.chars().next() else { return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) };
    let rest = &line[kind.len_utf8()..];
    match kind {
        '+' | ':' => Ok(rest.to_owned()),
        '$' => {
            let Ok(length) = rest.parse::<u64>() else { return Ok(String::new()) };
            let mut text = String::new();
            stream.take(length + 2).read_to_string(&mut text)?;
            Ok(text.trim_end_matches("\r\n").to_owned())
        }
        '*' => {
            let count = rest.parse::<i64>().context("a length")?;
            Ok((0..count).map(|_| answer(stream)).collect::<anyhow::Result<Vec<_>>>()?.join(" "))
        }
        _ => bail!("answered {line}"),
    }
}
