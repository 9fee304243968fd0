//! Compiles a guest.
