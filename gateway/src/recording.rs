//! The recording: a sample of what policies were asked and what they answered, so that another version can be asked the
//! same with `sluice plugin replay`.
//!
//! What lives here: the sample, what is left out of a line, and the file. What never happens here: waiting for the disk on a
//! request's thread. Lines go through a bounded queue to one thread; what does not fit is dropped and counted.
//!
//! Secrets are not written. A bearer token, a cookie or an API key becomes a mark that stands for it, the same all through a
//! line and different in each process; what `identity.verify` says of a token is written next to its mark.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::Context;
use gateway_core::config::{Config, Recording};
use gateway_core::policy::{Call, Digest, Facts};
use gateway_core::ports::{Answer, Side};
use gateway_core::request::RequestHead;
use gateway_kit::replay::line::{self, Line, RequestText, ResponseText, TokenText};
use prometheus::IntCounter;

use crate::bearer;
use crate::node::Node;
use crate::telemetry::Metrics;

/// Lines waiting for the disk; at about 1 KB each, 1 MB.
const QUEUE_MAX: usize = 1_024;

/// Fields that hold secrets.
const SECRET_HEADERS: [&str; 6] = ["authorization", "cookie", "set-cookie", "proxy-authorization", "x-api-key", "x-auth-token"];
/// Parameters that hold secrets, besides `token`.
const SECRET_PARAMETERS: [&str; 8] = ["access_token", "id_token", "refresh_token", "jwt", "api_key", "apikey", "password", "secret"];

/// Fields kept whether or not the policy that was asked wants them: another version may.
const KEPT_HEADERS: [&str; 14] = [
    "accept",
    "accept-language",
    "authorization",
    "content-length",
    "content-type",
    "idempotency-key",
    "origin",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-websocket-protocol",
    "upgrade",
    "user-agent",
    "x-device-id",
    "x-requested-with",
];

/// Shortest secret that is looked for in the rest of a line; a shorter one would be found where it does not stand.
const SECRET_BYTES_MIN: usize = 8;

/// A running recording.
pub(crate) struct Recorder {
    permille: u64,
    plugins: BTreeMap<String, String>,
    /// Makes marks: whoever has the file cannot try tokens until one fits.
    salt: u128,
    lines: SyncSender<String>,
    dropped: IntCounter,
}

impl Recorder {
    /// Opens the file and starts its thread, if the configuration wants a recording.
    pub(crate) fn start(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Self>> {
        let Recording { file: Some(file), permille, bytes_max } = &config.recording else { return Ok(None) };
        let pages = Pages::open(file.clone(), *bytes_max).with_context(|| format!("recording.file: cannot write {}", file.display()))?;
        let (lines, queue) = sync_channel(QUEUE_MAX);
        let (kept, dropped) = (metrics.recorded.with_label_values(&["kept"]), metrics.recorded.with_label_values(&["dropped"]));
        let lost = dropped.clone();
        std::thread::Builder::new()
            .name("recording".into())
            .spawn(move || pages.write(&queue, &kept, &lost))
            .context("cannot start the recording's thread")?;
        let plugins = config.policies.iter().map(|policy| (policy.name.to_string(), policy.plugin.clone())).collect();
        Ok(Some(Self { permille: u64::from(*permille), plugins, salt: rand::random(), lines, dropped }))
    }

    /// Whether the request `trace_id` is in the sample, which is the same on every node.
    pub(crate) fn wants(&self, trace_id: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        trace_id.hash(&mut hasher);
        hasher.finish() % 1_000 < self.permille
    }

    /// Keeps one question and its answer. `wanted` are the fields the policy was shown.
    #[expect(clippy::too_many_arguments, reason = "a line has as many parts")]
    pub(crate) fn keep(&self, node: &Node, trace_id: &str, wanted: &[String], policy: &str, side: Side, call: Call<'_>, answer: &Answer) {
        let line = self.line(node, trace_id, wanted, policy, side, call, answer);
        if self.lines.try_send(line).is_err() {
            self.dropped.inc();
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a line has as many parts")]
    fn line(&self, node: &Node, trace_id: &str, wanted: &[String], policy: &str, side: Side, call: Call<'_>, answer: &Answer) -> String {
        let (head, facts, attempt, message, response) = match call {
            Call::Request(head, facts) => (Some(head), facts, None, None, None),
            Call::Attempt(head, facts, attempt) => (Some(head), facts, Some(attempt), None, None),
            Call::Message(facts, message) => (None, facts, None, Some(message), None),
            Call::Response(head, facts, response) => (Some(head), facts, None, None, Some(response)),
        };
        let mut marks = Marks { salt: self.salt, secrets: Vec::new() };
        let tokens = head.map(|head| marks.tokens(node, head, facts)).unwrap_or_default();
        let line = Line {
            trace_id: trace_id.to_owned(),
            phase: call.phase().as_str().to_owned(),
            policy: policy.to_owned(),
            plugin: self.plugins.get(policy).cloned().unwrap_or_default(),
            version: answer.version.to_string(),
            side: line::side(side).to_owned(),
            now: facts.now.0,
            request: head.map(|head| marks.request(head, wanted)),
            tokens,
            principal: facts.principal.as_ref().map(Into::into),
            device: facts.device.clone(),
            tags: facts.tags.clone(),
            attempt: attempt.map(Into::into),
            message: message.map(Into::into),
            response: response.map(|response| ResponseText { status: response.status, headers: marks.headers(&response.headers, wanted) }),
            verdict: (&answer.outcome).into(),
        };
        marks.seal(serde_json::to_string(&line).unwrap_or_default())
    }
}

/// What stands in one line for each secret.
struct Marks {
    salt: u128,
    secrets: Vec<(String, String)>,
}

impl Marks {
    fn mark(&mut self, secret: &str) -> String {
        if let Some((_, mark)) = self.secrets.iter().find(|(known, _)| known == secret) {
            return mark.clone();
        }
        let digest = Digest::of(&[&self.salt.to_be_bytes(), secret.as_bytes()].concat());
        let mark = format!("sealed-{}", digest.short());
        self.secrets.push((secret.to_owned(), mark.clone()));
        mark
    }

    /// What `identity.verify` says of every token of `head`, by mark. A token that is refused has another mark than one that is
    /// believed, so that one which expires during a recording stands for two things by two names.
    fn tokens(&mut self, node: &Node, head: &RequestHead, facts: &Facts) -> BTreeMap<String, TokenText> {
        let mut tokens = BTreeMap::new();
        for token in bearer::tokens(head) {
            let verified = node.verifier.verify(token, facts.now);
            let mut mark = self.mark(token);
            if let (Err(error), Some((_, last))) = (&verified, self.secrets.iter_mut().find(|(known, _)| known == token)) {
                if !last.ends_with(error.as_str()) {
                    last.push('.');
                    last.push_str(error.as_str());
                }
                mark.clone_from(last);
            }
            let stands_for = match verified {
                Ok(principal) => TokenText::Principal((&principal).into()),
                Err(error) => TokenText::Error(error.as_str().to_owned()),
            };
            tokens.insert(mark, stands_for);
        }
        tokens
    }

    fn request(&mut self, head: &RequestHead, wanted: &[String]) -> RequestText {
        let path = match head.path.strip_prefix(bearer::PATH) {
            Some(token) if !token.is_empty() => format!("{}{}", bearer::PATH, self.mark(token)),
            Some(_) | None => head.path.clone(),
        };
        RequestText {
            method: head.method.clone(),
            path,
            query: head.query.as_deref().map(|query| self.query(query)),
            host: head.host.clone(),
            client: head.client,
            route: head.route.to_string(),
            headers: self.headers(&head.headers, wanted),
        }
    }

    fn query(&mut self, query: &str) -> String {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_secret_parameter(name) => format!("{name}={}", self.mark(value)),
            Some(_) | None => pair.to_owned(),
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    fn headers(&mut self, headers: &[(String, String)], wanted: &[String]) -> Vec<(String, String)> {
        let kept = headers.iter().filter(|(name, _)| KEPT_HEADERS.contains(&name.as_str()) || wanted.contains(name));
        kept.map(|(name, value)| (name.clone(), self.header(name, value))).collect()
    }

    fn header(&mut self, name: &str, value: &str) -> String {
        if name == "sec-websocket-protocol" {
            let names = value.split(',').map(|name| match name.trim().strip_prefix(bearer::SUBPROTOCOL) {
                Some(token) => format!("{}{}", bearer::SUBPROTOCOL, self.mark(token)),
                None => name.trim().to_owned(),
            });
            return names.collect::<Vec<_>>().join(", ");
        }
        if !SECRET_HEADERS.contains(&name) {
            return value.to_owned();
        }
        match bearer::of_authorization(value).filter(|_| name == "authorization") {
            Some(token) => format!("Bearer {}", self.mark(token)),
            None => self.mark(value),
        }
    }

    /// Puts the marks wherever else a secret stands in `line`: in the key of an account, say, or in a field of another name.
    fn seal(&self, line: String) -> String {
        let long = self.secrets.iter().filter(|(secret, _)| secret.len() >= SECRET_BYTES_MIN);
        long.fold(line, |line, (secret, mark)| {
            let spelt = serde_json::to_string(secret).unwrap_or_default();
            line.replace(spelt.trim_matches('"'), mark)
        })
    }
}

fn is_secret_parameter(name: &str) -> bool {
    name == bearer::PARAMETER || SECRET_PARAMETERS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// The file and the one before it.
struct Pages {
    path: PathBuf,
    bytes_max: u64,
    file: BufWriter<File>,
    bytes: u64,
}

impl Pages {
    fn open(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        // Two processes would write into each other's lines, and one would move the file away under the other.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another process records into it; every node needs a file of its own"),
            TryLockError::Error(error) => error,
        })?;
        // One that was there before may have been made by somebody less careful.
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, bytes_max, file: BufWriter::new(file), bytes })
    }

    /// Writes until nobody records any more.
    fn write(mut self, queue: &Receiver<String>, kept: &IntCounter, lost: &IntCounter) {
        let mut failing = false;
        while let Ok(first) = queue.recv() {
            let mut next = Some(first);
            let mut wrote = Ok(());
            while let Some(line) = next {
                match self.append(&line) {
                    Ok(()) => kept.inc(),
                    Err(error) => {
                        lost.inc();
                        wrote = Err(error);
                    }
                }
                next = queue.try_recv().ok();
            }
            let outcome = wrote.and_then(|()| self.file.flush());
            match (&outcome, failing) {
                (Err(error), false) => {
                    tracing::error!(%error, file = %self.path.display(), "cannot record; lines are lost until this ends")
                }
                (Ok(()), true) => tracing::info!(file = %self.path.display(), "recording again"),
                (Err(_), true) | (Ok(()), false) => {}
            }
            failing = outcome.is_err();
        }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            self.turn()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")?;
        self.bytes += bytes;
        Ok(())
    }

    /// Begins a new file; the full one takes the place of the one before it.
    fn turn(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        fs::rename(&self.path, before)?;
        *self = Self::open(self.path.clone(), self.bytes_max)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const TOKEN: &str = "eyJhbGciOi.secret.secret";

    fn marks() -> Marks {
        Marks { salt: 7, secrets: Vec::new() }
    }

    fn head() -> RequestHead {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        RequestHead {
            method: "GET".into(),
            path: format!("/im/{TOKEN}"),
            query: Some(format!("a=b&token={TOKEN}&Access_Token=another-secret")),
            host: "shop.test".into(),
            headers: vec![
                field("authorization", &format!("Bearer {TOKEN}")),
                field("cookie", "sid=a-secret-cookie"),
                field("x-api-key", "a-secret-key"),
                field("x-wanted", &format!("see {TOKEN}")),
                field("x-not-wanted", "1"),
                field("sec-websocket-protocol", &format!("chat.v1.json,bearer.{TOKEN}")),
                field("user-agent", "curl"),
            ],
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: "t".into(),
            route: "r".into(),
        }
    }

    #[test]
    fn no_secret_is_written_and_one_mark_stands_for_it_everywhere() {
        let mut marks = marks();
        let request = marks.request(&head(), &["x-wanted", "cookie", "x-api-key"].map(String::from));
        let text = marks.seal(serde_json::to_string(&request).unwrap() + "charged to a-secret-key");
        for secret in [TOKEN, "another-secret", "a-secret-cookie", "a-secret-key", "x-not-wanted"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let mark = marks.mark(TOKEN);
        assert_eq!(request.path, format!("/im/{mark}"));
        let header = |name: &str| request.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(header("authorization"), Some(&*format!("Bearer {mark}")));
        assert_eq!(header("sec-websocket-protocol"), Some(&*format!("chat.v1.json, bearer.{mark}")));
        assert_eq!(header("user-agent"), Some("curl"));
        assert!(text.contains(&format!("see {mark}")), "{text}");
        assert!(text.ends_with(&format!("charged to {}", marks.mark("a-secret-key"))), "{text}");
    }

    #[test]
    fn a_full_file_makes_room_and_nobody_else_may_read_it() {
        let folder = std::env::temp_dir().join(format!("sluice-recording-{:x}", rand::random::<u64>()));
        fs::create_dir(&folder).unwrap();
        let file = folder.join("r.jsonl");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let (lines, queue) = sync_channel(8);
        for number in 1..=4 {
            lines.send(format!("line {number}")).unwrap();
        }
        drop(lines);
        let counter = |name: &str| IntCounter::new(name, "x").unwrap();
        let (kept, lost) = (counter("kept"), counter("lost"));
        // Room for two lines.
        let pages = Pages::open(file.clone(), 14).unwrap();
        assert!(Pages::open(file.clone(), 14).is_err(), "one process at a time");
        pages.write(&queue, &kept, &lost);
        assert_eq!(fs::read_to_string(&file).unwrap(), "line 3\nline 4\n");
        assert_eq!(fs::read_to_string(folder.join("r.jsonl.1")).unwrap(), "line 1\nline 2\n");
        assert_eq!((kept.get(), lost.get()), (4, 0));
        for name in ["r.jsonl", "r.jsonl.1"] {
            assert_eq!(fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
