//! Load with a schedule, against private services: what `sluice bench` runs.
