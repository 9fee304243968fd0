//! A user and an agent who write to each other, each with a client that follows the rules.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use crate::chat_client::{ChatClient, Profile};
use crate::ledger::{Ledger, StoredMessage};
use crate::tokens;
use crate::wait::RECOVERED;

/// Where a client connects, by the number of attempts so far.
pub(crate) type Address = Box<dyn Fn(usize) -> SocketAddr + Send + Sync>;

/// Both sides of one session.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The user, who opened it.
    pub(crate) user: ChatClient,
    /// The agent, who was given it.
    pub(crate) agent: ChatClient,
    session: String,
    /// Messages that each side has written.
    each: usize,
}

impl Conversation {
    /// Starts one. Connections are cut after a number of frames drawn from `cuts`.
    pub(crate) async fn start(user_at: Address, agent_at: Address, cuts: Option<Range<u32>>, seed: u64) -> anyhow::Result<Self> {
        let agent = ChatClient::start(Profile {
            id: "desk".into(),
            token: tokens::agent("desk", 1),
            address: agent_at,
            opens: None,
            cuts: cuts.clone(),
            seed,
        });
        agent.greeted().await?;
        let user = ChatClient::start(Profile {
            id: "asker".into(),
            token: tokens::user("asker"),
            address: user_at,
            opens: Some("where is my order".into()),
            cuts,
            seed: seed ^ 1,
        });
        let session = user.session().await?;
        assert_eq!(agent.session().await?, session, "the agent is given the session");
        Ok(Self { user, agent, session, each: 0 })
    }

    /// The session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Both write `count` more messages.
    pub(crate) fn write(&mut self, count: usize) {
        for client in [&self.user, &self.agent] {
            client.write(self.each, self.each + count);
        }
        self.each += count;
    }

    /// Waits until both show everything written, and know that it is stored.
    pub(crate) async fn caught_up(&self, within: Duration) -> anyhow::Result<()> {
        for client in [&self.user, &self.agent] {
            client.shows(2 * self.each, within).await?;
            client.sent_all(RECOVERED).await?;
        }
        Ok(())
    }

    /// Checks that both sides show what the ledger holds: every message of both, numbered without a gap, each side's in the
    /// order in which it was written.
    pub(crate) async fn assert_alike(&self, ledger: &Ledger) -> anyhow::Result<()> {
        let stored = ledger.messages(&self.session).await?;
        let numbers: Vec<u64> = stored.iter().map(|message| message.seq).collect();
        assert_eq!(numbers, (1..=2 * self.each as u64).collect::<Vec<_>>(), "the ledger numbers every message once");
        for client in [&self.user, &self.agent] {
            assert_eq!(client.shown(), stored, "{} shows what is stored", client.id());
            let own: Vec<String> = stored.iter().filter(|message| message.sender == client.id()).map(content).collect();
            let written: Vec<String> = (0..self.each).map(|number| client.content(number)).collect();
            assert_eq!(own, written, "the messages of {} are stored in the order in which they were written", client.id());
        }
        Ok(())
    }
}

fn content(message: &StoredMessage) -> String {
    message.content.clone()
}

/// Where the random numbers of a run start: `SLUICE_TEST_SEED` repeats one.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("SLUICE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("SLUICE_TEST_SEED={seed}");
    seed
}
