//! What every ledger promises.
