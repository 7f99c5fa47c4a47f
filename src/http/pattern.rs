//! Path patterns of routes, such as `/v1/sessions/{id}/turns/{turn}`.

use percent_encoding::percent_decode_str;

/// The parameters of a path, decoded, and the pattern that names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    pattern: &'static str,
    values: Vec<(&'static str, String)>,
}

impl Params {
    /// Returns the value of a parameter; empty if the pattern has no such parameter.
    pub fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Returns the value of a parameter as an id. The text is not checked, because the id is only
    /// used to look up stored items.
    pub fn id<'a, I: From<&'a str>>(&'a self, name: &str) -> I {
        self.get(name).into()
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> &'static str {
        self.pattern
    }

    /// Returns all values in the order of the pattern.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(_, value)| value.as_str())
    }
}

/// Matches a percent-encoded path against a pattern. `{name}` matches one segment that is not empty,
/// `{name*}` at the end matches the rest of the path.
pub fn matches(pattern: &'static str, path: &str) -> Option<Params> {
    let (mut rest, mut named) = (Some(path), Vec::new());
    for expected in pattern.split('/') {
        let (segment, next) = match rest?.split_once('/') {
            Some((segment, next)) if !expected.ends_with("*}") => (segment, Some(next)),
            _ => (rest?, None),
        };
        match parameter(expected) {
            Some(name) => named.push((name, segment)),
            None if expected != segment => return None,
            None => {}
        }
        rest = next;
    }
    if rest.is_some() {
        return None;
    }
    // Most patterns do not match, so nothing is decoded before all segments are compared.
    let decoded = named.into_iter().map(|(name, segment)| {
        let value = percent_decode_str(segment).decode_utf8().ok()?;
        (!value.is_empty()).then(|| (name, value.into_owned()))
    });
    Some(Params { pattern, values: decoded.collect::<Option<_>>()? })
}

/// Returns the name of the parameter in a segment of a pattern.
fn parameter(segment: &'static str) -> Option<&'static str> {
    Some(segment.strip_prefix('{')?.strip_suffix('}')?.trim_end_matches('*'))
}
