//! Tests which responses get the script, and what pages are told.
#![allow(clippy::unwrap_used)]

use http_body_util::BodyExt;

use super::*;

fn parts(headers: &[(&'static str, &str)]) -> Parts {
    let mut request = http::Request::get("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn page(body: ResponseBody, headers: &[(&'static str, &str)]) -> Response {
    let mut response = Response::new(body);
    for (name, value) in [&[("content-type", "text/html; charset=UTF-8")], headers].concat() {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn only_pages_that_a_browser_shows_are_prepared() {
    let live = LiveReload::default();
    let accept = ("accept", "text/html,*/*;q=0.8");
    for (headers, expected) in [
        (&[("sec-fetch-dest", "document")][..], true),
        (&[("sec-fetch-dest", "empty"), accept], false),
        (&[accept], true),
        (&[accept, ("hx-request", "true")], false),
        (&[("accept", "*/*")], false),
        (&[], false),
    ] {
        assert_eq!(live.prepare(&mut parts(headers)), expected, "{headers:?}");
    }
    let mut request = parts(&[
        accept,
        ("accept-encoding", "gzip"),
        ("if-none-match", "\"a\""),
    ]);
    assert!(live.prepare(&mut request));
    assert_eq!(request.headers.len(), 1);
    request.method = Method::POST;
    assert!(!live.prepare(&mut request));
}

#[tokio::test]
async fn page_gets_the_script_at_its_end_and_its_length_is_mended() {
    let live = LiveReload::default();
    for length in [None, Some("4")] {
        let headers: Vec<_> = length
            .iter()
            .map(|length| ("content-length", *length))
            .collect();
        let streamed = stream::iter(["<p", "a>"].map(|text| Ok(Frame::data(Bytes::from(text)))));
        for body in [
            ResponseBody::from("<pa>"),
            ResponseBody::stream(StreamBody::new(streamed)),
        ] {
            let response = live.extend(page(body, &[&headers[..], &[("etag", "\"a\"")]].concat()));
            assert!(!response.headers().contains_key("etag"));
            let length = response.headers().get("content-length").cloned();
            let text = text(response).await;
            assert!(
                text.starts_with("<pa>\n<script src=\"/-/watch.js\""),
                "{text}"
            );
            assert!(text.ends_with("</script>\n"), "{text}");
            assert!(length.is_none_or(|length| length == text.len().to_string().as_str()));
        }
    }
}

#[tokio::test]
async fn streamed_page_is_passed_on_piece_by_piece_and_a_failed_one_gets_no_script() {
    let live = LiveReload::default();
    let pieces = stream::iter([
        Ok(Frame::data(Bytes::from("a"))),
        Err(Failure::Malformed("x".into())),
    ]);
    let response = live.extend(page(ResponseBody::stream(StreamBody::new(pieces)), &[]));
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "a");
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn other_responses_and_pages_whose_policy_forbids_it_stay_as_they_are() {
    let live = LiveReload::default();
    for header in [
        ("content-type", "application/json"),
        ("content-type", "text/html-sandboxed"),
        ("content-encoding", "gzip"),
        ("content-range", "bytes 0-1/2"),
        ("content-disposition", "attachment"),
        ("content-security-policy", "default-src 'none'"),
        (
            "content-security-policy",
            "script-src 'nonce-a'; connect-src *",
        ),
        (
            "content-security-policy",
            "script-src 'self'; connect-src api.example",
        ),
        (
            "content-security-policy",
            "script-src 'self' 'strict-dynamic' 'nonce-a'",
        ),
        ("content-security-policy", "img-src *, sandbox"),
    ] {
        let response = live.extend(page("<p>".into(), &[header]));
        assert_eq!(text(response).await, "<p>", "{header:?}");
    }
    for policy in [
        "img-src 'none'",
        "default-src 'SELF'",
        "script-src *; sandbox allow-scripts",
    ] {
        let response = live.extend(page("<p>".into(), &[("content-security-policy", policy)]));
        assert!(text(response).await.contains("watch.js"), "{policy}");
    }
    let mut response = page("".into(), &[]);
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    assert_eq!(text(live.extend(response)).await, "");
}

#[tokio::test]
async fn policy_of_an_own_page_is_extended_for_the_script_only() {
    let live = LiveReload::default();
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let mut response = page("<p>".into(), &[("content-security-policy", policy)]);
    response.extensions_mut().insert(OwnPage);
    let response = live.extend(response);
    assert_eq!(
        response.headers()["content-security-policy"],
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'"
    );
    assert!(text(response).await.contains("watch.js"));
}

#[tokio::test(start_paused = true)]
async fn listener_receives_versions_failures_and_the_end() {
    let live = LiveReload::default();
    let mut request = parts(&[]);
    request.uri = "/-/watch".parse().unwrap();
    let mut body = live.answer(&request).unwrap().into_body();
    let process = live.process;
    let mut next = async || {
        body.frame()
            .await
            .map(|frame| frame.unwrap().into_data().unwrap())
    };
    assert_eq!(
        next().await.unwrap(),
        format!("retry: 1000\ndata: {process}-0\n\n")
    );
    live.changed();
    assert_eq!(
        next().await.unwrap(),
        format!("retry: 1000\ndata: {process}-1\n\n")
    );
    live.failed();
    assert_eq!(
        next().await.unwrap(),
        format!("event: failed\ndata: {process}-1\n\n")
    );
    assert_eq!(next().await.unwrap(), ":\n\n");
    live.close();
    assert!(next().await.is_none());
}

#[tokio::test]
async fn listeners_are_bounded_and_a_place_is_free_when_one_leaves() {
    let live = LiveReload::default();
    let mut streams: Vec<_> = (0..MAX_LISTENERS).map(|_| live.stream()).collect();
    assert!(streams.iter().all(|stream| stream.status() == 200));
    assert_eq!(live.stream().status(), 503);
    streams.pop();
    assert_eq!(live.stream().status(), 200);
}
