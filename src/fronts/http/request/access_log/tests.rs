//! Tests of the access log's lines.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::{HeaderValue, Uri};
use proptest::prelude::*;

use super::*;
use crate::app::forwarded::Peer;
use crate::event::Address;

fn entry() -> AccessLogEntry {
    AccessLogEntry {
        request_id: 7,
        client: Some("192.0.2.1".parse().unwrap()),
        request: Some(LoggedRequest {
            method: Method::GET,
            target: "/a\"?b=c".into(),
            version: Version::HTTP_11,
            referer: None,
            user_agent: Some("a\"b\nc".into()),
            kept: Vec::new(),
        }),
        status: StatusCode::OK,
        bytes: 12,
        received: 345,
        sent: 678,
        took: Duration::from_micros(1234),
        answered: None,
        engine: "classic",
    }
}

fn template(format: &str) -> Arc<LineTemplate> {
    match format.parse() {
        Ok(AccessLogFormat::Template(text, template)) => {
            assert_eq!(text, format);
            template
        }
        other => panic!("{format}: {other:?}"),
    }
}

/// The line of a request with these headers, whose response has a header.
fn line(format: &str, headers: &[(&str, &[u8])]) -> String {
    let template = template(format);
    let mut request = Request::post("/shop/a%20b?id=7&x=");
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
    }
    let address = |text: &str| Some(Address::from(text.parse::<std::net::SocketAddr>().unwrap()));
    let peer = Peer {
        client: address("10.0.0.1:5"),
        server: address("10.0.0.2:443"),
        https: true,
    };
    let begun = BegunRequest {
        peer: &peer,
        client: Some("192.0.2.1".parse().unwrap()),
        https: true,
        site: "",
        encryption: Some(&[("SSL_PROTOCOL".into(), "TLSv1.3".into())].into()),
    };
    let request = request.body(()).unwrap();
    let mut kept = Field::keep(&template.fields, &request, &begun);
    let mut sent = HeaderMap::new();
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
    Field::keep_sent(&template.fields, &sent, &mut kept);
    let entry = AccessLogEntry {
        client: begun.client,
        request: Some(LoggedRequest {
            method: request.method().clone(),
            target: "/shop/a%20b?id=7&x=".into(),
            version: Version::HTTP_2,
            referer: None,
            user_agent: None,
            kept,
        }),
        took: Duration::from_micros(1_234_567),
        answered: Some(Duration::from_millis(1200)),
        ..entry()
    };
    written(&template, &entry)
}

fn written(template: &LineTemplate, entry: &AccessLogEntry) -> String {
    let mut line = Vec::new();
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_778_250);
    template.write(&mut line, entry, now, &mut Clock::default());
    let line = String::from_utf8(line).unwrap();
    line.strip_suffix('\n').unwrap().to_owned()
}

const HEADERS: &[(&str, &[u8])] = &[
    ("host", b"Shop.Example:443"),
    ("user-agent", b"a\"\\b\tc\xff"),
    ("authorization", b"Basic YWxpY2U6c2VjcmV0"),
    ("cookie", b"a=1; session=s3; b=2"),
    ("x-two", b"1"),
    ("x-two", b"2"),
    ("cookie", b"c=3"),
];

#[test]
fn variables_of_nginx_have_its_values_and_escapes() {
    for (format, expected) in [
        (
            "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
             \"$http_referer\" \"$http_user_agent\"",
            "192.0.2.1 - alice [06/Nov/1994:08:49:38 +0000] \"POST /shop/a%20b?id=7&x= HTTP/2.0\" \
             200 12 \"-\" \"a\\x22\\x5Cb\\x09c\\xFF\"",
        ),
        (
            "${request_time}s $upstream_header_time $msec $time_iso8601",
            "1.234s 1.200 784111778.250 1994-11-06T08:49:38+00:00",
        ),
        (
            "$scheme://$host$request_uri $http_host $server_name:$server_port $server_addr",
            "https://shop.example/shop/a%20b?id=7&x= Shop.Example:443 shop.example:443 10.0.0.2",
        ),
        (
            "$uri$is_args$args $arg_id|$arg_x|$arg_y $request_method $server_protocol",
            "/shop/a%20b?id=7&x= 7||- POST HTTP/2.0",
        ),
        (
            "$cookie_session $cookie_none $sent_http_content_type $sent_http_none $http_x_two",
            "s3 - text/html - 1, 2",
        ),
        ("$http_cookie|$cookie_c", "a=1; session=s3; b=2; c=3|3"),
        (
            "$ssl_protocol $ssl_cipher $realip_remote_addr $request_id $engine",
            "TLSv1.3 - 10.0.0.1 7 classic",
        ),
        (
            "escape=json {\"agent\":\"$http_user_agent\",\"none\":\"$http_referer\"}",
            "{\"agent\":\"a\\\"\\\\b\\tc\u{fffd}\",\"none\":\"\"}",
        ),
    ] {
        assert_eq!(line(format, HEADERS), expected, "{format}");
    }
}

#[test]
fn directives_of_apache_have_its_values_and_escapes() {
    for (format, expected) in [
        (
            "combined",
            "192.0.2.1 - alice [06/Nov/1994:08:49:37 +0000] \"POST /shop/a%20b?id=7&x= HTTP/2.0\" \
             200 12 \"-\" \"a\\\"\\\\b\\tc\\xff\"",
        ),
        (
            "common",
            "192.0.2.1 - alice [06/Nov/1994:08:49:37 +0000] \"POST /shop/a%20b?id=7&x= HTTP/2.0\" \
             200 12",
        ),
        (
            "%v:%p %a %{c}a %A %V %m %U%q %H",
            "shop.example:443 192.0.2.1 10.0.0.1 10.0.0.2 shop.example POST /shop/a%20b?id=7&x= \
             HTTP/2.0",
        ),
        (
            "%D %T %{ms}T %{us}T %B %b %s %<s %L 100%%",
            "1234567 1 1234 1234567 12 12 200 200 7 100%",
        ),
        (
            "%{%Y-%m-%d %T}t %{end:sec}t %{begin:msec}t",
            "1994-11-06 08:49:37 784111778 784111777015",
        ),
        (
            "%{session}C %{Content-Type}o %{X-None}i %{SSL_PROTOCOL}x %{engine}n \\\"%m\\\"\\t.",
            "s3 text/html - TLSv1.3 classic \"POST\"\t.",
        ),
    ] {
        assert_eq!(line(format, HEADERS), expected, "{format}");
    }
}

/// Debian's apache2.conf, `combined` of nginx, and the `main` of its nginx.conf.
#[test]
fn stock_formats_are_accepted_as_they_stand() {
    let apache = "192.0.2.1 - alice [06/Nov/1994:08:49:37 +0000] \
                  \"POST /shop/a%20b?id=7&x= HTTP/2.0\" 200 678";
    let nginx = "192.0.2.1 - alice [06/Nov/1994:08:49:38 +0000] \
                 \"POST /shop/a%20b?id=7&x= HTTP/2.0\" 200 12 \"-\" \"a\\x22\\x5Cb\\x09c\\xFF\"";
    let agent = r#"a\"\\b\tc\xff"#;
    let combined = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                    $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
    let main = format!("{combined} \"$http_x_forwarded_for\"");
    for (format, expected) in [
        (
            r#"%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""#,
            format!("shop.example:443 {apache} \"-\" \"{agent}\""),
        ),
        (
            r#"%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""#,
            format!("{apache} \"-\" \"{agent}\""),
        ),
        (r#"%h %l %u %t \"%r\" %>s %O"#, apache.into()),
        ("%{Referer}i -> %U", "- -> /shop/a%20b".into()),
        ("%{User-agent}i", agent.into()),
        (combined, nginx.into()),
        (&*main, format!("{nginx} \"-\"")),
    ] {
        assert_eq!(line(format, HEADERS), expected, "{format}");
    }
    assert_eq!(line("%I %O", &[]), "345 678");
    assert_eq!(line("$request_length $bytes_sent", &[]), "345 678");
}

#[test]
fn bytes_are_counted_only_if_the_format_asks_for_them() {
    for (format, is_counted) in [
        ("%h %O", true),
        ("$request_length", true),
        ("combined", false),
        ("$body_bytes_sent", false),
        ("json", false),
        ("text", false),
    ] {
        let log = AccessLog::start(&format.parse().unwrap(), std::io::sink());
        assert_eq!(log.unwrap().unwrap().counts_bytes, is_counted, "{format}");
    }
}

#[test]
fn request_without_a_readable_header_has_dashes() {
    let entry = AccessLogEntry {
        request: None,
        client: None,
        bytes: 0,
        ..entry()
    };
    let nginx = "$remote_addr \"$request\" $http_host $status $body_bytes_sent";
    assert_eq!(written(&template(nginx), &entry), "- \"-\" - 200 0");
    let common = written(&template("common"), &entry);
    assert_eq!(common, "- - - [06/Nov/1994:08:49:38 +0000] \"-\" 200 -");
}

#[test]
fn format_that_is_not_understood_is_rejected_with_what_there_is() {
    for (format, words) in [
        (
            "combind",
            &["`combind` is not a format", "`combined`", "`$remote_addr`"][..],
        ),
        ("", &["`` is not a format"]),
        (
            "$remote_adr",
            &["`$remote_adr`", "there are $args", "$remote_addr"],
        ),
        ("$http_", &["`$http_`", "$http_NAME"]),
        ("$status $", &["no variable's name"]),
        ("${status", &["no variable's name", "`${status`"]),
        ("$status%h", &["`$` and `%`"]),
        ("escape=none $status", &["`escape=none`", "`escape=json`"]),
        ("%h %Z", &["`%Z`", "there are %%", "%h"]),
        ("%{x}h", &["`%{x}h`"]),
        ("%{Referer", &["has no `}`"]),
        ("%{a b}i", &["`a b` is not the name of a header"]),
        ("%{min}T", &["`%{min}T`"]),
        ("%{%Q}t", &["`%Q`", "%Y"]),
        ("%!200{Referer}i", &["condition by status"]),
        ("%h %", &["incomplete"]),
    ] {
        let error = format.parse::<AccessLogFormat>().unwrap_err();
        for word in words {
            assert!(error.contains(word), "{format}: {error}");
        }
    }
}

#[test]
fn settings_take_names_and_formats_and_print_them_as_written() {
    for format in ["off", "text", "json", "combined", "$status", "%h"] {
        let text = format!("format = '{format}'");
        let settings: Settings = toml::from_str(&text).unwrap();
        assert_eq!(settings.format.to_string(), format);
        assert!(toml::to_string(&settings).unwrap().contains(format));
    }
    let error = toml::from_str::<Settings>("format = '$x'").unwrap_err();
    assert!(error.to_string().contains("access_log.format"), "{error}");
    assert!(
        "escape=json {}$status"
            .parse::<AccessLogFormat>()
            .unwrap()
            .is_json()
    );
}

/// A byte that a value must not have: it would end the line or its quotes.
fn is_unsafe(byte: u8) -> bool {
    !(0x20..0x7f).contains(&byte)
}

proptest! {
    /// Values can neither end their line nor their quotes, and nothing of them is lost.
    #[test]
    fn no_value_ends_its_line_or_its_quotes(
        value in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        for (escape, hex) in [
            (escape::Escape::Nginx, false),
            (escape::Escape::Apache, true),
        ] {
            let mut written = Vec::new();
            escape.write(&mut written, &value);
            prop_assert!(!written.iter().any(|byte| is_unsafe(*byte)));
            prop_assert_eq!(unescaped(&written, hex), Some(value.clone()));
        }
        let mut written = b"\"".to_vec();
        escape::Escape::Json.write(&mut written, &value);
        written.push(b'"');
        let read: String = serde_json::from_slice(&written).unwrap();
        prop_assert_eq!(read, String::from_utf8_lossy(&value));
        prop_assert!(!written.contains(&b'\n'));
    }

    /// Any text is a format or has an error.
    #[test]
    fn no_format_panics(format in "[$%{}!<>a-z_ \\\\\"é]{0,24}") {
        if let Ok(AccessLogFormat::Template(_, template)) = format.parse::<AccessLogFormat>() {
            written(&template, &entry());
        }
    }
}

/// The bytes that an escaped text stands for; None at a quote, which would end the text.
fn unescaped(text: &[u8], has_short: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return None,
            b'\\' => match rest.next()? {
                b'x' => {
                    let digits = [*rest.next()?, *rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                _ if !has_short => return None,
                b'b' => 0x08,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 0x0b,
                b'r' => b'\r',
                other => *other,
            },
            byte => *byte,
        });
    }
    Some(bytes)
}

#[test]
fn waiting_entry_keeps_no_read_buffer_and_counts_its_bytes() {
    let buffer = Bytes::from([b"/a?b Mozilla".as_slice(), &[b'c'; 28 << 10]].concat());
    let value = HeaderValue::from_maybe_shared(buffer.slice(5..12)).unwrap();
    let request = Request::builder()
        .method(Method::from_bytes(&[b'M'; 100]).unwrap())
        .uri(Uri::from_maybe_shared(buffer.slice(..4)).unwrap())
        .header(header::REFERER, value.clone())
        .header(header::USER_AGENT, value);
    let log = AccessLog::start(&"$http_user_agent".parse().unwrap(), std::io::sink());
    let peer = Peer {
        client: None,
        server: None,
        https: false,
    };
    let begun = BegunRequest {
        peer: &peer,
        client: None,
        https: false,
        site: "",
        encryption: None,
    };
    let logged = LoggedRequest::new(&log.unwrap().unwrap(), &request.body(()).unwrap(), &begun);
    assert!(buffer.is_unique(), "{logged:?}");
    let kept = 7 + size_of::<Option<Box<[u8]>>>();
    assert_eq!(logged.size(), 100 + 4 + 7 + 7 + kept);
}

#[test]
fn client_text_cannot_break_a_line() {
    let mut line = Vec::new();
    text(&mut line, &entry(), "now");
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "192.0.2.1 - - [now] \"GET /a\\\"?b=c HTTP/1.1\" 200 12 \"-\" \"a\\\"b\\x0ac\" \
         1.234ms classic\n"
    );
}

#[test]
fn json_line_is_valid_json() {
    let mut line = Vec::new();
    json(&mut line, &entry(), "now");
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["ms"], 1.234);
    assert_eq!(value["user_agent"], "a\"b\nc");
}
