//! The trait a policy implements and the macro that turns it into a component's exports.

use serde::de::DeserializeOwned;

use crate::host::Host;
use crate::types::{Attempt, Effects, Facts, Manifest, Message, Request, Response, Verdict};

/// A configured policy. Every phase it names in its manifest is one call; phases it does not implement proceed.
///
/// Methods take `&self`: an instance may serve one request or thousands, and the same question must get the same answer,
/// so nothing is remembered between calls. What must be counted is answered as a charge.
pub trait Policy: Sized + Send + Sync + 'static {
    /// Reads the configuration, a JSON document. The error is a sentence for the operator.
    fn configure(config: &str) -> Result<Self, String>;

    /// Name, version, phases and the header fields this policy wants to see.
    fn manifest(&self) -> Manifest;

    /// A request's head has arrived.
    fn on_request(&self, _host: &dyn Host, _request: &Request, _facts: &Facts) -> Verdict {
        Verdict::Proceed(Effects::default())
    }

    /// A purchase attempt was parsed.
    fn on_attempt(&self, _host: &dyn Host, _request: &Request, _facts: &Facts, _attempt: &Attempt) -> Verdict {
        Verdict::Proceed(Effects::default())
    }

    /// A chat message was parsed.
    fn on_message(&self, _host: &dyn Host, _facts: &Facts, _message: &Message) -> Verdict {
        Verdict::Proceed(Effects::default())
    }

    /// A response's head is about to leave.
    fn on_response(&self, _host: &dyn Host, _request: &Request, _facts: &Facts, _response: &Response) -> Verdict {
        Verdict::Proceed(Effects::default())
    }
}

/// Parses a configuration document; an empty one counts as `{}`.
///
/// # Errors
/// What is wrong and where, as serde says it. Mark the type `deny_unknown_fields`: a misspelt key must not be silence.
pub fn configuration<T: DeserializeOwned>(config: &str) -> Result<T, String> {
    let document = match config.trim() {
        "" => "{}",
        object if object.starts_with('{') => object,
        // serde would take an array for a struct, field by field.
        _ => return Err("configuration: not a JSON object".into()),
    };
    serde_json::from_str(document).map_err(|error| format!("configuration: {error}"))
}

/// Exports `$policy` as the component's world.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        const _: () = {
            use $crate::bindings::sluice::policy::types;

            static POLICY: ::std::sync::OnceLock<$policy> = ::std::sync::OnceLock::new();

            struct Component;

            fn policy() -> &'static $policy {
                POLICY.get().expect("the host configures before it asks")
            }

            impl $crate::bindings::Guest for Component {
                fn configure(config: String) -> Result<types::Manifest, String> {
                    let policy = <$policy as $crate::Policy>::configure(&config)?;
                    let manifest = $crate::Policy::manifest(&policy);
                    POLICY.set(policy).map_err(|_| String::from("configured twice"))?;
                    Ok(manifest)
                }

                fn on_request(request: types::Request, facts: types::Facts) -> types::Verdict {
                    $crate::Policy::on_request(policy(), &$crate::LentHost, &request, &facts)
                }

                fn on_attempt(request: types::Request, facts: types::Facts, attempt: types::Attempt) -> types::Verdict {
                    $crate::Policy::on_attempt(policy(), &$crate::LentHost, &request, &facts, &attempt)
                }

                fn on_message(facts: types::Facts, message: types::Message) -> types::Verdict {
                    $crate::Policy::on_message(policy(), &$crate::LentHost, &facts, &message)
                }

                fn on_response(request: types::Request, facts: types::Facts, response: types::Response) -> types::Verdict {
                    $crate::Policy::on_response(policy(), &$crate::LentHost, &request, &facts, &response)
                }
            }

    $crate::bindings::export_world!(Component with_types_in $crate::bindings);
        };
    };
}
