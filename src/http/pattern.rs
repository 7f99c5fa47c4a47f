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
    let mut values = Vec::new();
    let mut rest = Some(path);
    for expected in pattern.split('/') {
        let here = rest?;
        let (segment, remaining) = match here.split_once('/') {
            Some((segment, remaining)) if !expected.ends_with("*}") => (segment, Some(remaining)),
            _ => (here, None),
        };
        rest = remaining;
        match expected.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => {
                let value = percent_decode_str(segment).decode_utf8().ok()?;
                if value.is_empty() {
                    return None;
                }
                values.push((name.trim_end_matches('*'), value.into_owned()));
            }
            None if expected == segment => {}
            None => return None,
        }
    }
    rest.is_none().then_some(Params { pattern, values })
}
