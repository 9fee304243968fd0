//! Text as people read it: rules that look for words compare the folded form, in which width, case, decoration and what
//! nobody can see make no difference.
//!
//! What never happens here: deciding. The same folding serves every policy, so a word means the same to all of them.

/// Whether what stands between letters counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separators {
    /// Blanks, punctuation and symbols stay.
    Keep,
    /// Only letters and digits stay: `a-b c` becomes `abc`.
    Drop,
}

/// A folded text that remembers where each part came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    text: String,
    /// For each byte of `text`, where in the original its character begins.
    origins: Vec<u32>,
}

impl Folded {
    /// Folds `text`, of which the first 4 GiB are read.
    #[must_use]
    pub fn of(text: &str, separators: Separators) -> Self {
        let mut folded = Self { text: String::with_capacity(text.len()), origins: Vec::with_capacity(text.len()) };
        for (at, original) in text.char_indices() {
            let Ok(at) = u32::try_from(at) else { break };
            each(original, separators, |character| {
                folded.text.push(character);
                folded.origins.resize(folded.text.len(), at);
            });
        }
        folded
    }

    /// What to search.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where in the original the character begins that byte `at` of [`Folded::as_str`] came from.
    #[must_use]
    pub fn origin(&self, at: usize) -> Option<usize> {
        self.origins.get(at).map(|origin| *origin as usize)
    }
}

/// The folded form of `text` alone.
#[must_use]
pub fn folded(text: &str, separators: Separators) -> String {
    let mut folded = String::with_capacity(text.len());
    text.chars().for_each(|original| each(original, separators, |character| folded.push(character)));
    folded
}

/// What `original` folds to, character by character; nothing for what cannot be seen.
fn each(original: char, separators: Separators, mut keep: impl FnMut(char)) {
    let mut seen = |character: char| {
        if !is_invisible(character) && (separators == Separators::Keep || character.is_alphanumeric()) {
            keep(character);
        }
    };
    if original.is_ascii() {
        return seen(original.to_ascii_lowercase());
    }
    // Lower case is not all of case folding: these two letters have a second small form.
    match plain(original) {
        'ſ' => seen('s'),
        'ς' => seen('σ'),
        character => character.to_lowercase().for_each(seen),
    }
}

/// The plain letter behind a full-width, mathematical, circled or squared one.
fn plain(character: char) -> char {
    let code = u32::from(character);
    let letter = |first: u8, index: u32| char::from(first + (index % 26) as u8);
    match code {
        0x3000 => ' ',
        0xFF01..=0xFF5E => char::from((code - 0xFF01) as u8 + b'!'),
        0x24B6..=0x24E9 => letter(b'a', code - 0x24B6),
        0x1D400..=0x1D6A3 => letter(b'a', code - 0x1D400),
        0x1D7CE..=0x1D7FF => char::from(b'0' + ((code - 0x1D7CE) % 10) as u8),
        0x1F130..=0x1F149 => letter(b'a', code - 0x1F130),
        0x1F150..=0x1F169 => letter(b'a', code - 0x1F150),
        0x1F170..=0x1F189 => letter(b'a', code - 0x1F170),
        _ => character,
    }
}

/// Format characters, what Unicode lets a font ignore, variation selectors, and marks that are drawn over the letter before
/// them (Unicode 16: general category Cf, Default_Ignorable_Code_Point, and the blocks of combining marks).
#[must_use]
pub fn is_invisible(character: char) -> bool {
    const RANGES: [(u32, u32); 29] = [
        (0x00AD, 0x00AD),
        (0x0300, 0x036F),
        (0x0600, 0x0605),
        (0x061C, 0x061C),
        (0x06DD, 0x06DD),
        (0x070F, 0x070F),
        (0x0890, 0x0891),
        (0x08E2, 0x08E2),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x1AB0, 0x1AFF),
        (0x1DC0, 0x1DFF),
        (0x200B, 0x200F),
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0x20D0, 0x20FF),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFE20, 0xFE2F),
        (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0),
        (0xFFF0, 0xFFFB),
        (0x110BD, 0x110BD),
        (0x110CD, 0x110CD),
        (0x13430, 0x1343F),
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
        (0xE0000, 0xE0FFF),
    ];
    let code = u32::from(character);
    code >= RANGES[0].0 && RANGES.get(RANGES.partition_point(|(_, last)| *last < code)).is_some_and(|(first, _)| *first <= code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_the_same_folds_the_same() {
        for (text, same) in [
            ("Ｖｘ１２！", "vx12!"),
            ("ＡＢＣ　ｄ", "abc d"),
            ("ΣΑΣ σας", "σασ σασ"),
            ("ſie", "sie"),
            ("敏\u{200b}感\u{feff}词", "敏感词"),
            ("s\u{0336}p\u{0336}a\u{0336}m", "spam"),
            ("sp\u{ad}am\u{e0041}", "spam"),
            ("𝓼𝐏𝔞𝕸 𝟗𝟘", "spam 90"),
            ("ⓢⓅ🄰🅜🆂", "spams"),
            ("İ", "i"),
            ("e\u{301}", "e"),
        ] {
            assert_eq!(folded(text, Separators::Keep), same, "{text}");
        }
    }

    #[test]
    fn separators_are_dropped_on_demand() {
        for text in ["敏 感", "敏*感", "敏　感", "敏、——感", "敏。\n感", "敏😀感"] {
            assert_eq!(folded(text, Separators::Drop), "敏感", "{text}");
            assert_ne!(folded(text, Separators::Keep), "敏感", "{text}");
        }
    }

    #[test]
    fn each_byte_knows_where_it_came_from() {
        let text = "A\u{200b}Ｂ 敏İ";
        let folded = Folded::of(text, Separators::Drop);
        assert_eq!(folded.as_str(), "ab敏i");
        let origins: Vec<_> = (0..=folded.as_str().len()).map(|at| folded.origin(at)).collect();
        let (b, mark, i) = (text.find('Ｂ'), text.find('敏'), text.find('İ'));
        assert_eq!(origins, [Some(0), b, mark, mark, mark, i, None]);
    }

    #[test]
    fn the_invisible_are_told_from_the_visible() {
        for invisible in
            ['\u{ad}', '\u{200b}', '\u{200f}', '\u{2060}', '\u{206f}', '\u{fe0f}', '\u{feff}', '\u{e0001}', '\u{e0fff}', '\u{36f}']
        {
            assert!(is_invisible(invisible), "{invisible:?}");
        }
        for visible in ['a', ' ', '\u{ac}', '\u{ae}', '\u{200a}', '\u{2010}', '敏', '😀', '\u{e1000}', '\u{10fffd}', 'é'] {
            assert!(!is_invisible(visible), "{visible:?}");
        }
    }
}
