//! How two verdicts on the same question differ, in one word that can stand in a metric.

use crate::policy::{Effects, Fault, Verdict};

/// Why `shadow` is not what `live` is; `None` when a client and an upstream could not tell them apart. Tags and score only
/// count where nothing else differs: they change nothing by themselves.
#[must_use]
pub fn difference(live: &Result<Verdict, Fault>, shadow: &Result<Verdict, Fault>) -> Option<&'static str> {
    match (live, shadow) {
        (Ok(Verdict::Proceed(live)), Ok(Verdict::Proceed(shadow))) => effects(live, shadow),
        (Ok(Verdict::Proceed(_)), Ok(Verdict::Refuse(_))) => Some("refuses"),
        (Ok(Verdict::Refuse(_)), Ok(Verdict::Proceed(_))) => Some("proceeds"),
        (Ok(Verdict::Refuse(live)), Ok(Verdict::Refuse(shadow))) => {
            let pairs = [(live.status != shadow.status, "status"), (live.code != shadow.code, "code")];
            let rest = (live.message != shadow.message || live.retry_after_ms != shadow.retry_after_ms, "message");
            pairs.into_iter().chain([rest]).find_map(|(differs, word)| differs.then_some(word))
        }
        // What failed is named: a shadow that traps is a finding even where the live version trapped before it.
        (_, Err(fault)) => (live != shadow).then(|| fault.as_str()),
        (Err(_), Ok(_)) => Some("answers"),
    }
}

fn effects(live: &Effects, shadow: &Effects) -> Option<&'static str> {
    let pairs = [
        (live.principal != shadow.principal, "principal"),
        (live.charges != shadow.charges, "charges"),
        (live.set_headers != shadow.set_headers || live.remove_headers != shadow.remove_headers, "headers"),
        (live.replace != shadow.replace || live.reply != shadow.reply, "text"),
        (live.tags != shadow.tags || live.score != shadow.score, "tags"),
    ];
    pairs.into_iter().find_map(|(differs, word)| differs.then_some(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Refusal;

    fn proceed(change: impl FnOnce(&mut Effects)) -> Result<Verdict, Fault> {
        let mut effects = Effects::default();
        change(&mut effects);
        Ok(Verdict::Proceed(effects))
    }

    fn refuse(status: u16, code: &str, message: &str) -> Result<Verdict, Fault> {
        Ok(Verdict::Refuse(Refusal { status, code: code.into(), message: message.into(), retry_after_ms: None }))
    }

    #[test]
    fn each_difference_has_its_word() {
        let plain = || proceed(|_| ());
        for (live, shadow, word) in [
            (plain(), plain(), None),
            (refuse(403, "A", "a"), refuse(403, "A", "a"), None),
            (plain(), refuse(403, "A", "a"), Some("refuses")),
            (refuse(403, "A", "a"), plain(), Some("proceeds")),
            (refuse(403, "A", "a"), refuse(429, "B", "b"), Some("status")),
            (refuse(403, "A", "a"), refuse(403, "B", "b"), Some("code")),
            (refuse(403, "A", "a"), refuse(403, "A", "b"), Some("message")),
            (plain(), proceed(|e| e.set_headers.push(("a".into(), "b".into()))), Some("headers")),
            (plain(), proceed(|e| e.remove_headers.push("a".into())), Some("headers")),
            (plain(), proceed(|e| e.reply = Some("hello".into())), Some("text")),
            (plain(), proceed(|e| e.tags.push("t".into())), Some("tags")),
            (plain(), proceed(|e| e.score = 1), Some("tags")),
            (plain(), Err(Fault::Trap), Some("trap")),
            (Err(Fault::Trap), Err(Fault::Trap), None),
            (Err(Fault::Trap), Err(Fault::Timeout), Some("timeout")),
            (Err(Fault::Trap), plain(), Some("answers")),
        ] {
            assert_eq!(difference(&live, &shadow), word, "{live:?} {shadow:?}");
        }
    }
}
