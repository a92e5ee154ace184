//! The request properties that `.htaccess` rules can read, and templates that expand them:
//! `%{HTTP_HOST}/$1`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;
use std::string::FromUtf8Error;

use http::{HeaderMap, Method, Version};

use super::pattern::Groups;
use crate::event::Origin;

/// The properties of a request that rules can read.
pub struct Facts<'a> {
    pub method: &'a Method,
    /// The target as the client sent it: path and query, or a whole URL.
    pub target: &'a str,
    pub query: Option<&'a str>,
    pub version: Version,
    pub headers: &'a HeaderMap,
    /// Called only if a rule reads an address or the scheme, because few rules do.
    pub origin: &'a dyn Fn() -> Origin,
}

impl Facts<'_> {
    /// Joins all lines of a header, as Apache does. Clients choose the number of lines; in HTTP/2,
    /// each cookie may have a separate line.
    pub fn header(&self, name: &str) -> Cow<'_, str> {
        let mut lines = self.headers.get_all(name).iter();
        let Some(first) = lines.next() else {
            return Cow::Borrowed("");
        };
        let mut joined = String::from_utf8_lossy(first.as_bytes());
        let is_cookie = name.eq_ignore_ascii_case("cookie");
        let separator = match is_cookie && self.version == Version::HTTP_2 {
            true => "; ",
            false => ", ",
        };
        for line in lines {
            let joined = joined.to_mut();
            joined.push_str(separator);
            joined.push_str(&String::from_utf8_lossy(line.as_bytes()));
        }
        joined
    }

    /// The URL prefix of this host: `http://example.org`.
    pub fn host_url(&self) -> String {
        let scheme = if (self.origin)().https {
            "https"
        } else {
            "http"
        };
        let host = self.header("host").to_ascii_lowercase();
        format!("{scheme}://{host}")
    }

    pub fn has_encoded_question_mark(&self) -> bool {
        let target = self.target.as_bytes();
        target
            .windows(3)
            .any(|bytes| bytes.eq_ignore_ascii_case(b"%3f"))
    }

    pub fn client(&self) -> Option<IpAddr> {
        Some((self.origin)().client?.ip())
    }

    pub fn server(&self) -> Option<IpAddr> {
        Some((self.origin)().server?.ip())
    }
}

/// The environment variables that rules have set.
#[derive(Debug, Default, Clone)]
pub struct Env {
    set: Vec<(String, String)>,
    /// Variables that a rule may have set; whether it did is unknown.
    unknown: Vec<String>,
}

impl Env {
    pub fn get(&self, name: &str) -> Option<&str> {
        // Apache's tables ignore case.
        let found = self
            .set
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// None if unknown.
    pub fn has(&self, name: &str) -> Option<bool> {
        let mut unknown = self.unknown.iter();
        let is_known = !unknown.any(|unknown| unknown.eq_ignore_ascii_case(name));
        is_known.then(|| self.get(name).is_some())
    }

    pub fn set_unknown(&mut self, name: &str) {
        if self.has(name).is_some() {
            self.unknown.push(name.to_owned());
        }
    }

    pub fn set(&mut self, name: &str, value: String) {
        self.unset(name);
        self.set.push((name.to_owned(), value));
    }

    pub fn unset(&mut self, name: &str) {
        self.set.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self.unknown.retain(|key| !key.eq_ignore_ascii_case(name));
    }

    /// Copies all variables of another environment.
    pub fn overlay(&mut self, other: Env) {
        for (name, value) in other.set {
            self.set(&name, value);
        }
        for name in other.unknown {
            self.set_unknown(&name);
        }
    }

    /// Renames the variables as Apache does when a request continues with another URL.
    pub fn redirected(&mut self) {
        let set = self.set.iter_mut().map(|(name, _)| name);
        for name in set.chain(&mut self.unknown) {
            name.insert_str(0, "REDIRECT_");
        }
        self.set("REDIRECT_STATUS", "200".into());
    }
}

/// What rules can read during their evaluation.
pub struct View<'a> {
    pub facts: &'a Facts<'a>,
    pub document_root: &'a str,
    /// The decoded path of this pass.
    pub path: &'a str,
    /// The end of the part of the path that names a file.
    pub end: usize,
    /// The replacement for the file's absolute path, if a rule has set one.
    pub filename: Option<&'a str>,
    pub query: Option<&'a str>,
    pub env: &'a Env,
    pub is_subrequest: bool,
}

/// A variable that rules can read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    Filename,
    Uri,
    Query,
    Method,
    Header(String),
    Https,
    Scheme,
    Client,
    ClientPort,
    DocumentRoot,
    ServerName,
    ServerAddress,
    ServerPort,
    Protocol,
    RequestLine,
    PathInfo,
    IsSubrequest,
    IsIpv6,
    Env(String),
    /// Always the same text.
    Fixed(&'static str),
}

impl Variable {
    /// None for a variable that Surus cannot know.
    fn parse(name: &str) -> Option<Variable> {
        // Like Apache, ignores case.
        let upper = name.to_ascii_uppercase();
        if upper.starts_with("HTTP:") {
            return Some(Variable::Header(name["HTTP:".len()..].to_owned()));
        }
        if upper.starts_with("ENV:") {
            return Some(Variable::Env(name["ENV:".len()..].to_owned()));
        }
        let name = upper.as_str();
        Some(match name {
            "REQUEST_FILENAME" | "SCRIPT_FILENAME" => Variable::Filename,
            "REQUEST_URI" => Variable::Uri,
            "QUERY_STRING" => Variable::Query,
            "REQUEST_METHOD" => Variable::Method,
            "HTTP_HOST" => Variable::Header("host".into()),
            "HTTP_USER_AGENT" => Variable::Header("user-agent".into()),
            "HTTP_REFERER" => Variable::Header("referer".into()),
            "HTTP_COOKIE" => Variable::Header("cookie".into()),
            "HTTP_FORWARDED" => Variable::Header("forwarded".into()),
            "HTTP_ACCEPT" => Variable::Header("accept".into()),
            "HTTP_PROXY_CONNECTION" => Variable::Header("proxy-connection".into()),
            "HTTPS" | "SSL:HTTPS" => Variable::Https,
            "REQUEST_SCHEME" => Variable::Scheme,
            // Host names of clients are not looked up, as in Apache's default configuration.
            "REMOTE_ADDR" | "REMOTE_HOST" | "CONN_REMOTE_ADDR" => Variable::Client,
            "REMOTE_PORT" => Variable::ClientPort,
            "DOCUMENT_ROOT" | "CONTEXT_DOCUMENT_ROOT" => Variable::DocumentRoot,
            "SERVER_NAME" => Variable::ServerName,
            "SERVER_ADDR" => Variable::ServerAddress,
            "SERVER_PORT" => Variable::ServerPort,
            "SERVER_PROTOCOL" => Variable::Protocol,
            "THE_REQUEST" => Variable::RequestLine,
            "PATH_INFO" => Variable::PathInfo,
            "IS_SUBREQ" => Variable::IsSubrequest,
            "SERVER_SOFTWARE" => Variable::Fixed("Apache"),
            "IPV6" => Variable::IsIpv6,
            "REMOTE_USER" | "REMOTE_IDENT" | "AUTH_TYPE" | "CONTEXT_PREFIX" => Variable::Fixed(""),
            _ if name.starts_with("TIME") || name.contains(':') => return None,
            "SERVER_ADMIN" | "API_VERSION" | "SCRIPT_USER" | "SCRIPT_GROUP" => return None,
            // As in Apache, an unknown name expands to nothing.
            _ => Variable::Fixed(""),
        })
    }

    fn value<'a>(&'a self, view: &View<'a>) -> Cow<'a, str> {
        let facts = view.facts;
        let address = |address: Option<IpAddr>| address.map_or(String::new(), |ip| ip.to_string());
        match self {
            Variable::Filename => match view.filename {
                Some(filename) => filename.into(),
                None => format!("{}{}", view.document_root, &view.path[..view.end]).into(),
            },
            Variable::Uri => view.path.into(),
            Variable::Query => view.query.unwrap_or_default().into(),
            Variable::Method => facts.method.as_str().into(),
            Variable::Header(name) => facts.header(name),
            Variable::Https if (facts.origin)().https => "on".into(),
            Variable::Https => "off".into(),
            Variable::Scheme if (facts.origin)().https => "https".into(),
            Variable::Scheme => "http".into(),
            Variable::Client => address(facts.client()).into(),
            Variable::ClientPort => (facts.origin)()
                .client
                .map_or(String::new(), |client| client.port_text().to_owned())
                .into(),
            Variable::DocumentRoot => view.document_root.into(),
            Variable::ServerName => server_name(&facts.header("host")).into(),
            Variable::ServerAddress => address(facts.server()).into(),
            Variable::ServerPort => (facts.origin)()
                .server
                .map_or(String::new(), |server| server.port_text().to_owned())
                .into(),
            Variable::Protocol => protocol(facts.version).into(),
            Variable::RequestLine => format!(
                "{} {} {}",
                facts.method,
                facts.target,
                protocol(facts.version)
            )
            .into(),
            Variable::PathInfo => view.path[view.end..].into(),
            Variable::IsSubrequest if view.is_subrequest => "true".into(),
            Variable::IsSubrequest => "false".into(),
            Variable::IsIpv6 => match facts.client().map(|client| client.to_canonical()) {
                Some(IpAddr::V6(_)) => "on".into(),
                _ => "off".into(),
            },
            Variable::Env(name) => view.env.get(name).unwrap_or_default().into(),
            Variable::Fixed(text) => (*text).into(),
        }
    }
}

/// A `Host` header as Apache normalizes it: lower case, without port and trailing dot.
fn server_name(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn bytes_of(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `$1`: a group of the rule's pattern.
    Rule(usize),
    /// `%1`: a group of the last matching condition.
    Condition(usize),
    Variable(Variable),
}

/// The text that a pattern matched, with its groups.
#[derive(Debug, Clone, Default)]
pub struct Matched {
    pub text: String,
    pub groups: Groups,
}

impl Matched {
    /// Returns bytes, because patterns match bytes: a group may end inside a character.
    pub fn group(&self, number: usize) -> &[u8] {
        let range: Option<Range<usize>> = self.groups[number].clone();
        range.map_or(&[], |range| &self.text.as_bytes()[range])
    }
}

/// How a rule encodes groups.
pub type Escape = fn(&[u8]) -> String;

impl Template {
    /// The error names the unknown variable.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$', '%']) {
            literal.push_str(&rest[..at]);
            let found = &rest[at..];
            let mut chars = found.chars();
            let mark = chars.next();
            let next = chars.next();
            let piece = match (mark, next) {
                (Some('\\'), Some(next)) => {
                    literal.push(next);
                    rest = &found[1 + next.len_utf8()..];
                    continue;
                }
                (Some(mark), Some(digit)) if digit.is_ascii_digit() => {
                    rest = &found[2..];
                    let number = digit as usize - '0' as usize;
                    match mark {
                        '$' => Piece::Rule(number),
                        _ => Piece::Condition(number),
                    }
                }
                (Some(mark), Some('{')) => {
                    let Some((name, behind)) = found[2..].split_once('}') else {
                        return Err(format!("{found} is not closed"));
                    };
                    rest = behind;
                    match Variable::parse(name) {
                        Some(variable) if mark == '%' => Piece::Variable(variable),
                        _ => return Err(format!("{mark}{{{name}}}")),
                    }
                }
                _ => {
                    literal.push_str(&found[..1]);
                    rest = &found[1..];
                    continue;
                }
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Template(pieces))
    }

    /// Whether the text depends on groups of the rule's pattern.
    pub fn has_rule_groups(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Rule(_)))
    }

    /// The part before the first question mark.
    pub fn before_query(&self) -> Template {
        let mut before = Vec::new();
        for piece in &self.0 {
            if let Piece::Text(text) = piece
                && let Some((text, _)) = text.split_once('?')
            {
                before.push(Piece::Text(text.to_owned()));
                break;
            }
            before.push(piece.clone());
        }
        Template(before)
    }

    /// Whether all values of the template are known.
    pub fn is_known(&self, env: &Env) -> bool {
        let is_known = |piece: &Piece| match piece {
            Piece::Variable(Variable::Env(name)) => env.has(name).is_some(),
            _ => true,
        };
        env.unknown.is_empty() || self.0.iter().all(is_known)
    }

    /// Expands all placeholders. Applies `escape` to groups.
    pub fn expand<'a>(
        &'a self,
        view: &View<'a>,
        rule: &'a Matched,
        condition: &'a Matched,
        escape: Option<Escape>,
    ) -> Cow<'a, str> {
        let group = |matched: &'a Matched, number: usize| -> Cow<'a, [u8]> {
            match escape {
                Some(escape) => escape(matched.group(number)).into_bytes().into(),
                None => matched.group(number).into(),
            }
        };
        let piece = |piece: &'a Piece| -> Cow<'a, [u8]> {
            match piece {
                Piece::Text(text) => text.as_bytes().into(),
                Piece::Rule(number) => group(rule, *number),
                Piece::Condition(number) => group(condition, *number),
                Piece::Variable(variable) => bytes_of(variable.value(view)),
            }
        };
        match self.0.as_slice() {
            [] => "".into(),
            [Piece::Text(text)] => text.into(),
            [Piece::Variable(variable)] => variable.value(view),
            pieces => {
                let mut bytes = Vec::new();
                for one in pieces {
                    bytes.extend_from_slice(&piece(one));
                }
                let lossy =
                    |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
                String::from_utf8(bytes).unwrap_or_else(lossy).into()
            }
        }
    }

    /// Whether the template is the path of the requested file.
    pub fn is_filename(&self) -> bool {
        matches!(self.0.as_slice(), [Piece::Variable(Variable::Filename)])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn template_with_groups_and_variables_is_expanded() {
        let none = HeaderMap::new();
        let facts = Facts {
            method: &Method::GET,
            target: "/a?b",
            query: Some("b"),
            version: Version::HTTP_11,
            headers: &none,
            origin: &|| Origin {
                client: None,
                server: None,
                https: true,
            },
        };
        let env = Env::default();
        let view = View {
            facts: &facts,
            document_root: "/srv",
            path: "/dir/file/info",
            end: 9,
            filename: None,
            query: Some("b"),
            env: &env,
            is_subrequest: false,
        };
        let matched = Matched {
            text: "xyz".into(),
            groups: std::array::from_fn(|at| (at == 1).then_some(1..3)),
        };
        let say = |text: &str| {
            let template = Template::parse(text).unwrap();
            let none = Matched::default();
            template.expand(&view, &matched, &none, None).into_owned()
        };
        assert_eq!(say("a$1b%1$9"), "ayzb");
        assert_eq!(say(r"\$1\%{X}$x%"), "$1%{X}$x%");
        assert_eq!(say("%{REQUEST_FILENAME}%{PATH_INFO}"), "/srv/dir/file/info");
        assert_eq!(say("%{THE_REQUEST}"), "GET /a?b HTTP/1.1");
        assert_eq!(say("%{HTTPS}|%{ENV:X}|%{NO_SUCH}"), "on||");
        for unknown in ["%{LA-U:REMOTE_USER}", "${map:$1}", "%{TIME_HOUR}", "%{x"] {
            assert!(Template::parse(unknown).is_err(), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_template_is_parsed_or_rejected(
            text in r"(\$|%|\{|\}|1|\\|é|x|HTTP:|ENV:){0,12}",
        ) {
            let _ = Template::parse(&text);
        }
    }
}
