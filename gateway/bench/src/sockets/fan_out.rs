//! What one message to many sockets costs: CPU of the server, divided by the frames that arrived.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::crowd::{Crowd, MARK, Seat, await_frame, open_session};
use super::{Options, Target};
use crate::Sign;
use crate::load::{Asked, Socket};

/// Messages before measuring.
const WARM_UP: u32 = 5;
/// Longest time one message may take to reach everybody.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// What was measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FanOut {
    sockets: u32,
    messages: u32,
    frames: u64,
    frame_bytes: u64,
    cpu_us_per_frame: f64,
    ms_per_message: f64,
}

/// One message after another, each when everybody has the one before.
pub(super) async fn measure(options: &Options, target: &Target, sign: Sign<'_>) -> anyhow::Result<FanOut> {
    let count = options.count as usize;
    let token = target.tokens(sign, "crowd", 1)?.pop().flatten();
    // All devices of one user.
    let seat = |number: usize| Seat { number, path: target.path(&format!("?device=d{number}")), token: token.clone(), opens: false };
    let crowd = Crowd::open(target, (0..count).map(seat).collect()).await?;
    let mut sender = Sender::open(target, &seat(count), options.bytes as usize).await?;
    let mut sent = 0;
    let mut send = async |messages: u32| {
        for _ in 0..messages {
            sent += 1;
            ensure!(sender.send(sent).await, "the sender was cut off");
            crowd.hears(u64::from(sent) * count as u64, Instant::now() + ARRIVES_WITHIN).await?;
        }
        Ok(())
    };
    send(WARM_UP).await?;
    let (before, heard, started) = (target.cpu(), crowd.heard(), Instant::now());
    send(options.messages).await?;
    let (cpu, frames, took) = (target.cpu().saturating_sub(before), crowd.heard() - heard, started.elapsed());
    crowd.check()?;
    #[expect(clippy::cast_precision_loss, reason = "frames of one run are few")]
    let cpu_us_per_frame = cpu.as_secs_f64() * 1e6 / frames.max(1) as f64;
    Ok(FanOut {
        sockets: options.count,
        messages: options.messages,
        frames,
        frame_bytes: crowd.frame_bytes(),
        cpu_us_per_frame,
        ms_per_message: took.as_secs_f64() * 1e3 / f64::from(options.messages),
    })
}

/// One more device, which writes.
struct Sender {
    socket: Socket,
    /// On a peer there is none, and what is sent is what arrives: as many bytes as are asked for.
    session: Option<String>,
    bytes: usize,
}

impl Sender {
    async fn open(target: &Target, seat: &Seat, bytes: usize) -> anyhow::Result<Self> {
        let asked = Asked { server: target.server(), path: &seat.path, token: seat.token.as_deref(), number: seat.number };
        let mut socket = Socket::open(asked).await.map_err(|refusal| anyhow::anyhow!("the sender was refused: {refusal:?}"))?;
        let mut session = None;
        if seat.token.is_some() {
            await_frame(&mut socket, "hello").await.context("the sender is not greeted")?;
            session = Some(open_session(&mut socket).await.context("the sender gets no session")?);
        }
        Ok(Self { socket, session, bytes })
    }

    async fn send(&mut self, number: u32) -> bool {
        let Some(session) = &self.session else {
            let text = format!("{MARK} {number} ");
            return self.socket.send(format!("{text}{}", "-".repeat(self.bytes.saturating_sub(text.len())))).await;
        };
        let content = format!("{MARK} {number}: 您的包裹已经发出,请注意查收。");
        let frame = json!({ "type": "text", "sessionId": session, "content": content, "clientMsgId": format!("m-{number}") });
        self.socket.send(frame.to_string()).await && await_frame(&mut self.socket, "accepted").await.is_some()
    }
}
