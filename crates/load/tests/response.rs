//! The response reader: any split of the bytes gives the same result, and no bytes make it panic.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use surus_load::response::{HeaderSection, Malformed, ReadProgress, Reader};

/// The header section, the body, how many bytes were used and whether the response is complete.
type RunOutcome = Result<(Option<HeaderSection>, Vec<u8>, usize, bool), Malformed>;

/// Reads `bytes` in pieces of these sizes.
fn read(bytes: &[u8], sizes: &[usize]) -> RunOutcome {
    let mut reader = Reader::new(false);
    reader.begin(false, true);
    let mut section = None;
    let mut used = 0;
    let mut sizes = sizes.iter().copied().cycle();
    let mut end = 0;
    while end < bytes.len() && !reader.is_done() {
        end = bytes
            .len()
            .min(end + sizes.next().unwrap_or(usize::MAX).max(1));
        while used < end && !reader.is_done() {
            let (count, progress) = reader.read(&bytes[used..end])?;
            assert!(count <= end - used);
            used += count;
            if let ReadProgress::Header(new) = progress {
                assert!(section.is_none(), "two header sections");
                section = Some(new);
            }
        }
    }
    let is_complete = reader.is_done() || reader.end();
    Ok((section, reader.body.clone(), used, is_complete))
}

fn whole(text: &str) -> RunOutcome {
    read(text.as_bytes(), &[usize::MAX])
}

#[test]
fn body_with_length_ends_at_its_length() {
    let (section, body, used, done) =
        whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP").unwrap();
    assert_eq!(
        section,
        Some(HeaderSection {
            status: 200,
            keeps_alive: true
        })
    );
    assert_eq!((body.as_slice(), used, done), (&b"abc"[..], 41, true));
}

#[test]
fn chunked_body_with_extensions_and_trailers_is_decoded() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                3;a=b\r\nabc\r\n1 \r\nd\r\n0\r\nTrailer: x\r\n\r\n";
    let (_, body, used, done) = whole(text).unwrap();
    assert_eq!(
        (body.as_slice(), used, done),
        (&b"abcd"[..], text.len(), true)
    );
}

#[test]
fn response_without_length_ends_with_the_connection() {
    let (section, body, _, done) = whole("HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
    assert_eq!((body.as_slice(), done), (&b"abc"[..], true));
    assert!(!section.unwrap().keeps_alive);
}

#[test]
fn response_that_is_cut_off_is_incomplete() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
    ] {
        assert!(!whole(text).unwrap().3, "{text}");
    }
}

#[test]
fn informational_responses_are_skipped() {
    let hundred = "HTTP/1.1 100 Continue\r\n\r\n";
    // Many of them must not exhaust the stack.
    let text = hundred.repeat(20_000) + "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(whole(&text).unwrap().0.unwrap().status, 204);
}

#[test]
fn statuses_without_a_body_end_with_their_header_section() {
    for status in [204, 304] {
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
        assert!(whole(&text).unwrap().3, "{status}");
    }
    let mut reader = Reader::new(false);
    reader.begin(true, false);
    reader
        .read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    assert!(reader.is_done(), "a response to HEAD");
}

#[test]
fn connection_header_and_version_say_whether_the_connection_stays() {
    for (text, keeps) in [
        ("HTTP/1.1 204 X\r\n\r\n", true),
        ("HTTP/1.1 204 X\r\nConnection: Close\r\n\r\n", false),
        ("HTTP/1.0 204 X\r\n\r\n", false),
        ("HTTP/1.0 204 X\r\nConnection: keep-alive\r\n\r\n", true),
    ] {
        assert_eq!(whole(text).unwrap().0.unwrap().keeps_alive, keeps, "{text}");
    }
}

#[test]
fn invalid_responses_are_rejected() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for text in [
        "hello".to_string(),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n".into(),
        "HTTP/1.1 099 X\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n".into(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".into(),
        format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(70_000)),
        format!("{chunked}x\r\n"),
        format!("{chunked}\r\n"),
        format!("{chunked}3\r\nabcd"),
        format!("{chunked}11111111111111111\r\n"),
        format!("{chunked}0\r\n{}", "x".repeat(70_000)),
    ] {
        assert!(whole(&text).is_err(), "{:.60}", text);
    }
}

fn encoded(body: &[u8], chunks: &[usize]) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut rest = body;
    let mut sizes = chunks.iter().copied().cycle();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        out.extend(format!("{:x}\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
        rest = after;
    }
    out.extend(b"0\r\n\r\n");
    out
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_the_same_result(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "HTTP/1\\.[01] [0-9]{3} OK\r\n(Content-Length: [0-9]{1,2}\r\n|Transfer-Encoding: \
             chunked\r\n|Connection: close\r\n){0,3}\r\n([0-9a-f]{1,2}\r\n|abc|\r\n){0,8}"
                .prop_map(String::into_bytes),
        ],
        sizes in prop::collection::vec(1_usize..20, 1..10),
    ) {
        let whole = read(&bytes, &[usize::MAX]);
        let pieces = read(&bytes, &sizes);
        // How far a reader comes before it finds a mistake depends on the pieces.
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn chunked_body_comes_back_as_it_was_sent(
        body in prop::collection::vec(any::<u8>(), 0..2000),
        chunks in prop::collection::vec(1_usize..300, 1..10),
        sizes in prop::collection::vec(1_usize..400, 1..10),
    ) {
        let (_, got, _, done) = read(&encoded(&body, &chunks), &sizes).unwrap();
        prop_assert!(done);
        prop_assert_eq!(got, body);
    }
}
