//! Tests of the end of a request's body: RFC 9112, sections 6 and 7, as a table.

use crate::hygiene::{Comes::*, check, chunked, post};

#[test]
fn ambiguous_body_length_is_rejected() {
    let hello = "5\r\nhello\r\n0\r\n\r\n";
    let with_length = |value: &str| post(&format!("Content-Length: {value}\r\n"), "hello");
    let with_coding = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), hello);
    check(&[
        ("a length", with_length("5"), Through("hello")),
        (
            "a length with leading zeros consists of digits",
            with_length("0005"),
            Through("hello"),
        ),
        ("chunked", with_coding("chunked"), Through("hello")),
        (
            "codings are compared without case",
            with_coding("CHUNKED"),
            Through("hello"),
        ),
        // RFC 9112, 6.1: MAY be processed by Transfer-Encoding alone, MUST be closed afterwards.
        (
            "length before chunked: chunked counts, and then the end",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", hello),
            ThroughThenClosed("hello"),
        ),
        (
            "chunked before length: the same",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", hello),
            ThroughThenClosed("hello"),
        ),
        (
            "two lengths that differ",
            post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
            Refused(400),
        ),
        // RFC 9112, 6.3: MAY be taken for one.
        (
            "two lengths that agree",
            post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
            Through("hello"),
        ),
        ("a list of lengths", with_length("5, 5"), Refused(400)),
        ("a signed length", with_length("+5"), Refused(400)),
        ("a negative length", with_length("-5"), Refused(400)),
        ("a hexadecimal length", with_length("0x5"), Refused(400)),
        ("an empty length", with_length(""), Refused(400)),
        ("two numbers", with_length("5 5"), Refused(400)),
        (
            "a length beyond 64 bits",
            with_length("18446744073709551621"),
            Refused(400),
        ),
        (
            "chunked that is not the last coding",
            with_coding("chunked, identity"),
            Refused(400),
        ),
        (
            "chunked that is not the last coding, in two lines",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                hello,
            ),
            Refused(400),
        ),
        (
            "a coding that looks like chunked",
            with_coding("xchunked"),
            Refused(400),
        ),
        ("a quoted coding", with_coding("\"chunked\""), Refused(400)),
        (
            "a coding after a vertical tab",
            with_coding("\x0bchunked"),
            Refused(400),
        ),
        ("no coding", with_coding(""), Refused(400)),
        (
            "a coding that we do not know",
            with_coding("gzip, chunked"),
            Refused(501),
        ),
        (
            "identity, which is no coding any more",
            with_coding("identity, chunked"),
            Refused(501),
        ),
        (
            "chunked twice",
            with_coding("chunked, chunked"),
            Refused(400),
        ),
        (
            "chunked twice, in two lines",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                hello,
            ),
            Refused(400),
        ),
        (
            "Transfer-Encoding in HTTP/1.0",
            format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{hello}"),
            Refused(400),
        ),
        (
            "a GET may have a body",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".into(),
            Through("hello"),
        ),
    ]);
}

#[test]
fn malformed_chunks_are_rejected() {
    let many_trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(3000));
    check(&[
        (
            "digits of both cases",
            chunked("A\r\n0123456789\r\n0\r\n\r\n"),
            Through("0123456789"),
        ),
        (
            "leading zeros",
            chunked("0005\r\nhello\r\n0\r\n\r\n"),
            Through("hello"),
        ),
        (
            "extensions are ignored",
            chunked("5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n"),
            Through("hello"),
        ),
        (
            "extensions with spaces",
            chunked("5 ; a = b ; c\r\nhello\r\n0\r\n\r\n"),
            Through("hello"),
        ),
        (
            "a NUL in an extension",
            chunked("5;a\0\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a NUL in the extension of the last chunk",
            chunked("5\r\nhello\r\n0;a=\0\r\n\r\n"),
            Refused(400),
        ),
        (
            "an extension without a name",
            chunked("5;=b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "an extension that is no token",
            chunked("5;a(b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a quoted value without an end",
            chunked("5;a=\"b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "what looks like an extension in a chunk",
            chunked("5\r\n;\0(\"\x01\r\n0\r\n\r\n"),
            Through(";\0(\"\x01"),
        ),
        (
            "but not without end",
            chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(20_000))),
            Refused(400),
        ),
        (
            "a bare LF in an extension",
            chunked("5;a=b\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare CR in an extension",
            chunked("5;a=\rb\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "trailers are dropped",
            chunked("5\r\nhello\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n"),
            ThroughThenClosed("hello"),
        ),
        ("too many trailers", chunked(&many_trailers), Refused(400)),
        (
            "a trailer without a colon",
            chunked("0\r\nX y\r\n\r\n"),
            Refused(400),
        ),
        (
            "a folded trailer",
            chunked("0\r\nX: y\r\n z\r\n\r\n"),
            Refused(400),
        ),
        (
            "a NUL in a trailer",
            chunked("0\r\nX: \0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size beyond 64 bits",
            chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a negative size",
            chunked("-5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a signed size",
            chunked("+5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size with 0x",
            chunked("0x5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size that is no number",
            chunked("five\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        ("no size", chunked("\r\nhello\r\n0\r\n\r\n"), Refused(400)),
        (
            "a space before the size",
            chunked(" 5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "two sizes",
            chunked("5 5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the size",
            chunked("5\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare CR after the size",
            chunked("5\rhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the bytes",
            chunked("5\r\nhello\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the last size",
            chunked("5\r\nhello\r\n0\n\r\n"),
            Refused(400),
        ),
        (
            "more bytes than the size",
            chunked("4\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        // The request that follows is taken for a chunk's size, not for a request.
        (
            "a missing last chunk",
            chunked("5\r\nhello\r\n"),
            Refused(400),
        ),
        // hyper takes what follows these two for trailers; it must never become a request.
        (
            "a bare LF at the end",
            chunked("5\r\nhello\r\n0\r\n\n"),
            ThroughThenClosed("hello"),
        ),
        (
            "a bare LF in a trailer",
            chunked("5\r\nhello\r\n0\r\nX: y\n\r\n"),
            ThroughThenClosed("hello"),
        ),
        (
            "an unannounced body above max_body",
            chunked(&format!(
                "{:x}\r\n{}\r\n0\r\n\r\n",
                2 << 20,
                "x".repeat(2 << 20)
            )),
            Refused(413),
        ),
    ]);
}
