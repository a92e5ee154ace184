//! Reads formats as nginx (`log_format`) and Apache (`LogFormat`) write them.

use http::header::HeaderName;

use super::escape::Escape;
use super::kept::Field;
use super::template::{CONVERSIONS, LineTemplate, LogValue, Piece, TimeFormat, TimeOf, Unit};

/// The variables of nginx that exist here.
const NGINX: &[&str] = &[
    "args",
    "arg_NAME",
    "body_bytes_sent",
    "bytes_sent",
    "cookie_NAME",
    "engine",
    "host",
    "http_NAME",
    "is_args",
    "msec",
    "pid",
    "query_string",
    "realip_remote_addr",
    "remote_addr",
    "remote_user",
    "request",
    "request_id",
    "request_length",
    "request_method",
    "request_time",
    "request_uri",
    "scheme",
    "sent_http_NAME",
    "server_addr",
    "server_name",
    "server_port",
    "server_protocol",
    "ssl_cipher",
    "ssl_protocol",
    "status",
    "time_iso8601",
    "time_local",
    "upstream_header_time",
    "uri",
];

/// The directives of Apache that exist here.
const APACHE: &str = "%%, %a, %{c}a, %A, %b, %B, %{NAME}C, %D, %h, %H, %{NAME}i, %I, %l, %L, %m, \
                      %{engine}n, %{NAME}o, %O, %p, %P, %q, %r, %s, %t, %{FORMAT}t, %T, %{UNIT}T, \
                      %u, %U, %v, %V, %{SSL_PROTOCOL}x, %{SSL_CIPHER}x";

/// Apache's formats with a name.
const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;

/// The template of a format, or what is wrong with it.
pub fn template(format: &str) -> Result<LineTemplate, String> {
    let mut made = LineTemplate {
        pieces: Vec::new(),
        escape: Escape::Apache,
        fields: Vec::new(),
    };
    match format {
        "common" => apache(&mut made, COMMON)?,
        "combined" => apache(&mut made, COMBINED)?,
        _ => match (format.contains('$'), format.contains('%')) {
            (true, false) => nginx(&mut made, format)?,
            (false, true) => apache(&mut made, format)?,
            (true, true) => {
                return Err(format!(
                    "`{format}` has `$` and `%`; write either nginx's variables, such as \
                     `$remote_addr`, or Apache's directives, such as `%h`"
                ));
            }
            (false, false) => {
                return Err(format!(
                    "`{format}` is not a format; write `off`, `text`, `json`, `common`, \
                     `combined`, or variables of nginx (`$remote_addr`) or Apache (`%h`)"
                ));
            }
        },
    }
    Ok(made)
}

impl LineTemplate {
    fn literal(&mut self, letter: char) {
        match self.pieces.last_mut() {
            Some(Piece::Literal(text)) => text.push(letter),
            _ => self.pieces.push(Piece::Literal(letter.into())),
        }
    }

    /// A value that requests keep; once for all pieces that need it.
    fn keep(&mut self, field: Field) -> LogValue {
        let known = self.fields.iter().position(|known| *known == field);
        LogValue::Kept(known.unwrap_or_else(|| {
            self.fields.push(field);
            self.fields.len() - 1
        }))
    }
}

fn nginx(to: &mut LineTemplate, format: &str) -> Result<(), String> {
    to.escape = Escape::Nginx;
    let mut rest = format;
    if let Some(escaped) = format.strip_prefix("escape=") {
        let (way, lines) = escaped.split_once(' ').unwrap_or((escaped, ""));
        to.escape = match way {
            "default" => Escape::Nginx,
            "json" => Escape::Json,
            _ => {
                return Err(format!(
                    "`escape={way}` is not supported; write `escape=json`, or nothing for nginx's \
                     default"
                ));
            }
        };
        rest = lines.trim_start();
    }
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        if letter != '$' {
            to.literal(letter);
            continue;
        }
        let (name, after) = nginx_name(rest)?;
        let value = nginx_value(to, name)?;
        to.pieces.push(Piece::LogValue(value));
        rest = after;
    }
    Ok(())
}

/// The variable's name after a `$`, and what follows.
fn nginx_name(text: &str) -> Result<(&str, &str), String> {
    let braces = text.strip_prefix('{');
    let inside = braces.unwrap_or(text);
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    let (name, after) = inside.split_at(inside.find(is_other).unwrap_or(inside.len()));
    let after = match braces {
        Some(_) => after.strip_prefix('}'),
        None => Some(after),
    };
    match after {
        Some(after) if !name.is_empty() => Ok((name, after)),
        _ => Err(format!("no variable's name follows `$` in `${text}`")),
    }
}

fn nginx_value(to: &mut LineTemplate, name: &str) -> Result<LogValue, String> {
    let header = |name: &str| HeaderName::try_from(name.replace('_', "-")).ok();
    let end = |format| LogValue::Time(TimeOf::End, format);
    let field = match name {
        "remote_user" => Field::User,
        "host" => Field::Host,
        "scheme" => Field::Scheme,
        "server_name" => Field::Site,
        "realip_remote_addr" => Field::PeerAddress,
        "server_addr" => Field::ServerAddress,
        "server_port" => Field::ServerPort,
        "ssl_protocol" => Field::Tls("SSL_PROTOCOL"),
        "ssl_cipher" => Field::Tls("SSL_CIPHER"),
        "args" | "query_string" => return Ok(LogValue::Query),
        "body_bytes_sent" => return Ok(LogValue::Bytes),
        "bytes_sent" => return Ok(LogValue::BytesSent),
        "engine" => return Ok(LogValue::Engine),
        "is_args" => return Ok(LogValue::Mark),
        "msec" => return Ok(end(TimeFormat::Unix(Unit::SecondsAndMillis))),
        "pid" => return Ok(LogValue::Process),
        "remote_addr" => return Ok(LogValue::Client),
        "request" => return Ok(LogValue::Request),
        "request_id" => return Ok(LogValue::RequestId),
        "request_length" => return Ok(LogValue::BytesReceived),
        "request_method" => return Ok(LogValue::Method),
        "request_time" => return Ok(LogValue::Took(Unit::SecondsAndMillis)),
        "request_uri" => return Ok(LogValue::Target),
        "server_protocol" => return Ok(LogValue::Protocol),
        "status" => return Ok(LogValue::Status),
        "time_iso8601" => return Ok(end(TimeFormat::Iso)),
        "time_local" => return Ok(end(TimeFormat::Common)),
        "upstream_header_time" => return Ok(LogValue::Answered),
        "uri" => return Ok(LogValue::Path),
        _ => {
            let named = |prefix| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            if let Some(name) = named("arg_") {
                return Ok(LogValue::Parameter(name.into()));
            }
            let cookie = named("cookie_").map(|name| Field::Cookie(name.into()));
            let sent = || Some(Field::Sent(header(named("sent_http_")?)?));
            let received = || Some(Field::Header(header(named("http_")?)?));
            let field = cookie.or_else(sent).or_else(received);
            field.ok_or_else(|| {
                format!(
                    "`${name}` is not a variable of the access log; there are ${}",
                    NGINX.join(", $")
                )
            })?
        }
    };
    Ok(to.keep(field))
}

fn apache(to: &mut LineTemplate, format: &str) -> Result<(), String> {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // As Apache's files write quotes and line breaks within a format.
            '\\' => match letters.clone().next() {
                Some(next @ ('"' | '\\' | 'n' | 't')) => {
                    letters.next();
                    to.literal(match next {
                        'n' => '\n',
                        't' => '\t',
                        next => next,
                    });
                }
                _ => to.literal(letter),
            },
            '%' => directive(to, &mut letters)?,
            letter => to.literal(letter),
        }
    }
    Ok(())
}

/// Reads what follows a `%`.
fn directive(to: &mut LineTemplate, letters: &mut std::str::Chars<'_>) -> Result<(), String> {
    let text = letters.as_str();
    let mut argument = None;
    loop {
        match letters.next() {
            // An internal redirect's request and status are those of the last.
            Some('>' | '<') => {}
            Some('{') => {
                let (inside, after) = (letters.as_str().split_once('}'))
                    .ok_or_else(|| format!("`%{text}` has no `}}`"))?;
                argument = Some(inside);
                *letters = after.chars();
            }
            Some('!' | '0'..='9') => {
                return Err(format!(
                    "`%{text}` begins with a condition by status, which is not supported"
                ));
            }
            Some('%') if argument.is_none() => {
                to.literal('%');
                return Ok(());
            }
            Some(letter) => {
                let value = match argument {
                    None => plain_directive(to, letter),
                    Some(argument) => directive_with(to, letter, argument)?,
                };
                let value = value.ok_or_else(|| {
                    let argument = argument.map_or(String::new(), |inside| format!("{{{inside}}}"));
                    format!(
                        "`%{argument}{letter}` is not a directive of the access log; there \
                         are {APACHE}"
                    )
                })?;
                to.pieces.push(Piece::LogValue(value));
                return Ok(());
            }
            None => return Err("a directive is incomplete at the end, after `%`".into()),
        }
    }
}

fn plain_directive(to: &mut LineTemplate, letter: char) -> Option<LogValue> {
    let field = match letter {
        'A' => Field::ServerAddress,
        'p' => Field::ServerPort,
        'u' => Field::User,
        'v' => Field::Site,
        'V' => Field::Host,
        'a' | 'h' => return Some(LogValue::Client),
        'b' => return Some(LogValue::BytesOrDash),
        'B' => return Some(LogValue::Bytes),
        'D' => return Some(LogValue::Took(Unit::Micros)),
        'H' => return Some(LogValue::Protocol),
        'I' => return Some(LogValue::BytesReceived),
        'l' => return Some(LogValue::Nothing),
        'L' => return Some(LogValue::RequestId),
        'm' => return Some(LogValue::Method),
        'O' => return Some(LogValue::BytesSent),
        'P' => return Some(LogValue::Process),
        'q' => return Some(LogValue::QueryWithMark),
        'r' => return Some(LogValue::Request),
        's' => return Some(LogValue::Status),
        't' => return Some(LogValue::Time(TimeOf::Begin, TimeFormat::Bracketed)),
        'T' => return Some(LogValue::Took(Unit::Seconds)),
        'U' => return Some(LogValue::Path),
        _ => return None,
    };
    Some(to.keep(field))
}

/// A directive with `{argument}`; None if there is no such one.
fn directive_with(
    to: &mut LineTemplate,
    letter: char,
    argument: &str,
) -> Result<Option<LogValue>, String> {
    let header = || {
        HeaderName::try_from(argument)
            .map_err(|_| format!("`{argument}` is not the name of a header"))
    };
    let field = match (letter, argument) {
        ('a', "c") => Field::PeerAddress,
        ('C', name) => Field::Cookie(name.into()),
        ('i', _) => Field::Header(header()?),
        ('o', _) => Field::Sent(header()?),
        ('x', "SSL_PROTOCOL") => Field::Tls("SSL_PROTOCOL"),
        ('x', "SSL_CIPHER") => Field::Tls("SSL_CIPHER"),
        ('n', "engine") => return Ok(Some(LogValue::Engine)),
        ('T', "s") => return Ok(Some(LogValue::Took(Unit::Seconds))),
        ('T', "ms") => return Ok(Some(LogValue::Took(Unit::Millis))),
        ('T', "us") => return Ok(Some(LogValue::Took(Unit::Micros))),
        ('t', format) => return apache_time(format).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(to.keep(field)))
}

fn apache_time(format: &str) -> Result<LogValue, String> {
    let (of, format) = match format.split_once(':') {
        Some(("begin", format)) => (TimeOf::Begin, format),
        Some(("end", format)) => (TimeOf::End, format),
        _ => (TimeOf::Begin, format),
    };
    let unix = |unit| Ok(LogValue::Time(of, TimeFormat::Unix(unit)));
    match format {
        "sec" => return unix(Unit::Seconds),
        "msec" => return unix(Unit::Millis),
        "usec" => return unix(Unit::Micros),
        _ => {}
    }
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        let conversion: String = after.chars().take(1).collect();
        let is_known = |known: &str| known.strip_prefix('%') == Some(&conversion);
        if !CONVERSIONS.split(' ').any(is_known) {
            return Err(format!(
                "`%{conversion}` in the time `%{{{format}}}t` is not supported; there are \
                 {CONVERSIONS}, and `sec`, `msec` and `usec` alone"
            ));
        }
        rest = &after[conversion.len()..];
    }
    Ok(LogValue::Time(of, TimeFormat::Strftime(format.into())))
}
