//! The codes by which users confirm that they have given consent themselves.

use super::Ports;

/// Letters and digits that people do not confuse (Crockford's base 32).
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Number of characters: 40 bits, and a request allows one attempt.
const LENGTH: usize = 8;

/// Returns a random code.
pub fn random(ports: &Ports) -> String {
    let mut bytes = [0; LENGTH];
    ports.entropy.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// Returns a code as the user sees it.
pub fn shown(code: &str) -> String {
    let (first, second) = code.split_at(LENGTH / 2);
    format!("{first}-{second}")
}

/// Returns the code that a user means.
pub fn entered(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric).map(|c| match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        c => c,
    });
    letters.take(LENGTH + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_code_can_be_entered_as_people_write() {
        assert_eq!(shown("K7Q01XPD"), "K7Q0-1XPD");
        for text in ["K7Q0-1XPD", " k7qo lxpd\n", "K7Q0IXPD"] {
            assert_eq!(entered(text), "K7Q01XPD");
        }
        assert_eq!(entered("K7Q0-1XPD-2").len(), 9);
    }
}
