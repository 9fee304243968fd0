//! The edge: pingora's phases, each a few lines that delegate.
//!
//! What lives here: `impl ProxyHttp`, and the order of steps of a request. What never happens here: choosing a status
//! code (`respond`), a rule (core), or a call to a service (routes, through ports).

mod convert;
pub(crate) mod echo;
mod guard;
mod handshake;
pub(crate) mod listener;
mod respond;
mod streaming;
mod takeover;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::id::PrincipalId;
use gateway_core::policy::chain::ChainState;
use gateway_core::policy::{Attempt, Facts};
use gateway_core::ports::PolicySet;
use gateway_core::principal::Role;
use gateway_core::request::RequestHead;
use gateway_core::route::Router;
use gateway_core::sale::purchase::Purchase;
use gateway_core::trace::Trace;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorSource, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};
use rand::Rng;
use tokio::sync::mpsc;

use crate::clock;
use crate::decisions::{RequestRecord, Verdicts};
use crate::edge::guard::{Course, Guard};
use crate::edge::listener::HeadArrived;
use crate::fallback;
use crate::health;
use crate::node::Node;
use crate::routes::chat::Question;
use crate::routes::outcome::{Failure, Outcome};
use crate::routes::proxy::Upstreams;
use crate::routes::{Target, demo, seckill};

/// The edge of one node.
pub(crate) struct Edge {
    node: Arc<Node>,
    router: Router,
    upstreams: Arc<Upstreams>,
}

/// What the edge knows of one request.
pub(crate) struct Exchange {
    started: Instant,
    trace: Trace,
    trace_id: String,
    target: Target,
    head: Option<RequestHead>,
    chain: Course,
    policies: Arc<dyn PolicySet>,
    /// Why the upstream's response is not passed on.
    withheld: Option<Failure>,
    arrived: Option<HeadArrived>,
    attempts: usize,
    body_bytes: u64,
    upstream_started: Option<Instant>,
    answered: u16,
}

/// How request_filter goes on.
enum Next {
    Answer(Outcome),
    Stream(mpsc::Receiver<Bytes>),
    Upstream,
    TakenOver,
}

impl Edge {
    /// An edge over `node`.
    pub(crate) fn new(node: Arc<Node>, router: Router, upstreams: Arc<Upstreams>) -> Self {
        Self { node, router, upstreams }
    }

    async fn decide(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Next, Failure> {
        let node = &*self.node;
        let mut head = convert::request_head(session, &node.config.edge, &exchange.trace_id)?;
        exchange.target = Target::find(&self.router, node.demo.get().is_some(), &head.host, &head.method, &head.path);
        head.route = Arc::from(exchange.target.label());
        exchange.chain.state.facts.device = head.header("x-device-id").map(str::to_owned);
        let head = exchange.head.insert(head);
        let mut guard = Guard::new(node, &*exchange.policies, &mut exchange.chain, head);
        guard.request().await?;
        match exchange.target.clone() {
            Target::Buy => {
                let body = match convert::body(session, &node.config.edge).await {
                    Ok(body) => body,
                    Err(failure) => return Err(guard.charged(failure).await),
                };
                let purchase = match Purchase::parse(&body) {
                    Ok(purchase) => purchase,
                    Err(problem) => return Err(guard.charged(Failure::BadRequest(problem.to_string())).await),
                };
                let user = match guard.user() {
                    Ok(user) => user,
                    Err(failure) => return Err(guard.charged(failure).await),
                };
                // Nobody is charged for hearing what this node knows by itself.
                if let Some(failure) = seckill::refused_here(node, &user, &purchase) {
                    return Err(failure);
                }
                let attempt = Attempt {
                    activity: purchase.activity,
                    sku: purchase.sku,
                    qty: purchase.qty,
                    idempotency_key: head.header("idempotency-key").map(str::to_owned),
                };
                if let Err(failure) = guard.attempt(&attempt).await {
                    return match seckill::held(node, &user, &purchase).await {
                        Some(outcome) => Ok(Next::Answer(outcome)),
                        None => Err(failure),
                    };
                }
                Ok(Next::Answer(seckill::buy(node, &user, &purchase).await?))
            }
            Target::Result(order_no) => {
                guard.charge().await?;
                let user = guard.user()?;
                Ok(Next::Answer(seckill::result(node, &user, &order_no).await?))
            }
            Target::Cancel(order_no) => {
                guard.charge().await?;
                let user = guard.user()?;
                Ok(Next::Answer(seckill::cancel(node, &user, &order_no).await?))
            }
            Target::ChatSocket => {
                guard.charge().await?;
                takeover::chat(&self.node, session, head, &mut guard, &exchange.policies).await?;
                Ok(Next::TakenOver)
            }
            Target::Chat(question) => {
                let body = match question {
                    Question::Open | Question::Send | Question::Read | Question::Frame => {
                        match convert::body(session, &node.config.edge).await {
                            Ok(body) => body,
                            Err(failure) => return Err(guard.charged(failure).await),
                        }
                    }
                    Question::Sessions | Question::Messages | Question::Waiting | Question::Agents | Question::Events => Bytes::new(),
                };
                guard.charge().await?;
                let caller = fallback::Caller { node: &self.node, head, principal: guard.principal()?, policies: &exchange.policies };
                match question {
                    Question::Events => Ok(Next::Stream(fallback::events::open(caller).await?)),
                    Question::Sessions
                    | Question::Messages
                    | Question::Waiting
                    | Question::Agents
                    | Question::Open
                    | Question::Send
                    | Question::Read
                    | Question::Frame => Ok(Next::Answer(fallback::answer(caller, question, &body).await?)),
                }
            }
            Target::Demo(path) => {
                guard.charge().await?;
                Ok(Next::Answer(demo::answer(node, head, &path).await?))
            }
            Target::Upstream { .. } => {
                guard.charge().await?;
                Ok(Next::Upstream)
            }
            Target::WrongMethod(allow) => Err(guard.charged(Failure::MethodNotAllowed(allow)).await),
            Target::Nothing => Err(guard.charged(Failure::NotFound).await),
        }
    }

    /// Answers with what the request came to, unless the response phase has something against it.
    async fn answer(&self, session: &mut Session, exchange: &mut Exchange, came_to: &Result<Outcome, Failure>) -> pingora_core::Result<()> {
        let mut reply = respond::reply(came_to, &exchange.trace_id);
        let mut head = convert::response_head(&reply, &exchange.trace_id)?;
        if let Some(request) = &exchange.head {
            let mut guard = Guard::new(&self.node, &*exchange.policies, &mut exchange.chain, request);
            if guard.judges_responses() {
                match guard.response(&convert::judged(&head)).await {
                    Ok(edits) => convert::edit(&mut head, edits)?,
                    // Who refused first has the word.
                    Err(_) if matches!(came_to, Err(Failure::Refused(_))) => {}
                    Err(refused) => {
                        reply = respond::reply(&Err(refused), &exchange.trace_id);
                        head = convert::response_head(&reply, &exchange.trace_id)?;
                    }
                }
            }
        }
        // A body that was not read would be taken for the next request; ending the connection is cheaper than reading it.
        let unread = !session.as_downstream_mut().is_body_done();
        if unread || self.node.drain.started() {
            session.set_keepalive(None);
        }
        exchange.answered = reply.status;
        let no_body = reply.body.is_empty() || session.req_header().method == http::Method::HEAD;
        session.write_response_header(head, no_body).await?;
        if !no_body {
            session.write_response_body(Some(reply.body), true).await?;
        }
        if unread {
            convert::linger(session).await;
        }
        Ok(())
    }

    /// Answers with a stream, unless the response phase has something against it.
    async fn stream(&self, session: &mut Session, exchange: &mut Exchange, parts: mpsc::Receiver<Bytes>) -> pingora_core::Result<()> {
        let mut head = streaming::head(session, &exchange.trace_id)?;
        if let Some(request) = &exchange.head {
            let mut guard = Guard::new(&self.node, &*exchange.policies, &mut exchange.chain, request);
            if guard.judges_responses() {
                match guard.response(&convert::judged(&head)).await {
                    Ok(edits) => convert::edit(&mut head, edits)?,
                    Err(refused) => {
                        drop(parts);
                        return self.answer(session, exchange, &Err(refused)).await;
                    }
                }
            }
        }
        exchange.answered = 200;
        session.set_keepalive(None);
        session.write_response_header(head, false).await?;
        streaming::relay(session, parts).await
    }

    fn log(&self, session: &Session, exchange: &mut Exchange, error: Option<&Error>) {
        let status = if exchange.answered != 0 { exchange.answered } else { session.response_written().map_or(0, |r| r.status.as_u16()) };
        let seconds = exchange.started.elapsed().as_secs_f64();
        let route = exchange.target.label();
        let metrics = &self.node.metrics;
        metrics.http_requests.with_label_values(&[route, &status.to_string()]).inc();
        metrics.http_request_seconds.with_label_values(&[route]).observe(seconds);
        let (method, path, client) = match &exchange.head {
            Some(head) => (head.method.as_str(), head.path.as_str(), head.client.to_string()),
            // A head that was refused is not repeated in the log: it may be anything.
            None => (session.req_header().method.as_str(), "-", "-".into()),
        };
        let principal = exchange.chain.state.facts.principal.as_ref().map_or("-", |principal| principal.id.as_str());
        // A token may stand in the path of an old chat client; the log gets the route instead.
        let path = if path.starts_with("/im/") { "/im/{token}" } else { path };
        tracing::info!(
            target: "access",
            trace_id = exchange.trace_id, method, path, status, client, principal, route,
            ms = seconds * 1_000.0, error = error.map(tracing::field::display),
        );
        metrics.count(&exchange.chain.state.decisions);
        if let Some(head) = &exchange.head {
            let verdicts = Verdicts::take(&mut exchange.chain.state, std::mem::take(&mut exchange.chain.budgets));
            let record =
                RequestRecord { route: Arc::clone(&head.route), method: method.to_owned(), path: path.to_owned(), status, verdicts };
            self.node.decisions.keep(&exchange.trace_id, record);
        }
    }
}

#[async_trait]
impl ProxyHttp for Edge {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange {
            started: Instant::now(),
            trace: Trace::begin(None, [0; 24]),
            trace_id: String::new(),
            target: Target::Nothing,
            head: None,
            chain: Course::new(Facts { now: clock::now(), principal: None, device: None, tags: Vec::new() }),
            policies: self.node.policies.current(),
            withheld: None,
            arrived: None,
            attempts: 0,
            body_bytes: 0,
            upstream_started: None,
            answered: 0,
        }
    }

    fn on_connection_reuse(&self, _session: &mut Session, exchange: &mut Exchange, carried: Box<dyn std::any::Any + Send + Sync>) {
        exchange.arrived = carried.downcast::<HeadArrived>().ok().map(|arrived| *arrived);
    }

    fn persist_connection_context(&self, _session: &Session, exchange: &Exchange) -> Option<Box<dyn std::any::Any + Send + Sync>> {
        exchange.arrived.clone().map(|arrived| Box::new(arrived) as Box<_>)
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> pingora_core::Result<bool> {
        if let Some(arrived) = &exchange.arrived {
            arrived.set();
        }
        exchange.started = Instant::now();
        // A tunnel may be silent for longer than a body.
        if !session.is_upgrade_req() {
            session.as_downstream_mut().set_read_timeout(Some(self.node.config.edge.body_timeout));
        }
        exchange.trace = convert::trace(session, rand::rng().random());
        exchange.trace_id = exchange.trace.id();
        let came_to = match self.decide(session, exchange).await {
            Ok(Next::Upstream) => return Ok(false),
            Ok(Next::TakenOver) => {
                exchange.answered = 101;
                return Ok(true);
            }
            Ok(Next::Stream(parts)) => {
                self.stream(session, exchange, parts).await?;
                return Ok(true);
            }
            Ok(Next::Answer(outcome)) => Ok(outcome),
            Err(failure) => {
                if let Failure::Unavailable(error) = &failure {
                    self.node.metrics.store_errors.with_label_values(&[error.store.as_str()]).inc();
                    tracing::warn!(trace_id = exchange.trace_id, error = health::chain(error), "a service is away");
                }
                Err(failure)
            }
        };
        self.answer(session, exchange, &came_to).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, exchange: &mut Exchange) -> pingora_core::Result<Box<HttpPeer>> {
        let Target::Upstream { group, .. } = &exchange.target else {
            return Error::e_explain(ErrorType::InternalError, "only routes have an upstream");
        };
        exchange.attempts += 1;
        exchange.upstream_started = Some(Instant::now());
        self.upstreams.peer(group)
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> pingora_core::Result<()> {
        let Some(head) = &exchange.head else {
            return Error::e_explain(ErrorType::InternalError, "a proxied request has a head");
        };
        let encrypted = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        Upstreams::rewrite(upstream, head, &exchange.chain.state, &exchange.trace, encrypted)
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        exchange: &mut Exchange,
    ) -> pingora_core::Result<()> {
        // What passes through an upgraded connection is no body, and a socket may live for days.
        if session.was_upgraded() {
            return Ok(());
        }
        exchange.body_bytes += body.as_ref().map_or(0, |part| part.len() as u64);
        if exchange.body_bytes > self.node.config.edge.body_bytes_max {
            return Error::e_explain(ErrorType::HTTPStatus(413), "the body is larger than edge.body_bytes_max");
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> pingora_core::Result<()> {
        if let (Target::Upstream { group, .. }, Some(started)) = (&exchange.target, exchange.upstream_started) {
            self.node.metrics.upstream_seconds.with_label_values(&[group]).observe(started.elapsed().as_secs_f64());
        }
        // Any number of informational responses may come before the one that counts; a 101 is one that counts.
        let counts = !response.status.is_informational() || response.status == http::StatusCode::SWITCHING_PROTOCOLS;
        if let (Some(request), true) = (&exchange.head, counts) {
            let mut guard = Guard::new(&self.node, &*exchange.policies, &mut exchange.chain, request);
            if guard.judges_responses() {
                match guard.response(&convert::judged(response)).await {
                    Ok(edits) => convert::edit(response, edits)?,
                    Err(refused) => {
                        // Ends both connections: what the upstream still sends is for nobody.
                        exchange.withheld = Some(refused);
                        return Error::e_explain(ErrorType::InternalError, "a policy refused the response");
                    }
                }
            }
        }
        response.insert_header("x-trace-id", exchange.trace_id.as_str())?;
        Ok(())
    }

    fn fail_to_connect(&self, _session: &mut Session, _peer: &HttpPeer, exchange: &mut Exchange, mut error: Box<Error>) -> Box<Error> {
        // Nothing was sent, so any request may go to another peer.
        if let Target::Upstream { group, .. } = &exchange.target {
            error.set_retry(exchange.attempts <= self.upstreams.retries(group));
        }
        error
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        _session: &mut Session,
        error: Box<Error>,
        _exchange: &mut Exchange,
        _reused: bool,
    ) -> Box<Error> {
        // Something may have been sent, and a peer may have acted on it. The client decides whether to ask again.
        let mut error = error.more_context(format!("peer {peer}"));
        error.set_retry(false);
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, exchange: &mut Exchange) -> FailToProxy {
        let Some(failure) = exchange.withheld.take().or_else(|| blame(error)) else {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        };
        if session.response_written().is_none() {
            session.set_keepalive(None);
            if let Err(error) = self.answer(session, exchange, &Err(failure)).await {
                tracing::debug!(%error, "cannot answer");
            }
        }
        FailToProxy { error_code: exchange.answered, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, exchange: &mut Exchange) {
        self.log(session, exchange, error);
    }

    // The access log has it, with the trace id.
    fn suppress_error_log(&self, _session: &Session, _exchange: &Exchange, _error: &Error) -> bool {
        true
    }
}

/// The user a purchase or a result is for.
pub(crate) fn user_of(chain: &ChainState) -> Result<PrincipalId, Failure> {
    let principal = chain.facts.principal.as_ref().ok_or(Failure::Unauthenticated)?;
    match principal.role {
        Role::User => Ok(principal.id.clone()),
        Role::Agent | Role::Admin => Err(Failure::Forbidden("only users buy")),
    }
}

/// What a client is told of a request that could not be passed on; `None` when it has gone.
fn blame(error: &Error) -> Option<Failure> {
    Some(match (error.etype(), error.esource()) {
        (ErrorType::HTTPStatus(413), _) => Failure::TooLarge,
        (ErrorType::HTTPStatus(503), _) => Failure::Overloaded,
        (ErrorType::ConnectTimedout | ErrorType::ReadTimedout | ErrorType::WriteTimedout, ErrorSource::Upstream) => {
            Failure::UpstreamTimeout
        }
        (_, ErrorSource::Upstream) => Failure::UpstreamFailed,
        (ErrorType::WriteError | ErrorType::ReadError | ErrorType::ConnectionClosed, ErrorSource::Downstream) => return None,
        (ErrorType::ReadTimedout, ErrorSource::Downstream) => Failure::BodyTimeout,
        (_, ErrorSource::Downstream) => Failure::BadRequest("the request is broken".into()),
        _ => Failure::Internal,
    })
}
