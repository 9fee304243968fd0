//! The toolkit of policy authors.
//!
//! What lives here: making a plugin's folder ([`scaffold`]), saying what a component asks for ([`check`]), running its test
//! vectors ([`test`]), measuring it ([`bench`]), signing it ([`sign`]) and asking it again what nodes have recorded
//! ([`replay`]). Building is `gateway-guest`'s.
//! What never happens here: printing, exit codes and networks; those are the command line's. Nothing here runs in a node but
//! the format of a recording.
//! Who calls it: `sluice plugin`.

pub mod bench;
mod cases;
pub mod check;
mod plugin;
pub mod replay;
pub mod scaffold;
pub mod sign;
pub mod test;
// One text for the native run in the SDK and for the compiled one here, so that they cannot disagree about a file.
#[path = "../../../plugins/sdk/src/testing/file.rs"]
pub mod vectors;

pub use cases::answer;
pub use gateway_guest::{Built, Language, build};
pub use plugin::Plugin;
