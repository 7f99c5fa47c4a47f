//! The header `www-authenticate` of a refused request.

use http_auth::parse_challenges;

/// The token that a server asks for.
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
    /// Reads the header. A malformed header, or one without the scheme `Bearer`, asks for nothing in particular.
    pub fn parse(header: &str) -> Self {
        let challenges = parse_challenges(header).unwrap_or_default();
        let bearer = challenges.into_iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        let params = bearer.map(|challenge| challenge.params).unwrap_or_default();
        let value = |name: &str| {
            let own = params.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            own.map(|(_, value)| value.to_unescaped()).filter(|value| !value.is_empty())
        };
        Self {
            metadata: value("resource_metadata"),
            scope: value("scope"),
            lacks_scope: value("error").is_some_and(|error| error == "insufficient_scope"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn parameters_have_quotes_or_none() {
        let header = "Basic realm=\"x\", Bearer error=\"insufficient_scope\", error_description=\"no \\\"scope=x\\\"\", \
                      scope=\"a b\", resource_metadata=\"https://crm.example.com/.well-known/x\"";
        let expected = Challenge {
            metadata: Some("https://crm.example.com/.well-known/x".into()),
            scope: Some("a b".into()),
            lacks_scope: true,
        };
        assert_eq!(Challenge::parse(header), expected);
        assert_eq!(Challenge::parse("Bearer scope=a,error=invalid_token").scope.as_deref(), Some("a"));
        for empty in ["Bearer", "Bearer scope=\"\"", "Digest scope=a", "", "=,"] {
            assert_eq!(Challenge::parse(empty), Challenge::default(), "{empty}");
        }
    }
}
