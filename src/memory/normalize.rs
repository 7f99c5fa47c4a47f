//! Normalizes the characters of terms, so that spellings that read alike compare equal.

/// The kind of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CharKind {
    /// A letter or digit of a script that separates words by spaces.
    Letter,
    /// A character of a script that does not separate words by spaces, or whose words grow by suffixes
    /// (Korean).
    Unspaced,
    /// A character that neither belongs to a term nor ends one, such as a combining accent.
    Ignored,
    /// Any character between words.
    Separator,
}

/// Letters with diacritics, and their plain forms.
const PLAIN_LETTERS: [(&str, &str); 30] = [
    ("a", "àáâãäåāăąǎạảấầẩẫậắằẳẵặ"),
    ("ae", "æ"),
    ("b", "ḅḃ"),
    ("c", "çćĉċč"),
    ("d", "ďđðḍ"),
    ("e", "èéêëēĕėęěẹẻẽếềểễệ"),
    ("f", "ƒ"),
    ("g", "ĝğġģ"),
    ("h", "ĥħḥ"),
    ("i", "ìíîïĩīĭįıǐỉị"),
    ("ij", "ĳ"),
    ("j", "ĵ"),
    ("k", "ķĸ"),
    ("l", "ĺļľŀłḷ"),
    ("m", "ṃ"),
    ("n", "ñńņňŉṇ"),
    ("o", "òóôõöøōŏőơǒọỏốồổỗộớờởỡợ"),
    ("oe", "œ"),
    ("r", "ŕŗřṛ"),
    ("s", "śŝşšșṣſ"),
    ("ss", "ß"),
    ("t", "ţťŧțṭ"),
    ("th", "þ"),
    ("u", "ùúûüũūŭůűųưǔụủứừửữự"),
    ("w", "ŵẁẃẅ"),
    ("y", "ýÿŷỳỵỷỹ"),
    ("z", "źżžẓ"),
    ("е", "ё"),
    ("ι", "ίϊΐ"),
    ("σ", "ς"),
];

/// Classifies `c` and appends its normal form (lower case, without diacritics) to `term`.
pub fn normalize(c: char, term: &mut String) -> CharKind {
    if c.is_ascii() {
        if c.is_ascii_alphanumeric() {
            term.push(c.to_ascii_lowercase());
            return CharKind::Letter;
        }
        return CharKind::Separator;
    }
    if is_mark(c) {
        return CharKind::Ignored;
    }
    // Full-width letters and digits.
    if let '\u{ff10}'..='\u{ff19}' | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' = c {
        return char::from_u32(c as u32 - 0xfee0).map_or(CharKind::Separator, |c| normalize(c, term));
    }
    if is_unspaced(c) {
        term.push(c);
        return CharKind::Unspaced;
    }
    // Vowel signs of Indic scripts are not letters, but belong to words.
    let indic = matches!(c, '\u{900}'..='\u{dff}') && !matches!(c, '\u{964}' | '\u{965}');
    if !c.is_alphanumeric() && !indic {
        return CharKind::Separator;
    }
    for lower in c.to_lowercase().filter(|c| !is_mark(*c)) {
        match PLAIN_LETTERS.iter().find(|(_, marked)| marked.contains(lower)) {
            Some((plain, _)) => term.push_str(plain),
            None => term.push(lower),
        }
    }
    CharKind::Letter
}

/// Returns whether `c` is a combining mark, a joiner or a soft hyphen.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{487}' | '\u{591}'..='\u{5bd}' | '\u{5bf}'
        | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}' | '\u{610}'..='\u{61a}' | '\u{640}'
        | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{200c}' | '\u{200d}' | '\u{3099}' | '\u{309a}'
        | '\u{fe00}'..='\u{fe0f}')
}

/// Returns whether `c` is Chinese, Japanese, Korean, Thai, Lao, Burmese or Khmer.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' | '\u{e81}'..='\u{ece}' | '\u{edc}'..='\u{edf}'
        | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{109d}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17d3}'
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{3131}'..='\u{318e}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9d}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(text: &str) -> (String, Vec<CharKind>) {
        let mut term = String::new();
        let kinds = text.chars().map(|c| normalize(c, &mut term)).collect();
        (term, kinds)
    }

    #[test]
    fn similar_spellings_have_the_same_form() {
        for (text, plain) in [
            ("Crème", "creme"),
            ("Cre\u{300}me", "creme"),
            ("STRASSE", "strasse"),
            ("Straße", "strasse"),
            ("İstanbul", "istanbul"),
            ("ＡＢ１", "ab1"),
            ("Łódź", "lodz"),
            ("ΟΔΟΣ", "οδοσ"),
            ("ὁδός", "ὁδόσ"),
            ("Ёлка", "елка"),
            ("Việt", "viet"),
        ] {
            assert_eq!(normalized(text).0, plain);
        }
    }

    #[test]
    fn characters_are_classified() {
        use CharKind::{Ignored, Letter, Separator, Unspaced};
        assert_eq!(
            normalized("a_1 語。한\u{300}").1,
            [Letter, Separator, Letter, Separator, Unspaced, Separator, Unspaced, Ignored]
        );
        assert!(normalized("हिन्दी").1.iter().all(|kind| *kind == Letter));
    }
}
