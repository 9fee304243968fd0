//! A shop with its agents and users, on a deployment whose patience with silent agents is short. Every test has a shop of its
//! own, so that no agent is given the sessions of another test.

use anyhow::Context;
use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::cluster::{Shared, reception};
use crate::tokens;

/// A shop.
#[derive(Debug)]
pub(crate) struct Shop {
    /// The deployment.
    pub(crate) cluster: Shared,
    number: u64,
}

impl Shop {
    /// A shop of the shared deployment.
    pub(crate) async fn open(number: u64) -> anyhow::Result<Self> {
        Ok(Self { cluster: reception().await?, number })
    }

    /// An agent at its desk, on a connection to node `node`, and the sessions it was greeted with.
    pub(crate) async fn greeted(&self, agent: &str, node: usize) -> anyhow::Result<(ChatSocket, Vec<String>)> {
        let mut socket = ChatSocket::connect(self.cluster.edge(node), &tokens::agent(agent, self.number), "").await?;
        let hello = socket.expect("hello").await?;
        let sessions = hello["sessions"].as_array().context("sessions")?;
        Ok((socket, sessions.iter().filter_map(|session| session["sessionId"].as_str().map(str::to_owned)).collect()))
    }

    /// The same for who expects no sessions.
    pub(crate) async fn agent(&self, agent: &str, node: usize) -> anyhow::Result<ChatSocket> {
        Ok(self.greeted(agent, node).await?.0)
    }

    /// A user with a session of this shop, on a connection to node 0.
    pub(crate) async fn user(&self, name: &str) -> anyhow::Result<(ChatSocket, String)> {
        let mut socket = ChatSocket::connect(self.cluster.edge(0), &tokens::user(&format!("{name}-{}", self.number)), "").await?;
        socket.expect("hello").await?;
        let session = self.ask_for_help(&mut socket).await?;
        Ok((socket, session))
    }

    /// Opens a session, or finds the open one.
    pub(crate) async fn ask_for_help(&self, user: &mut ChatSocket) -> anyhow::Result<String> {
        let opened = user.ask(json!({ "type": "open", "subject": "help", "shopId": self.number.to_string() })).await?;
        opened["sessionId"].as_str().map(str::to_owned).with_context(|| opened.to_string())
    }

    /// How a session changed hands: from, to and reason of each time, and the words of the last one.
    pub(crate) async fn handovers(&self, session: &str) -> anyhow::Result<(Vec<[String; 3]>, String)> {
        let answer = self.cluster.admin(0).get(&format!("/admin/sessions/{session}/handovers")).await?;
        let handovers = answer["handovers"].as_array().context("handovers")?;
        let word = |handover: &Value, field: &str| handover[field].as_str().unwrap_or("-").to_owned();
        let detail = handovers.last().map(|last| word(last, "detail")).unwrap_or_default();
        Ok((handovers.iter().map(|handover| ["from", "to", "reason"].map(|field| word(handover, field))).collect(), detail))
    }

    /// What an operator is told of the shop.
    pub(crate) async fn agents(&self) -> anyhow::Result<Value> {
        self.cluster.admin(1).get(&format!("/admin/shops/{}/agents", self.number)).await
    }
}

/// Waits until an agent, or the user, is told who serves `session` now, and why.
pub(crate) async fn assigned(socket: &mut ChatSocket, session: &str, agent: &str) -> anyhow::Result<String> {
    let fits = |frame: &Value| frame["type"] == "assigned" && frame["sessionId"] == session && frame["agentId"] == agent;
    let frame = socket.expect_where(&format!("{session} is assigned to {agent}"), fits).await?;
    frame["reason"].as_str().map(str::to_owned).with_context(|| frame.to_string())
}

/// Sends messages `from..to`, each after the one before was accepted.
pub(crate) async fn say(socket: &mut ChatSocket, session: &str, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
    for number in numbers {
        let key = format!("m{number}");
        socket.send(json!({ "type": "text", "sessionId": session, "content": key, "clientMsgId": key })).await?;
        socket.expect_where("accepted", |frame| frame["type"] == "accepted" && frame["clientMsgId"] == key).await?;
    }
    Ok(())
}

/// An agent says how it is, and has been heard. What it is given because of that is passed over.
pub(crate) async fn is(agent: &mut ChatSocket, state: &str, limit: Option<u32>) -> anyhow::Result<()> {
    let mut frame = json!({ "type": "status", "state": state });
    if let Some(limit) = limit {
        frame["limit"] = json!(limit);
    }
    let answer = agent.ask(frame).await?;
    anyhow::ensure!(answer["type"] == "status" && answer["state"] == state, "{answer}");
    Ok(())
}

/// An agent says that it takes sessions, and has yet to hear which.
pub(crate) async fn takes_sessions(agent: &mut ChatSocket) -> anyhow::Result<()> {
    agent.send(json!({ "type": "status", "state": "online" })).await
}
