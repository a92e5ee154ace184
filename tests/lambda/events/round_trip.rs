//! Property tests: requests and responses pass through every service, except for what the service
//! itself loses.

use proptest::collection::vec;
use proptest::prelude::*;
use surus::fronts::lambda::http_event::{self, EventFormat};

use super::aws::{self, Got, Sent, decode, decode_query};
use super::subject::{FORMATS, body, head, read, target};

proptest! {
    #[test]
    fn request_survives_every_service(sent in sent()) {
        for format in FORMATS {
            let json = aws::event(format, &sent);
            let event = read(&json);
            prop_assert_eq!(event.format, format, "{}", json);
            let request = &event.request;
            prop_assert_eq!(body(&event), &*sent.body, "{}", json);
            let client = event.origin.client.as_ref().unwrap();
            prop_assert_eq!(client.ip(), sent.client.to_canonical());
            prop_assert_eq!(event.origin.https, sent.https);
            prop_assert_eq!(&request.headers()["host"], "app.example");
            let cookies = request.headers().get("cookie").map(|line| line.to_str().unwrap());
            prop_assert_eq!(cookies.unwrap_or_default(), sent.cookies.join("; "));
            prop_assert_eq!(lines(request.headers()), arrives(format, &sent.headers), "{}", json);

            let (path, query) = match target(&event).split_once('?') {
                Some((path, query)) => (path, query),
                None => (target(&event), ""),
            };
            match format {
                EventFormat::WebSocket => {
                    prop_assert_eq!(request.method(), "POST");
                    prop_assert_eq!(path, "/websocket/$connect");
                }
                // The application gets the decoded text. The original encoding is lost.
                EventFormat::HttpApiV1 | EventFormat::HttpApiV2 => {
                    prop_assert_eq!(request.method().as_str(), &sent.method);
                    prop_assert_eq!(decode(path), decode(&sent.path), "{}", json);
                }
                _ => {
                    prop_assert_eq!(request.method().as_str(), &sent.method);
                    prop_assert_eq!(path, &sent.path, "{}", json);
                }
            }
            match format {
                EventFormat::HttpApiV2 | EventFormat::FunctionUrl => {
                    prop_assert_eq!(query, sent.raw_query(), "{}", json);
                }
                EventFormat::Alb { multi_value: true } | EventFormat::LatticeV2 => {
                    prop_assert_eq!(query, sent.raw_query(), "{}", json);
                }
                EventFormat::Alb { multi_value: false } | EventFormat::LatticeV1 => {
                    let mut sent = sent.clone();
                    sent.query = last_of_each(&sent.query);
                    prop_assert_eq!(query, sent.raw_query(), "{}", json);
                }
                EventFormat::Rest | EventFormat::HttpApiV1 | EventFormat::WebSocket => {
                    let decoded: Vec<_> = sent.query.iter()
                        .map(|(name, value)| (decode_query(name), decode_query(value)))
                        .collect();
                    prop_assert_eq!(pairs(query), decoded, "{}", json);
                }
            }
        }
    }

    /// What browsers and `rawurlencode` encode is restored although the service has decoded it.
    #[test]
    fn usual_query_survives_decoding(values in vec("\\PC{0,12}", 1..5)) {
        let query: Vec<_> = values.iter().enumerate()
            .map(|(index, value)| (format!("n{index}%5B%5D"), rawurlencode(value)))
            .collect();
        let sent = Sent { query, ..plain() };
        for format in [EventFormat::Rest, EventFormat::HttpApiV1] {
            let event = read(&aws::event(format, &sent));
            prop_assert_eq!(target(&event), sent.target());
        }
    }

    /// Bytes that are legal in a request line stay unchanged.
    #[test]
    fn raw_target_is_unchanged(path in "/[!$&-;=@-_a-z|~{}]{0,40}", query in "[!$-;=?-~]{1,40}") {
        for percent in ["", "%2F%00%ff%3f"] {
            let path = format!("{path}{percent}");
            let event = format!(
                r#"{{
                    "version": "2.0",
                    "rawPath": {},
                    "rawQueryString": {},
                    "requestContext": {{
                        "domainName": "a.lambda-url.b",
                        "http": {{"method": "GET"}}
                    }}
                }}"#,
                aws::quoted(&path),
                aws::quoted(&query),
            );
            let event = read(&event);
            prop_assert_eq!(target(&event), format!("{path}?{query}"));
        }
    }

    #[test]
    fn response_survives_every_service(
        status in 200..600_u16,
        headers in headers(),
        cookies in vec("[ -~]{1,30}", 0..6),
        body in content(),
    ) {
        let mut all: Vec<(&str, &[u8])> = headers.iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        all.extend(cookies.iter().map(|cookie| ("set-cookie", cookie.as_bytes())));
        let parts = head(status, &all);
        for format in FORMATS {
            let answer = http_event::write(&format, &parts, &body).json;
            let mut got = aws::response(&answer);
            let lists = matches!(
                format,
                EventFormat::Rest | EventFormat::HttpApiV1 | EventFormat::Alb { multi_value: true }
            );
            let mut expected = headers.clone();
            expected.sort_by(|(a, _), (b, _)| a.cmp(b));
            if !lists {
                expected = joined(&expected, ", ");
            }
            let mut cookies = cookies.clone();
            if matches!(
                format,
                EventFormat::Alb { multi_value: false }
                    | EventFormat::LatticeV1
                    | EventFormat::LatticeV2
                    | EventFormat::WebSocket
            ) {
                // The test's map sorts the names, as the service may.
                cookies.sort();
                got.cookies.sort();
            }
            let expected = Got { status, headers: expected, cookies, body: body.clone() };
            prop_assert_eq!(&got, &expected, "{}", format);
        }
        let mut stream = http_event::prelude(&EventFormat::FunctionUrl, &parts);
        stream.extend_from_slice(&body);
        let mut expected = headers.clone();
        expected.sort_by(|(a, _), (b, _)| a.cmp(b));
        let headers = joined(&expected, ", ");
        prop_assert_eq!(aws::streamed(&stream), Got { status, headers, cookies, body });
    }
}

fn plain() -> Sent {
    Sent {
        method: "GET".into(),
        path: "/".into(),
        query: Vec::new(),
        headers: Vec::new(),
        cookies: Vec::new(),
        body: Vec::new(),
        client: [192, 0, 2, 7].into(),
        https: true,
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let request = (
        "(GET|POST|PUT|DELETE|PATCH|OPTIONS|HEAD|PURGE|M-SEARCH)",
        path(),
        query(),
        headers(),
    );
    let rest = (
        vec("[a-zA-Z_]{1,8}=[!#-+--:<-~]{0,12}", 0..4),
        content(),
        any::<std::net::IpAddr>(),
        any::<bool>(),
    );
    (request, rest).prop_map(
        |((method, path, query, headers), (cookies, body, client, https))| Sent {
            method,
            path,
            query,
            headers,
            cookies,
            body,
            client,
            https,
        },
    )
}

/// Segments that RFC 3986 allows, and encoded UTF-8. HTTP APIs change an encoded `%`.
fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[A-Za-z0-9._~!$&'()*+,;=:@-]{1,8}",
        Just("%20".to_string()),
        Just("%2F".to_string()),
        Just("%C3%A9".to_string()),
        Just("%3F".to_string()),
        Just("%23".to_string()),
        Just("/".to_string()),
    ];
    vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Raw names and values; a name may have several values, one after another.
fn query() -> impl Strategy<Value = Vec<(String, String)>> {
    let piece = || {
        prop_oneof![
            "[A-Za-z0-9._~!$'()*,;:@/?-]{1,6}",
            Just("%20".to_string()),
            Just("+".to_string()),
            Just("%26".to_string()),
            Just("%3D".to_string()),
            Just("%2B".to_string()),
            Just("%25".to_string()),
            Just("%C3%A9".to_string()),
            Just("%5B%5D".to_string()),
        ]
    };
    let text = move |len| vec(piece(), len).prop_map(|pieces| pieces.concat());
    vec((text(0..3), vec(text(0..4), 1..4)), 0..5).prop_map(|names| {
        let mut query = Vec::new();
        for (index, (name, values)) in names.into_iter().enumerate() {
            // No name twice.
            let name = format!("{name}{index}");
            query.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        query
    })
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let value = prop_oneof![
        "[!-~]([ -~]{0,20}[!-~])?",
        Just("Grüße, 世界".to_string()),
        Just(String::new()),
    ];
    vec(("[a-z][a-z0-9-]{0,8}", vec(value, 1..4)), 0..6).prop_map(|names| {
        let mut headers = Vec::new();
        for (index, (name, values)) in names.into_iter().enumerate() {
            let name = format!("x-{name}{index}");
            headers.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        headers
    })
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        vec(any::<u8>(), 0..80),
        "\\PC{0,40}".prop_map(String::into_bytes),
        "[\\x00-\\x7f]{0,40}".prop_map(String::into_bytes),
    ]
}

/// The lines that `Sent` determines, unchanged.
fn lines(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let ours =
        |name: &str| !["host", "cookie"].contains(&name) && !name.starts_with("x-forwarded-");
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8(value.as_bytes().to_vec()).unwrap();
            (name.to_string(), value)
        })
        .filter(|(name, _)| ours(name))
        .collect()
}

/// What the service lets through.
fn arrives(format: EventFormat, headers: &[(String, String)]) -> Vec<(String, String)> {
    match format {
        EventFormat::HttpApiV2 | EventFormat::FunctionUrl => joined(headers, ","),
        EventFormat::Alb { multi_value: false } | EventFormat::LatticeV1 => last_of_each(headers),
        _ => headers.to_vec(),
    }
}

fn last_of_each(pairs: &[(String, String)]) -> Vec<(String, String)> {
    let groups = pairs.chunk_by(|(a, _), (b, _)| a == b);
    groups.map(|group| group.last().unwrap().clone()).collect()
}

fn joined(pairs: &[(String, String)], separator: &str) -> Vec<(String, String)> {
    let groups = pairs.chunk_by(|(a, _), (b, _)| a == b);
    groups
        .map(|group| {
            let values: Vec<_> = group.iter().map(|(_, value)| value.as_str()).collect();
            (group[0].0.clone(), values.join(separator))
        })
        .collect()
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (decode_query(name), decode_query(value)))
        .collect()
}

/// As in RFC 3986, but keeps what a query may contain.
fn rawurlencode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte.into()),
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' => {
                encoded.push(byte.into());
            }
            b',' | b';' | b':' | b'@' | b'/' | b'?' | b'=' => encoded.push(byte.into()),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
