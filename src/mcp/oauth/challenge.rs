//! The header `www-authenticate` of a refused request.

/// What a server says about the token that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The URL of the metadata of the server.
    pub metadata: Option<String>,
    /// The scopes that the token needs.
    pub scope: Option<String>,
    /// Whether the token lacks a scope.
    pub lacks_scope: bool,
}

impl Challenge {
    /// Reads the header.
    pub fn parse(header: &str) -> Self {
        let value = |name: &str| parameter(header, name).filter(|value| !value.is_empty());
        Self {
            metadata: value("resource_metadata"),
            scope: value("scope"),
            lacks_scope: value("error").is_some_and(|error| error == "insufficient_scope"),
        }
    }
}

/// Returns a parameter of a header, with or without quotes.
fn parameter(header: &str, name: &str) -> Option<String> {
    let mut rest = header;
    while let Some((before, after)) = rest.split_once('=') {
        let own = before.rsplit([' ', ',']).next().unwrap_or_default();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once([',', ' ']).unwrap_or((after, "")),
        };
        if own.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = left;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn parameters_have_quotes_or_none() {
        let header = "Bearer error=\"insufficient_scope\", error_description=\"no scope=x\", \
                      scope=\"a b\", resource_metadata=\"https://crm.example.com/.well-known/x\"";
        let expected = Challenge {
            metadata: Some("https://crm.example.com/.well-known/x".into()),
            scope: Some("a b".into()),
            lacks_scope: true,
        };
        assert_eq!(Challenge::parse(header), expected);
        assert_eq!(Challenge::parse("Bearer scope=a,error=invalid_token").scope.as_deref(), Some("a"));
        assert_eq!(Challenge::parse("Bearer"), Challenge::default());
    }
}
