//! The rule of a rate account: GCRA with a full burst.
