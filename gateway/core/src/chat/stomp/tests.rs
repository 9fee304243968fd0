//! The codec against the rules of the three versions, and the session against a connection that is played by the test.

mod codec;
mod session;
