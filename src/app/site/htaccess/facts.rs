//! The request properties that `.htaccess` rules can read.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Version};

use super::cost::{Pace, Steps};
use crate::event::{Origin, split_port};

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
    /// What the evaluation of rules may still take.
    pub steps: Steps,
    pub pace: Pace,
}

impl<'a> Facts<'a> {
    /// A GET request of an unknown client without TLS. Its look-up may take long.
    pub fn of_get(target: &'a str, query: Option<&'a str>, headers: &'a HeaderMap) -> Facts<'a> {
        fn unknown() -> Origin {
            Origin {
                client: None,
                server: None,
                https: false,
            }
        }
        Facts {
            method: &Method::GET,
            target,
            query,
            version: Version::HTTP_11,
            headers,
            origin: &unknown,
            steps: Steps::default(),
            pace: Pace::Patient,
        }
    }
}

impl Facts<'_> {
    /// Joins all lines of a header, as Apache does. Clients choose the number of lines; from
    /// HTTP/2 on, each cookie may have a separate line.
    pub fn header(&self, name: &str) -> Cow<'_, str> {
        let mut lines = self.headers.get_all(name).iter();
        let Some(first) = lines.next() else {
            return Cow::Borrowed("");
        };
        let mut joined = String::from_utf8_lossy(first.as_bytes());
        let is_cookie = name.eq_ignore_ascii_case("cookie");
        let separator = match is_cookie && self.version >= Version::HTTP_2 {
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
        let has = self.get(name).is_some();
        (is_known && (has || !is_named_group(name))).then_some(has)
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

    /// The steps of finding one variable among all.
    pub(super) fn steps(&self) -> usize {
        1 + (self.set.len() + self.unknown.len()) / 32
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

/// Whether Apache sets variables of such a name, from the named groups of `<FilesMatch>`. Surus
/// does not.
fn is_named_group(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.trim_start_matches("REDIRECT_").starts_with("MATCH_")
}

/// What rules can read during their evaluation.
pub struct FactsView<'a> {
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
pub(super) enum Variable {
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
    pub(super) fn parse(name: &str) -> Option<Variable> {
        // Like Apache, ignores case.
        let upper = name.to_ascii_uppercase();
        if upper.starts_with("HTTP:") {
            return Some(Variable::Header(name["HTTP:".len()..].to_owned()));
        }
        if upper.starts_with("ENV:") {
            let name = &name["ENV:".len()..];
            return (!is_named_group(name)).then(|| Variable::Env(name.to_owned()));
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

    /// Whether the value is known for this request.
    pub(super) fn is_known(&self, view: &FactsView<'_>) -> bool {
        match self {
            Variable::Env(name) => view.env.has(name).is_some(),
            Variable::Client | Variable::ClientPort | Variable::IsIpv6 => {
                view.facts.client().is_some()
            }
            Variable::ServerAddress => view.facts.server().is_some(),
            _ => true,
        }
    }

    pub(super) fn value<'a>(&'a self, view: &FactsView<'a>) -> Cow<'a, str> {
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
                .server_port(&facts.header("host"))
                .into_owned()
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
    let (name, _) = split_port(host);
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
