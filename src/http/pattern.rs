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
    let (mut expected, mut left, mut named) = (pattern, path, Vec::new());
    while let Some((literal, parameter)) = expected.split_once('{') {
        left = left.strip_prefix(literal)?;
        let (name, rest) = parameter.split_once('}')?;
        let (name, end) = match name.strip_suffix('*') {
            Some(name) => (name, left.len()),
            None => (name, left.find('/').unwrap_or(left.len())),
        };
        named.push((name, &left[..end]));
        (expected, left) = (rest, &left[end..]);
    }
    if expected != left {
        return None;
    }
    // Most patterns do not match, so nothing is decoded before all segments are compared.
    let decoded = named.into_iter().map(|(name, segment)| {
        let value = percent_decode_str(segment).decode_utf8().ok()?;
        (!value.is_empty()).then(|| (name, value.into_owned()))
    });
    Some(Params { pattern, values: decoded.collect::<Option<_>>()? })
}
