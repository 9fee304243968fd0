//! A second witness of how far a session had come: what to do when the ledger remembers less.
//!
//! A database that failed over to a replica that lagged has lost its last messages, and would give their numbers out again. The
//! highest position that was announced is kept elsewhere; where it is above the ledger's, numbering goes on above it in a new
//! epoch, and clients are told to count anew. Called by the ledgers, with the session's row locked.

use super::Position;

/// Where numbering goes on: from `stored`, unless `announced` shows that the ledger has lost messages.
#[must_use]
pub fn continue_from(stored: Position, announced: Option<Position>) -> Position {
    match announced {
        Some(seen) if seen.epoch > stored.epoch || (seen.epoch == stored.epoch && seen.seq > stored.seq) => {
            Position { epoch: seen.epoch.saturating_add(1), seq: seen.seq.max(stored.seq) }
        }
        Some(_) | None => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }

    #[test]
    fn numbers_that_were_announced_are_never_given_out_again() {
        for (stored, announced, goes_on) in [
            (at(1, 40), None, at(1, 40)),
            (at(1, 40), Some(at(1, 40)), at(1, 40)),
            (at(1, 40), Some(at(1, 39)), at(1, 40)),
            (at(1, 40), Some(at(1, 50)), at(2, 50)),
            (at(1, 40), Some(at(2, 30)), at(3, 40)),
            (at(2, 10), Some(at(1, 50)), at(2, 10)),
        ] {
            assert_eq!(continue_from(stored, announced), goes_on, "{stored:?} {announced:?}");
        }
    }

    #[test]
    fn asking_again_changes_nothing() {
        let first = continue_from(at(1, 40), Some(at(1, 50)));
        assert_eq!(continue_from(first, Some(at(1, 50))), first);
    }
}
