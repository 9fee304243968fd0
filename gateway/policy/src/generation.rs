//! A generation: one component with one configuration, ready to be asked, unchanged until nobody holds it.
//!
//! What never happens here: replacing a generation by another; that is [`crate::loader`]'s.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_core::id::{ActivityId, SessionId, ShopId, SkuId};
use gateway_core::policy::{Attempt, Call, Digest, Facts, Fault, Message, Phase, ResponseHead, Verdict};
use gateway_core::request::RequestHead;
use gateway_core::time::UnixMillis;
use tokio::time::Instant;

use crate::bindings::{PolicyPre, wit};
use crate::compiled::Compiled;
use crate::component::printable;
use crate::engine::EngineRoom;
use crate::instance::{GuestState, Instance, Time};
use crate::lent::{Lent, Loan};
use crate::settings::{Mode, PolicySettings};
use crate::{convert, verdict};

/// Time each step of loading may take. Far more than a call gets: the code is cold, and nobody is waiting for an answer.
const LOAD_STEP: Duration = Duration::from_secs(2);

/// Most header fields a guest may want.
const WANTED_HEADERS_MAX: usize = 32;

/// One component with one configuration.
pub(crate) struct Generation {
    pub(crate) digest: Digest,
    /// The start of the digest, for people.
    pub(crate) version: Arc<str>,
    room: Arc<EngineRoom>,
    lent: Arc<Lent>,
    pre: PolicyPre<GuestState>,
    settings: PolicySettings,
    phases: wit::Phases,
    wanted: Vec<String>,
    pool: Mutex<Pool>,
}

/// Warm instances that nobody is using.
struct Pool {
    idle: Vec<Instance>,
    /// How many are kept; 0 once nobody needs the generation any more.
    idle_max: usize,
}

impl Generation {
    /// Checks the configuration against the component's schema, configures `compiled`, asks it one question in every phase it
    /// wants, and keeps the instance if one may be kept; see [`Generation::keep`].
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) async fn load(
        room: Arc<EngineRoom>,
        lent: Arc<Lent>,
        compiled: &Compiled,
        settings: PolicySettings,
    ) -> Result<Self, String> {
        if let Some(schema) = &compiled.schema {
            schema.check(&settings.config_json)?;
        }
        let idle_max = usize::from(settings.mode == Mode::Warm);
        let mut generation = Self {
            digest: compiled.digest.clone(),
            version: Arc::clone(&compiled.version),
            room,
            lent,
            pre: compiled.pre.clone(),
            settings,
            phases: wit::Phases::empty(),
            wanted: Vec::new(),
            pool: Mutex::new(Pool { idle: Vec::new(), idle_max }),
        };
        let (mut instance, manifest) = generation
            .make(Time::of(Instant::now(), LOAD_STEP))
            .await
            .map_err(|fault| format!("its configure ended in a {}", fault.as_str()))?;
        let manifest = manifest.map_err(|problem| format!("it refuses its configuration: {}", printable(&problem)))?;
        check_manifest(&manifest)?;
        generation.phases = manifest.phases;
        generation.wanted = manifest.headers;

        for phase in [Phase::Request, Phase::Attempt, Phase::Message, Phase::Response] {
            if generation.takes_part(phase) {
                let probe = Probe::new();
                generation
                    .ask(&mut instance, probe.call(phase), Time::of(Instant::now(), LOAD_STEP))
                    .await
                    .map_err(|fault| format!("its first answer in phase {phase:?} was a {}", fault.as_str()))?;
            }
        }
        generation.give_back(instance);
        Ok(generation)
    }

    /// The header fields it is shown.
    pub(crate) fn wanted(&self) -> &[String] {
        &self.wanted
    }

    pub(crate) fn takes_part(&self, phase: Phase) -> bool {
        self.phases.contains(match phase {
            Phase::Request => wit::Phases::REQUEST,
            Phase::Attempt => wit::Phases::ATTEMPT,
            Phase::Message => wit::Phases::MESSAGE,
            Phase::Response => wit::Phases::RESPONSE,
        })
    }

    /// One question that was put at `started`, one checked answer. Cancel safe: an instance that is dropped in the middle of a call is gone, and its
    /// slot is free.
    pub(crate) async fn call(&self, call: Call<'_>, started: Instant) -> Result<Verdict, Fault> {
        let time = Time::of(started, self.settings.timeout);
        let mut instance = match self.take_idle() {
            Some(instance) => instance,
            // This configuration was accepted when the generation was loaded; a guest that now refuses it is broken.
            None => match self.make(time).await? {
                (instance, Ok(_)) => instance,
                (_, Err(_)) => return Err(Fault::Trap),
            },
        };
        let verdict = self.ask(&mut instance, call, time).await?;
        self.give_back(instance);
        Ok(verdict)
    }

    /// Keeps at most `idle_max` instances warm from now on, none in fresh mode. With 0, calls of those who still hold this
    /// generation get fresh ones.
    pub(crate) fn keep(&self, idle_max: usize) {
        let idle_max = if self.settings.mode == Mode::Warm { idle_max } else { 0 };
        let surplus = {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            pool.idle_max = idle_max;
            let kept = pool.idle.len().min(idle_max);
            pool.idle.split_off(kept)
        };
        // Taking instances apart costs more than the lock should be held for.
        drop(surplus);
    }

    async fn ask(&self, instance: &mut Instance, call: Call<'_>, time: Time) -> Result<Verdict, Fault> {
        let phase = call.phase();
        let answer = instance.ask(call, &self.wanted, time).await?;
        let verdict = convert::verdict(answer).ok_or("an identity has no valid name");
        let checked = verdict.and_then(|verdict| verdict::check(verdict, phase, instance.proved()));
        checked.map_err(|broken| {
            tracing::warn!(policy = &*self.lent.policy, version = &*self.version, ?phase, rule = broken, "a guest's answer breaks a rule");
            Fault::BadVerdict
        })
    }

    /// A new, configured instance.
    async fn make(&self, time: Time) -> Result<(Instance, Result<wit::Manifest, String>), Fault> {
        let slot = self.room.slot(time.slot_by()).await.ok_or(Fault::Overload)?;
        let loan = Loan::new(Arc::clone(&self.lent), Arc::clone(&self.version));
        let PolicySettings { memory_bytes_max, config_json, .. } = &self.settings;
        Instance::new(&self.room, slot, &self.pre, loan, *memory_bytes_max, config_json, time).await
    }

    fn take_idle(&self) -> Option<Instance> {
        // The last one back is the next one out: its memory is still in the processor's cache.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).idle.pop()
    }

    fn give_back(&self, instance: Instance) {
        if instance.calls >= self.settings.retire_after_calls || instance.holds_too_much() {
            return;
        }
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.idle.len() < pool.idle_max {
            pool.idle.push(instance);
        } else {
            // Taking an instance apart costs more than the lock should be held for.
            drop(pool);
            drop(instance);
        }
    }
}

pub(crate) fn check_manifest(manifest: &wit::Manifest) -> Result<(), String> {
    let name = &manifest.name;
    if !(1..=40).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(format!("its name {:?} is not [a-z0-9-]{{1,40}}", printable(name)));
    }
    if manifest.version.len() > 40 || !manifest.version.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("its version {:?} is not 40 visible characters", printable(&manifest.version)));
    }
    if manifest.headers.len() > WANTED_HEADERS_MAX {
        return Err(format!("it wants {} headers, more than {WANTED_HEADERS_MAX}", manifest.headers.len()));
    }
    match manifest.headers.iter().find(|header| header.is_empty() || header.len() > 64 || header.bytes().any(|b| b.is_ascii_uppercase())) {
        Some(header) => Err(format!("it wants the header {:?}, which is not a lower-case name", printable(header))),
        None => Ok(()),
    }
}

/// A harmless question for each phase. Any answer that keeps the rules will do, a refusal too: what is tried is the code.
struct Probe {
    head: RequestHead,
    facts: Facts,
    attempt: Attempt,
    message: Message,
    response: ResponseHead,
}

impl Probe {
    fn new() -> Self {
        let head = RequestHead {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            query: None,
            host: "localhost".to_owned(),
            headers: Vec::new(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trace_id: "0".repeat(32),
            route: "probe".into(),
        };
        Self {
            head,
            facts: Facts { now: UnixMillis(0), principal: None, device: None, tags: Vec::new() },
            attempt: Attempt { activity: ActivityId(1), sku: SkuId(1), qty: 1, idempotency_key: None },
            message: Message { session: SessionId(1), shop: ShopId(1), kind: "text".to_owned(), content: "hello".to_owned() },
            response: ResponseHead { status: 200, headers: Vec::new() },
        }
    }

    fn call(&self, phase: Phase) -> Call<'_> {
        match phase {
            Phase::Request => Call::Request(&self.head, &self.facts),
            Phase::Attempt => Call::Attempt(&self.head, &self.facts, &self.attempt),
            Phase::Message => Call::Message(&self.facts, &self.message),
            Phase::Response => Call::Response(&self.head, &self.facts, &self.response),
        }
    }
}
