//! The toolkit of policy authors.
