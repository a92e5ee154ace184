//! Tests which requests a file and a URL name, and which of their mistakes are rejected.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use surus_load::{Url, parse_file, weighted};

#[test]
fn file_of_requests_has_json_curl_and_bare_lines() {
    let text = "# a comment\n\n/plain\n\
        curl -X PUT -H 'X-A: b c' -d \"it's\" /put\n\
        {\"url\": \"/json\", \"body\": {\"a\": 1}, \"headers\": {\"X\": \"y\"}, \"weight\": 2}\n\
        {\"url\": \"/form\", \"body\": \"a=1\"}\n\
        {\"url\": \"/own\", \"body\": \"a\", \"headers\": {\"content-type\": \"a/b\"}}\n";
    let base = Url::parse("http://example.com:8080/").unwrap().origin;
    let requests = parse_file(text, Some(&base)).unwrap();
    let short: Vec<_> = requests
        .iter()
        .map(|request| {
            (
                request.method.as_str(),
                request.url.to_string(),
                request.weight,
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            ("GET", "http://example.com:8080/plain".to_string(), 1),
            ("PUT", "http://example.com:8080/put".to_string(), 1),
            ("POST", "http://example.com:8080/json".to_string(), 2),
            ("POST", "http://example.com:8080/form".to_string(), 1),
            ("POST", "http://example.com:8080/own".to_string(), 1),
        ]
    );
    let types = requests.iter().map(|request| {
        let is_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
        let mut types = request.headers.iter().filter(is_type);
        (types.next().map(|(_, value)| value.as_str()), types.count())
    });
    let form = Some("application/x-www-form-urlencoded");
    let expected = [
        (None, 0),
        (form, 0),
        (Some("application/json"), 0),
        (form, 0),
        (Some("a/b"), 0),
    ];
    assert_eq!(types.collect::<Vec<_>>(), expected);
    assert_eq!(requests[1].body, Bytes::from("it's"));
    assert_eq!(
        requests[1].headers[0],
        ("X-A".to_string(), "b c".to_string())
    );
    assert_eq!(requests[2].body, Bytes::from(r#"{"a":1}"#));
    for (text, part) in [
        ("/a\n/b --fail", "line 2: unknown option --fail"),
        ("{\"method\": \"GET\"}", "line 1: `url` is missing"),
        ("-d 'a /x", "line 1: a quote is not closed"),
        ("[1]", "line 1: a JSON line must be an object"),
        (
            "/a\nGET /x",
            "line 2: two URLs, http://GET/ and /x; a method is written -X METHOD",
        ),
        (
            "/a\n{\"url\":",
            "line 2: no valid JSON: EOF while parsing a value in column 7",
        ),
        (
            "/a\n/b -X 'A B'",
            "line 2: http://example.com:8080/b: invalid HTTP method",
        ),
        ("# nothing\n", "no line is a request"),
        (
            "/a\n/b --data-raw $'a\\nb'",
            "line 2: `$` before a quote is not supported; write the request as JSON",
        ),
        (
            "/a\n/b -d @put.json",
            "line 2: -d @FILE is not supported; write the body itself, or use a line of JSON",
        ),
        (
            "/a -d a=1 --data-binary @",
            "line 1: --data-binary @FILE is not supported; write",
        ),
        ("/a --data @-", "line 1: --data @FILE is not supported"),
        (
            "/a --data-ascii '@a b'",
            "line 1: --data-ascii @FILE is not supported",
        ),
        (
            "/a -H 'Expect:'",
            "line 1: -H Expect: has no value, so curl would not send it; leave it out",
        ),
        ("/a -H 'X-Empty;'", "line 1: -H X-Empty;: `:` is missing"),
        ("/a -d", "line 1: -d needs a value"),
        (
            "/a@0",
            "line 1: /a@0: the weight 0 is not between 1 and 4294967295; write %40 for an @",
        ),
    ] {
        let error = parse_file(text, Some(&base)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let marked = parse_file("\u{feff}/a\r\n", Some(&base)).unwrap();
    assert_eq!(marked[0].url.path, "/a");
    assert!(
        parse_file("/a", None)
            .unwrap_err()
            .contains("no URL was given")
    );
}

#[test]
fn several_bodies_of_a_line_are_joined_as_curl_joins_them() {
    let base = Url::parse("http://a").unwrap().origin;
    for (line, body) in [
        ("curl -d a=1 /x --data b=2", "a=1&b=2"),
        ("--data-binary a --data-ascii b --data-raw c /x", "a&b&c"),
        ("-d '' -d b /x", "&b"),
        ("-d '' /x", ""),
        // An `@` further on is no file, and --data-raw reads none.
        ("-d a=@b -d ' @c' --data-raw @d /x", "a=@b& @c&@d"),
    ] {
        let requests = parse_file(line, Some(&base)).unwrap();
        assert_eq!(requests[0].method, "POST", "{line}");
        assert_eq!(requests[0].body, body, "{line}");
        assert_eq!(requests[0].headers.len(), 1, "{line}");
    }
}

#[test]
fn option_of_curl_that_is_not_known_is_refused() {
    let base = Url::parse("http://a").unwrap().origin;
    for option in [
        "-F a=b",
        "--form a=b",
        "--form-string a=b",
        "--data-urlencode a=b",
        "--json {}",
        "--url-query a=b",
        "-G",
        "--get",
        "-u a:b",
        "--user a:b",
        "-b a=b",
        "--cookie a=b",
        "-A agent",
        "-e referer",
        "-T file",
        "--url /y",
        "-K file",
        "-da=b",
        "-XPUT",
        "--data=a",
        "--next",
        "--",
        "-",
    ] {
        let error = parse_file(&format!("curl -d a /x {option}"), Some(&base)).unwrap_err();
        let name = option.split(' ').next().unwrap();
        let expected =
            format!("line 1: unknown option {name}; -X, -H, -d, --data-raw and -I are known");
        assert_eq!(error, expected);
    }
}

#[test]
fn quotes_and_backslashes_of_a_line_are_those_of_a_shell() {
    for (line, body) in [
        (r#"-d "{\"t\":\"a\nb\"}" /"#, r#"{"t":"a\nb"}"#),
        (r#"-d "\$ \` \" \\ \x" /"#, r#"$ ` " \ \x"#),
        (r"-d '\n $' /", r"\n $"),
        (r"-d a\ \n\$ /", "a n$"),
        (r#"-d 'a'"$b" /"#, "a$b"),
        (r#"-d \$'a' /"#, "$a"),
    ] {
        let base = Url::parse("http://a").unwrap().origin;
        let requests = parse_file(line, Some(&base)).unwrap();
        assert_eq!(requests[0].body, body, "{line}");
    }
}

#[test]
fn bare_line_has_a_weight_and_other_at_signs_stay() {
    let base = Url::parse("http://a").unwrap().origin;
    let text = "/x@3\nhttp://b/@2\n/@me\ncurl /x@3\n/x@3 -I\n{\"url\": \"/x@3\"}\n/x%403\n";
    let requests = parse_file(text, Some(&base)).unwrap();
    let short: Vec<_> = requests
        .iter()
        .map(|request| (request.url.to_string(), request.weight))
        .collect();
    let expected = [
        ("http://a/x", 3),
        ("http://b/", 2),
        ("http://a/@me", 1),
        ("http://a/x@3", 1),
        ("http://a/x@3", 1),
        ("http://a/x@3", 1),
        ("http://a/x%403", 1),
    ];
    assert_eq!(
        short,
        expected.map(|(url, weight)| (url.to_string(), weight))
    );
}

#[test]
fn url_with_weight_is_split_and_other_at_signs_stay() {
    assert_eq!(weighted("http://a/x@3"), Ok(("http://a/x", 3)));
    for other in ["http://a/@me", "http://a/x@", "http://3@a/x"] {
        assert_eq!(weighted(other), Ok((other, 1)));
    }
}

#[test]
fn weight_outside_its_range_is_an_error() {
    for text in ["http://a/x@0", "http://a/x@4294967296"] {
        let error = weighted(text).unwrap_err();
        assert!(error.contains("between 1 and"), "{error}");
    }
}

#[test]
fn urls_are_parsed_with_their_defaults() {
    for (text, shown) in [
        ("http://a", "http://a/"),
        ("a:81/b?c#d", "http://a:81/b?c"),
        ("https://a:443/?x", "https://a/?x"),
        ("http://[::1]:80/", "http://[::1]/"),
        (":8080/x", "http://127.0.0.1:8080/x"),
        ("/x", "http://127.0.0.1/x"),
        ("/go?to=https://b/", "http://127.0.0.1/go?to=https://b/"),
        ("a:81?next=https://b/", "http://a:81/?next=https://b/"),
        ("a/http://b/", "http://a/http://b/"),
    ] {
        assert_eq!(Url::parse(text).unwrap().to_string(), shown);
    }
    for text in [
        "",
        "ftp://a/",
        "http://a b/",
        "http://a:x/",
        "http://u:p@a/",
        "http://[::1/",
        "http://[::1]junk:81/",
        "http://[1]/",
        "[1]",
        "http://a[b/",
        "http://a:0/",
        "http://a:+80/",
    ] {
        assert!(Url::parse(text).is_err(), "{text}");
    }
}
