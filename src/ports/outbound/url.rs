//! URLs with placeholders in path and query. The host is fixed, so that no argument chooses where a request goes.

use super::template::{Budget, Encoding, Template, Unfilled, Values, split_outside};
use crate::types::Invalid;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use url::{Origin, Url};

/// Maximum size of a URL with its values, in bytes.
const MAX_BYTES: usize = 16_000;
/// All characters but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// All characters that cannot be in a segment of a path. Some servers expect the others as they are, such as the colon in
/// a token.
const NOT_IN_SEGMENT: &AsciiSet = &RESERVED
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

const PATH: Encoding = Encoding { arg: encoded, secret: in_segment };
const QUERY: Encoding = Encoding { arg: encoded, secret: encoded };

/// Encodes a text for any place in a URL.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes a secret for a path.
pub fn in_segment(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_SEGMENT).to_string()
}

/// A URL with placeholders.
#[derive(Clone, Debug)]
pub struct UrlTemplate {
    /// Scheme, host and port as they are written.
    start: String,
    /// Scheme, host and port as clients read them.
    origin: Origin,
    segments: Vec<Template>,
    query: Vec<(Template, Option<Template>)>,
}

impl UrlTemplate {
    /// Parses a URL with placeholders.
    ///
    /// # Errors
    /// A placeholder in the wrong place or form, a character that a URL does not contain, or no host.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (scheme, rest) = text.split_once("://").ok_or(NOT_ABSOLUTE)?;
        let (host, rest) =
            rest.split_at_checked(rest.find(['/', '?', '#']).unwrap_or(rest.len())).unwrap_or((rest, ""));
        if [scheme, host].iter().any(|part| part.contains("{{") || part.contains("${")) {
            return Err("arguments and secrets cannot be in the scheme, the host or the port".into());
        }
        // Clients skip further slashes, so that a part of the path would become the host.
        if !matches!(scheme, "http" | "https") || host.is_empty() {
            return Err(NOT_ABSOLUTE.into());
        }
        let parts = split_outside(rest, '?');
        let (path, query) = parts.split_first().ok_or("expected a path")?;
        let query = query.join("?");
        let is_plain =
            |part: &str| !part.contains(|c: char| c == '\\' || c == '#' || c.is_control() || c == ' ');
        let plain = Template::parse(rest)?.text();
        if !is_plain(host) || !is_plain(&plain) {
            return Err("a URL has no spaces, backslashes, control characters, and no `#`".into());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        let segments = split_outside(path, '/').into_iter().map(Template::parse).collect::<Result<_, _>>()?;
        let pairs = split_outside(&query, '&').into_iter().filter(|pair| !pair.is_empty());
        let pair = |text: &str| -> Result<_, Invalid> {
            let parts = split_outside(text, '=');
            let (name, value) = parts.split_first().ok_or("expected a name")?;
            let value = (!value.is_empty()).then(|| Template::parse(&value.join("="))).transpose()?;
            Ok((Template::parse(name)?, value))
        };
        let query = pairs.map(pair).collect::<Result<_, _>>()?;
        let start = format!("{scheme}://{host}");
        let origin = origin(&start)?;
        Ok(Self { start, origin, segments, query })
    }

    /// Returns the host.
    pub fn host(&self) -> String {
        match &self.origin {
            Origin::Tuple(_, host, _) => host.to_string(),
            Origin::Opaque(_) => String::new(),
        }
    }

    /// Returns the templates.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let pairs = self.query.iter().flat_map(|(name, value)| std::iter::once(name).chain(value));
        self.segments.iter().chain(pairs)
    }

    /// Returns a URL of a call, for checks.
    pub fn sample(&self) -> Result<String, Invalid> {
        let args: Map<String, Value> =
            self.templates().flat_map(Template::args).map(|name| (name.to_owned(), "x".into())).collect();
        let secrets: BTreeMap<String, String> =
            self.templates().flat_map(Template::secrets).map(|name| (name.to_owned(), "x".into())).collect();
        self.fill(&Values { args: &args, secrets: &secrets })
    }

    /// Inserts the values of a call. A pair of the query without its argument is left out.
    ///
    /// # Errors
    /// An argument of the path that is missing, or that would change which path it is; a URL that is too long.
    pub fn fill(&self, values: &Values<'_>) -> Result<String, Invalid> {
        let (mut url, budget) = (self.start.clone(), Budget::new(MAX_BYTES));
        for segment in &self.segments {
            let text = segment.fill(values, PATH, &budget).map_err(|unfilled| match unfilled {
                Unfilled::Missing(name) => {
                    format!("the argument `{name}` is missing, and the path of the URL needs it")
                }
                Unfilled::TooLarge => too_long(),
            })?;
            // Some servers decode the whole path before they read its parts.
            let decoded = percent_decode_str(&text).decode_utf8_lossy();
            let is_dots = decoded.split(['/', '\\']).any(|part| matches!(part, "." | ".."));
            if !segment.is_fixed() && (is_dots || text.is_empty()) {
                let names = segment.args().chain(segment.secrets()).collect::<Vec<_>>().join("`, `");
                let why = "a part of the URL's path must not be empty, `.` or `..`";
                return Err(Invalid(format!("the value of `{names}` cannot be used: {why}")));
            }
            url.push('/');
            url.push_str(&text);
        }
        let mut separator = '?';
        for pair in &self.query {
            for pair in pairs(pair, values, &budget).map_err(|_too_large| too_long())? {
                url.push(separator);
                url.push_str(&pair);
                separator = '&';
            }
        }
        if url.len() > MAX_BYTES {
            return Err(too_long().into());
        }
        match origin(&url)? == self.origin {
            true => Ok(url),
            false => Err("the request would go to another host than the definition names".into()),
        }
    }
}

const NOT_ABSOLUTE: &str = "expected an absolute https URL with a host";

fn too_long() -> String {
    format!("the request cannot be sent: its URL would have more than {MAX_BYTES} bytes")
}

fn origin(url: &str) -> Result<Origin, Invalid> {
    let url = Url::parse(url).map_err(|error| format!("not an absolute URL: {error}"))?;
    url.has_host().then(|| url.origin()).ok_or_else(|| NOT_ABSOLUTE.into())
}

/// Returns a pair of the query: once for each item if its value is a list, and not at all without its argument.
fn pairs(
    (name, value): &(Template, Option<Template>),
    values: &Values<'_>,
    budget: &Budget,
) -> Result<Vec<String>, Unfilled> {
    let fill = |template: &Template| match template.fill(values, QUERY, budget) {
        Ok(text) => Ok(Some(text)),
        Err(Unfilled::Missing(_)) => Ok(None),
        Err(too_large) => Err(too_large),
    };
    let Some(name) = fill(name)? else { return Ok(Vec::new()) };
    let Some(value) = value else { return Ok(vec![name]) };
    if let Some(arg) = value.only_arg()
        && let Some(Value::Array(items)) = values.args.get(arg)
    {
        let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
        let pair = |item: &Value| {
            let pair = format!("{name}={}", encoded(&text(item)));
            budget.spend(pair.len())?;
            Ok(pair)
        };
        return items.iter().map(pair).collect();
    }
    Ok(fill(value)?.map(|value| format!("{name}={value}")).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn filled(text: &str, args: Value) -> Result<String, Invalid> {
        let secrets = BTreeMap::from([("T".to_owned(), "1:a/b?c&d%".to_owned())]);
        let args = args.as_object().cloned().unwrap_or_default();
        UrlTemplate::parse(text).expect("a URL").fill(&Values { args: &args, secrets: &secrets })
    }

    #[test]
    fn values_are_encoded_for_their_place() {
        let url = filled(
            "https://a.example/v1/{{id}}.json?q={{q}}&n={{n}}&fixed",
            json!({"id": "a/.b?#", "q": "x&y=ü +%", "n": 7}),
        );
        let expected = "https://a.example/v1/a%2F.b%3F%23.json?q=x%26y%3D%C3%BC%20%2B%25&n=7&fixed";
        assert_eq!(url.as_deref(), Ok(expected));
        let secret = filled("https://a.example/bot${secret:T}/x?key=${secret:T}", json!({}));
        assert_eq!(secret.as_deref(), Ok("https://a.example/bot1:a%2Fb%3Fc&d%25/x?key=1%3Aa%2Fb%3Fc%26d%25"));
        let list =
            filled("https://a.example/?tag={{tags}}&o={{o}}", json!({"tags": ["a b", 2], "o": {"k": 1}}));
        assert_eq!(list.as_deref(), Ok("https://a.example/?tag=a%20b&tag=2&o=%7B%22k%22%3A1%7D"));
    }

    #[test]
    fn a_pair_without_its_argument_is_left_out() {
        let text = "https://a.example/s?q={{q}}&page={{page}}&x=1";
        assert_eq!(filled(text, json!({"page": 2})).as_deref(), Ok("https://a.example/s?page=2&x=1"));
        assert_eq!(
            filled(text, json!({"q": null, "page": ""})).as_deref(),
            Ok("https://a.example/s?page=&x=1")
        );
        assert_eq!(
            filled("https://a.example/s?q={{q}}", json!({"q": []})).as_deref(),
            Ok("https://a.example/s")
        );
        assert_eq!(filled("https://a.example", json!({})).as_deref(), Ok("https://a.example/"));
    }

    #[test]
    fn no_argument_changes_the_structure_of_the_path() {
        let text = "https://a.example/users/{{id}}/posts";
        for bad in ["", ".", "..", "../admin", "a/../b", "a\\..", "./a"] {
            let error = filled(text, json!({"id": bad})).expect_err(bad);
            assert!(error.0.contains("`id`"), "{error}");
        }
        assert!(filled("https://a.example/.{{id}}", json!({"id": "."})).is_err());
        assert!(filled("https://a.example/%2{{id}}", json!({"id": "e."})).is_err());
        assert_eq!(
            filled(text, json!({"id": "%2e%2e"})).as_deref(),
            Ok("https://a.example/users/%252e%252e/posts")
        );
        let missing = filled(text, json!({})).expect_err("missing");
        assert_eq!(missing.0, "the argument `id` is missing, and the path of the URL needs it");
    }

    #[test]
    fn the_host_is_fixed() {
        for bad in [
            "{{url}}",
            "{{scheme}}://a.example/",
            "https://{{host}}/",
            "https://a.{{domain}}/",
            "https://a.example:{{port}}/",
            "https://${secret:HOST}/",
            "https://{{user}}@a.example/",
            "https://a.example\\{{x}}/",
            "https://a.example/a b",
            "https://a.example/a#{{b}}",
            "https://a.example/{{a",
            "/relative",
            "https:///{{host}}/x",
            "https:////a.example/{{x}}",
            "https:/a.example/{{x}}",
            "https://?{{x}}",
            "HTTPS://a.example/",
            " https://a.example/",
            "ftp://a.example/",
            "ws://a.example/",
        ] {
            assert!(UrlTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
