//! The vectors beside the manifest, natively; `sluice plugin test` asks the component the same.

sluice_sdk::vectors!(anti_fraud::AntiFraud);
