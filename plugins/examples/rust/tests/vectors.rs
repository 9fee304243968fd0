//! The test vectors, run natively; `sluice plugin test` runs them on the component too.

sluice_sdk::vectors!(example::Rule);
