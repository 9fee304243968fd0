//! The list of keys: one a line, `ID YYYY-MM-DD BASE64`, the day (UTC) from which the key seals. Lines that begin with `#` are
//! remarks. Only the vault calls this; a fault names its line and never repeats a key.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use data_encoding::BASE64;
use gateway_core::ports::KeyId;
use gateway_core::time::UnixMillis;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};

/// Keys by name.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    keys: BTreeMap<KeyId, LessSafeKey>,
    /// From which instant on each key seals.
    days: BTreeMap<UnixMillis, KeyId>,
}

impl Keyring {
    /// Reads a list. Every name and every day stands once, and there is at least one key.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut keyring = Self::default();
        let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
        for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
            keyring.add(line).with_context(|| format!("line {number}"))?;
        }
        ensure!(!keyring.keys.is_empty(), "there is no key in it; a line is `ID YYYY-MM-DD BASE64-OF-32-BYTES`");
        Ok(keyring)
    }

    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [id, day, secret] = words[..] else { bail!("{} words instead of ID, day and key", words.len()) };
        let id = KeyId::parse(id).context("an ID has 1 to 32 of A-Z, a-z, 0-9, - and _")?;
        let day: Date = day.parse().ok().context("a day is YYYY-MM-DD")?;
        let from = day.to_zoned(TimeZone::UTC)?.timestamp().as_millisecond();
        let from = UnixMillis(u64::try_from(from).context("the day is before 1970")?);
        let secret = BASE64.decode(secret.as_bytes()).ok().context("the key is not base64")?;
        let key =
            UnboundKey::new(&AES_256_GCM, &secret).map_err(|_| anyhow::anyhow!("the key has {} bytes instead of 32", secret.len()))?;
        ensure!(self.days.insert(from, id.clone()).is_none(), "another key begins on that day");
        ensure!(self.keys.insert(id, LessSafeKey::new(key)).is_none(), "the ID is taken");
        Ok(())
    }

    /// The key that seals at `now`: the latest whose day has come.
    pub(super) fn live(&self, now: UnixMillis) -> Option<(&KeyId, &LessSafeKey)> {
        let (_, id) = self.days.range(..=now).next_back()?;
        Some((id, self.keys.get(id)?))
    }

    pub(super) fn key(&self, id: &KeyId) -> Option<&LessSafeKey> {
        self.keys.get(id)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const DAY: u64 = 86_400_000;

    #[test]
    fn a_key_seals_from_the_first_moment_of_its_day() {
        let list = format!("# two days\nb 1970-01-03 {ONE}\n\n a 1970-01-02 {ONE} \n");
        let keys = Keyring::parse(&list).unwrap();
        let live = |now| keys.live(UnixMillis(now)).map(|(id, _)| id.as_str());
        assert_eq!(live(DAY - 1), None);
        assert_eq!(live(DAY), Some("a"));
        assert_eq!(live(2 * DAY - 1), Some("a"));
        assert_eq!(live(2 * DAY), Some("b"));
        assert_eq!(live(u64::MAX), Some("b"));
    }

    #[test]
    fn a_bad_list_is_told_by_its_line_and_without_its_keys() {
        for (list, wrong) in [
            (String::new(), "no key"),
            (format!("a 2020-01-01 {ONE} x"), "line 1: 4 words"),
            (format!("#\na/b 2020-01-01 {ONE}"), "line 2: an ID"),
            (format!("a 2020-13-01 {ONE}"), "a day is"),
            ("a 2020-01-01 AQEB".into(), "3 bytes instead of 32"),
            ("a 2020-01-01 !!".into(), "not base64"),
            (format!("a 2020-01-01 {ONE}\nb 2020-01-01 {ONE}"), "another key begins"),
            (format!("a 2020-01-01 {ONE}\na 2020-01-02 {ONE}"), "the ID is taken"),
        ] {
            let fault = format!("{:#}", Keyring::parse(&list).unwrap_err());
            assert!(fault.contains(wrong), "{fault}");
            assert!(!fault.contains(ONE) && !fault.contains("AQEB"), "{fault}");
        }
    }
}
