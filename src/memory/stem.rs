//! The Porter stemmer (M. F. Porter, "An algorithm for suffix stripping", 1980), with the two
//! departures of its author's program: `bli` for `abli`, and `logi`.
//!
//! Implemented here because existing crates include tables for other languages or all of Unicode. Stems
//! English only; words with characters other than a–z stay unchanged.

/// Reduces a lower-case English word to its stem: both `memories` and `memory` become `memori`.
pub fn stem(word: &str) -> String {
    if word.len() <= 2 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut word = Word(word.to_owned());
    word.plural();
    word.past();
    word.y();
    word.first_of(&DOUBLE_SUFFIXES, 0);
    word.first_of(&SUFFIXES, 0);
    word.last_suffix();
    word.tidy();
    word.0
}

/// Suffixes of step 2. Longer suffixes precede shorter ones with the same ending.
const DOUBLE_SUFFIXES: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("ousli", "ous"),
    ("eli", "e"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];
/// Suffixes of step 3.
const SUFFIXES: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];
/// Suffixes of step 4. Longer suffixes precede shorter ones with the same ending.
const LAST_SUFFIXES: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ement", "ment", "ant", "ent", "ion", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

struct Word(String);

impl Word {
    fn consonant(&self, at: usize) -> bool {
        match self.0.as_bytes()[at] {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => at == 0 || !self.consonant(at - 1),
            _ => true,
        }
    }

    /// Counts the places in the first `end` letters where a consonant follows a vowel.
    fn measure(&self, end: usize) -> usize {
        let kinds = self.kinds(end);
        kinds.windows(2).filter(|pair| !pair[0] && pair[1]).count()
    }

    /// Returns for each of the first `end` letters whether it is a consonant.
    fn kinds(&self, end: usize) -> Vec<bool> {
        let mut kinds: Vec<bool> = Vec::with_capacity(end);
        for (at, letter) in self.0.bytes().take(end).enumerate() {
            kinds.push(match letter {
                b'a' | b'e' | b'i' | b'o' | b'u' => false,
                b'y' => at == 0 || !kinds[at - 1],
                _ => true,
            });
        }
        kinds
    }

    fn has_vowel(&self, end: usize) -> bool {
        self.kinds(end).contains(&false)
    }

    fn ends_doubled(&self) -> bool {
        let bytes = self.0.as_bytes();
        bytes.len() > 1 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2] && self.consonant(bytes.len() - 1)
    }

    /// Returns whether the first `end` letters end in consonant, vowel, consonant, and the last is not w, x
    /// or y.
    fn ends_short(&self, end: usize) -> bool {
        let kinds = self.kinds(end);
        end > 2
            && kinds[end - 3..] == [true, false, true]
            && !matches!(self.0.as_bytes()[end - 1], b'w' | b'x' | b'y')
    }

    fn cut(&mut self, letters: usize) {
        self.0.truncate(self.0.len() - letters);
    }

    /// Returns the length of the stem before `suffix`, if the word ends in it.
    fn before(&self, suffix: &str) -> Option<usize> {
        self.0.strip_suffix(suffix).map(str::len)
    }

    /// Step 1a.
    fn plural(&mut self) {
        if self.0.ends_with("sses") || self.0.ends_with("ies") {
            self.cut(2);
        } else if self.0.ends_with('s') && !self.0.ends_with("ss") {
            self.cut(1);
        }
    }

    /// Step 1b.
    fn past(&mut self) {
        if let Some(end) = self.before("eed") {
            if self.measure(end) > 0 {
                self.cut(1);
            }
            return;
        }
        let Some(end) = self.before("ed").or_else(|| self.before("ing")).filter(|end| self.has_vowel(*end))
        else {
            return;
        };
        self.0.truncate(end);
        let last = self.0.as_bytes().last().copied();
        if ["at", "bl", "iz"].iter().any(|e| self.0.ends_with(e)) {
            self.0.push('e');
        } else if self.ends_doubled() && !matches!(last, Some(b'l' | b's' | b'z')) {
            self.cut(1);
        } else if self.measure(end) == 1 && self.ends_short(end) {
            self.0.push('e');
        }
    }

    /// Step 1c.
    fn y(&mut self) {
        if let Some(end) = self.before("y").filter(|end| self.has_vowel(*end)) {
            self.0.truncate(end);
            self.0.push('i');
        }
    }

    /// Replaces the first suffix of `table` that the word ends in, if the measure of its stem is large
    /// enough.
    fn first_of(&mut self, table: &[(&str, &str)], more_than: usize) {
        let found = table.iter().find_map(|(suffix, with)| Some((self.before(suffix)?, *with)));
        if let Some((end, with)) = found
            && self.measure(end) > more_than
        {
            self.0.truncate(end);
            self.0.push_str(with);
        }
    }

    /// Step 4.
    fn last_suffix(&mut self) {
        let found = LAST_SUFFIXES.iter().find_map(|suffix| Some((self.before(suffix)?, *suffix)));
        if let Some((end, suffix)) = found {
            let fits = suffix != "ion" || end > 0 && matches!(self.0.as_bytes()[end - 1], b's' | b't');
            if fits && self.measure(end) > 1 {
                self.0.truncate(end);
            }
        }
    }

    /// Step 5.
    fn tidy(&mut self) {
        if let Some(end) = self.before("e") {
            let measure = self.measure(end);
            if measure > 1 || measure == 1 && !self.ends_short(end) {
                self.0.truncate(end);
            }
        }
        if self.0.ends_with("ll") && self.measure(self.0.len()) > 1 {
            self.cut(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of the paper, step by step.
    #[test]
    fn the_examples_of_the_paper_hold() {
        let pairs = "caresses caress ponies poni ties ti caress caress cats cat feed feed agreed agre \
             plastered plaster bled bled motoring motor sing sing conflated conflat troubled troubl sized size \
             hopping hop tanned tan falling fall hissing hiss fizzed fizz failing fail filing file happy happi \
             sky sky relational relat conditional condit rational ration valenci valenc hesitanci hesit \
             digitizer digit conformabli conform radicalli radic differentli differ vileli vile \
             analogousli analog vietnamization vietnam predication predic operator oper feudalism feudal \
             decisiveness decis hopefulness hope callousness callous formaliti formal sensitiviti sensit \
             sensibiliti sensibl triplicate triplic formative form formalize formal electriciti electr \
             electrical electr hopeful hope goodness good revival reviv allowance allow inference infer \
             airliner airlin gyroscopic gyroscop adjustable adjust defensible defens irritant irrit \
             replacement replac adjustment adjust dependent depend adoption adopt homologou homolog \
             communism commun activate activ angulariti angular homologous homolog effective effect \
             bowdlerize bowdler probate probat rate rate cease ceas controll control roll roll \
             generalizations gener oscillators oscil";
        let words: Vec<&str> = pairs.split_whitespace().collect();
        for pair in words.chunks(2) {
            assert_eq!(stem(pair[0]), pair[1], "{}", pair[0]);
        }
    }

    #[test]
    fn other_words_stay_unchanged() {
        for word in ["", "a", "is", "größe", "2023", "c3po", "日本", "naïve"] {
            assert_eq!(stem(word), word);
        }
    }

    proptest! {
        /// `terms::count` compares first letters before it stems.
        #[test]
        fn a_stem_is_never_longer_and_keeps_its_first_letter(word in "[a-z]{1,20}") {
            let stem = stem(&word);
            prop_assert!(!stem.is_empty() && stem.len() <= word.len());
            prop_assert_eq!(&stem[..1], &word[..1]);
        }
    }
}
