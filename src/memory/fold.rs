//! How characters are written in terms: what reads alike is alike.

/// What becomes of a character of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// A letter or digit of a script that puts spaces between words.
    Letter,
    /// A sign of a script that does not, or in which words grow by endings (Korean).
    Sign,
    /// Something that neither stands in a term nor ends one, such as an accent.
    Nothing,
    /// Whatever stands between words.
    Gap,
}

/// Latin letters with marks, and what they are without.
const PLAIN: [(&str, &str); 30] = [
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

/// Says what `c` is, and appends to `term` what is left of it in lower case and without marks.
pub fn fold(c: char, term: &mut String) -> Folded {
    if c.is_ascii() {
        if c.is_ascii_alphanumeric() {
            term.push(c.to_ascii_lowercase());
            return Folded::Letter;
        }
        return Folded::Gap;
    }
    if is_mark(c) {
        return Folded::Nothing;
    }
    // Letters and digits as wide as a Chinese character.
    if let '\u{ff10}'..='\u{ff19}' | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' = c {
        return char::from_u32(c as u32 - 0xfee0).map_or(Folded::Gap, |c| fold(c, term));
    }
    if is_sign(c) {
        term.push(c);
        return Folded::Sign;
    }
    // Vowel signs of the scripts of India are no letters of their own, but stand in words.
    let indic = matches!(c, '\u{900}'..='\u{dff}') && !matches!(c, '\u{964}' | '\u{965}');
    if !c.is_alphanumeric() && !indic {
        return Folded::Gap;
    }
    for lower in c.to_lowercase().filter(|c| !is_mark(*c)) {
        match PLAIN.iter().find(|(_, marked)| marked.contains(lower)) {
            Some((plain, _)) => term.push_str(plain),
            None => term.push(lower),
        }
    }
    Folded::Letter
}

/// Accents and points that stand on other characters, joiners, and soft hyphens.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{483}'..='\u{487}' | '\u{591}'..='\u{5bd}' | '\u{5bf}'
        | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}' | '\u{610}'..='\u{61a}' | '\u{640}'
        | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{200c}' | '\u{200d}' | '\u{3099}' | '\u{309a}'
        | '\u{fe00}'..='\u{fe0f}')
}

/// Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer.
fn is_sign(c: char) -> bool {
    matches!(c, '\u{e01}'..='\u{e3a}' | '\u{e40}'..='\u{e4e}' | '\u{e81}'..='\u{ece}' | '\u{edc}'..='\u{edf}'
        | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{109d}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17d3}'
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{3131}'..='\u{318e}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9d}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> (String, Vec<Folded>) {
        let mut term = String::new();
        let kinds = text.chars().map(|c| fold(c, &mut term)).collect();
        (term, kinds)
    }

    #[test]
    fn what_reads_alike_is_alike() {
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
            assert_eq!(folded(text).0, plain);
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        use Folded::{Gap, Letter, Nothing, Sign};
        assert_eq!(folded("a_1 語。한\u{300}").1, [Letter, Gap, Letter, Gap, Sign, Gap, Sign, Nothing]);
        assert!(folded("हिन्दी").1.iter().all(|kind| *kind == Letter));
    }
}
