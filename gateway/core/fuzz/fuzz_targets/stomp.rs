#![no_main]
//! Hostile STOMP, as libFuzzer makes it up.

libfuzzer_sys::fuzz_target!(|input: &[u8]| gateway_core_fuzz::stomp(input));
