//! Folding the verdicts of a chain into one decision, and what a host failure means to a binding.
