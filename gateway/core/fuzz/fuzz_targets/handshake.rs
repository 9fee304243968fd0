#![no_main]
//! Hostile handshakes, as libFuzzer makes them up.

libfuzzer_sys::fuzz_target!(|input: &[u8]| gateway_core_fuzz::handshake(input));
