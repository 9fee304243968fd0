//! One component on trial, outside a node: what authors test and measure with, and what recorded requests are asked again of.
//!
//! It is the engine, the limits and the rules of a node, without its table: nothing is published, nothing is watched, and
//! `identity.verify` is answered from a list of who is who.
//! Who calls it: `gateway-kit`, and whoever replays requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_core::policy::{Call, Digest, Fault, Phase, Verdict};
use gateway_core::principal::Principal;
use gateway_core::time::UnixMillis;
use tokio::time::Instant;
use wasmtime::component::types::ComponentItem;

use crate::bindings::wit;
use crate::compiled::Compiled;
use crate::convert;
use crate::engine::EngineRoom;
use crate::generation::check_manifest;
use crate::instance::{Instance, Time};
use crate::lent::{Judge, Lent, Loan};
use crate::lists::Lists;
use crate::settings::Mode;
use crate::verdict;

/// Instances alive at once: the one that is asked and the one that replaces it.
const INSTANCES_MAX: u32 = 2;

/// Memory of one instance. A component that carries a JavaScript engine starts with about 12 MiB.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Time of one call. Longer than a node gives by far: what is tried is what a policy says, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a policy on trial is lent.
#[derive(Debug, Clone, Default)]
pub struct Lending {
    /// Whom each token stands for; `identity.verify` calls every other an `unknown-token`.
    pub tokens: BTreeMap<String, Principal>,
    /// The entries of each list.
    pub lists: BTreeMap<String, Vec<String>>,
}

impl Judge for BTreeMap<String, Principal> {
    fn judge(&self, token: &str, _now: UnixMillis) -> Result<Principal, &'static str> {
        self.get(token).cloned().ok_or("unknown-token")
    }
}

/// A compiled component.
pub struct Trial {
    room: Arc<EngineRoom>,
    compiled: Compiled,
    lent: Arc<Lent>,
}

/// How a policy introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// `[a-z0-9-]{1,40}`.
    pub name: String,
    /// For people.
    pub version: String,
    /// The phases it takes part in, in order.
    pub phases: Vec<Phase>,
    /// The header fields it wants to see.
    pub headers: Vec<String>,
}

/// Why a component could not be configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It refuses the configuration, in its own words.
    #[error("it refuses its configuration: {0}")]
    Refused(String),
    /// It did not get as far.
    #[error("its configure ended in a {}", .0.as_str())]
    Failed(Fault),
    /// It introduced itself badly.
    #[error("{0}")]
    Manifest(String),
}

impl Trial {
    /// Checks what the component wants and compiles it, which takes seconds for a large one.
    ///
    /// # Errors
    /// A sentence for the author.
    pub fn new(component: &[u8], lending: Lending) -> Result<Self, String> {
        let room = EngineRoom::new(INSTANCES_MAX, MEMORY_BYTES_MAX).map_err(|error| error.to_string())?;
        let compiled = Compiled::new(&room, None, Digest::of(component), component)?;
        let lists = Lists::default();
        for (name, entries) in lending.lists {
            lists.replace(&name, entries).map_err(|error| error.to_string())?;
        }
        let lent = Lent {
            policy: "trial".into(),
            verifier: Arc::new(lending.tokens),
            lists: Arc::new(lists),
            sink: Arc::new(|_, _, _| ()),
            counters: Mutex::default(),
        };
        Ok(Self { room: Arc::new(room), compiled, lent: Arc::new(lent) })
    }

    /// The host's functions it imports, such as `lists.contains`, in order of name.
    #[must_use]
    pub fn capabilities(&self) -> Vec<String> {
        let engine = self.room.engine();
        let component = self.compiled.pre.instance_pre().component().component_type();
        let mut found = BTreeSet::new();
        for (interface, import) in component.imports(engine) {
            let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
            let interface = interface.rsplit('/').next().unwrap_or_default().split('@').next().unwrap_or_default();
            for (function, export) in instance.exports(engine) {
                if matches!(export.ty, ComponentItem::ComponentFunc(_)) {
                    found.insert(format!("{interface}.{function}"));
                }
            }
        }
        found.into_iter().collect()
    }

    /// Whether a schema of its configuration is inside.
    #[must_use]
    pub fn has_schema(&self) -> bool {
        self.compiled.schema.is_some()
    }

    /// Whether `config` fits the schema inside.
    ///
    /// # Errors
    /// Every mistake with its place.
    pub fn check_configuration(&self, config: &str) -> Result<(), String> {
        self.compiled.schema.as_ref().map_or(Ok(()), |schema| schema.check(config))
    }

    /// Configures it. The schema is not asked: what the guest itself says is part of what is tried.
    ///
    /// # Errors
    /// Why it cannot be asked anything.
    pub async fn configure(&self, config: &str, mode: Mode) -> Result<Subject<'_>, Unusable> {
        let (instance, manifest) = self.make(config).await.map_err(Unusable::Failed)?;
        let manifest = manifest.map_err(Unusable::Refused)?;
        check_manifest(&manifest).map_err(Unusable::Manifest)?;
        let flags = [
            (wit::Phases::REQUEST, Phase::Request),
            (wit::Phases::ATTEMPT, Phase::Attempt),
            (wit::Phases::MESSAGE, Phase::Message),
            (wit::Phases::RESPONSE, Phase::Response),
        ];
        let phases = flags.into_iter().filter(|(flag, _)| manifest.phases.contains(*flag)).map(|(_, phase)| phase).collect();
        let manifest = Manifest { name: manifest.name, version: manifest.version, phases, headers: manifest.headers };
        Ok(Subject { trial: self, config: config.to_owned(), mode, manifest, warm: Some(instance) })
    }

    async fn make(&self, config: &str) -> Result<(Instance, Result<wit::Manifest, String>), Fault> {
        let time = Time::of(Instant::now(), PATIENCE);
        let slot = self.room.slot(time.slot_by()).await.ok_or(Fault::Overload)?;
        let loan = Loan::new(Arc::clone(&self.lent), Arc::clone(&self.compiled.version));
        Instance::new(&self.room, slot, &self.compiled.pre, loan, MEMORY_BYTES_MAX, config, time).await
    }
}

/// A component with a configuration, ready to be asked.
pub struct Subject<'a> {
    trial: &'a Trial,
    config: String,
    mode: Mode,
    manifest: Manifest,
    warm: Option<Instance>,
}

impl Subject<'_> {
    /// How it introduces itself with this configuration.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Asks one question, as a node would: the answer keeps the host's rules.
    ///
    /// # Errors
    /// Why there is no verdict.
    pub async fn ask(&mut self, call: Call<'_>) -> Result<Verdict, Fault> {
        let mut instance = match self.warm.take() {
            Some(instance) => instance,
            None => match self.trial.make(&self.config).await? {
                (instance, Ok(_)) => instance,
                (_, Err(_)) => return Err(Fault::Trap),
            },
        };
        let phase = call.phase();
        let answer = instance.ask(call, &self.manifest.headers, Time::of(Instant::now(), PATIENCE)).await?;
        let verdict = convert::verdict(answer).ok_or(Fault::BadVerdict)?;
        let verdict = verdict::check(verdict, phase, instance.proved()).map_err(|_| Fault::BadVerdict)?;
        if self.mode == Mode::Warm {
            self.warm = Some(instance);
        }
        Ok(verdict)
    }
}
