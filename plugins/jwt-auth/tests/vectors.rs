//! The vectors beside the manifest, natively; `sluice plugin test` asks the component the same.

sluice_sdk::vectors!(jwt_auth::JwtAuth);
