//! Tests of the guard in both directions.

use std::sync::atomic::Ordering;

use amq_protocol::frame::{AMQPFrame, parse_frame};
use amq_protocol::types::{AMQPValue, ByteArray};
use bytes::BytesMut;
use proptest::prelude::*;

use super::fields::{MAX_DEPTH, REASON, UNREAD, Unread};
use super::frame::{BODY, HEADER, MAX_FRAME, METHOD, Wrong, write};
use super::*;

/// Bodies above this become files.
const MAX_BODY: u64 = 1000;

struct Both {
    bodies: Arc<Bodies>,
    frame_max: Arc<AtomicU32>,
    incoming: Incoming,
    outgoing: Outgoing,
}

impl Both {
    fn new() -> Both {
        let bodies = Arc::<Bodies>::default();
        let frame_max = Arc::new(AtomicU32::new(MAX_FRAME));
        let mut outgoing = Outgoing::new(bodies.clone(), frame_max.clone());
        outgoing.feed(b"AMQP\0\0\x09\x01");
        outgoing.advance().unwrap();
        outgoing.ready.clear();
        Both {
            incoming: Incoming::new(bodies.clone(), frame_max.clone(), MAX_BODY),
            outgoing,
            bodies,
            frame_max,
        }
    }

    /// What lapin gets, as its parser reads it.
    fn receive(&mut self, bytes: &[u8]) -> Result<Vec<AMQPFrame>, Wrong> {
        self.incoming.feed(bytes)?;
        Ok(parsed(&self.incoming.ready.split()))
    }

    /// What the server gets.
    fn send(&mut self, bytes: &[u8]) -> Result<BytesMut, Wrong> {
        self.outgoing.feed(bytes);
        let mut sent = BytesMut::new();
        loop {
            self.outgoing.advance()?;
            if self.outgoing.ready.is_empty() {
                return Ok(sent);
            }
            sent.extend(self.outgoing.ready.split());
        }
    }
}

fn parsed(mut bytes: &[u8]) -> Vec<AMQPFrame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (rest, frame) = parse_frame(bytes).expect("lapin can parse what passes");
        bytes = rest;
        frames.push(frame);
    }
    frames
}

fn method(channel: u16, bytes: &[u8]) -> BytesMut {
    let mut to = BytesMut::new();
    write(&mut to, METHOD, channel, bytes);
    to
}

/// A method that brings a message with this routing key.
fn deliver(channel: u16, routing_key: &[u8]) -> BytesMut {
    let mut args = vec![0, 60, 0, 60, 1, b't'];
    args.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0]);
    args.push(routing_key.len() as u8);
    args.extend(routing_key);
    method(channel, &args)
}

fn header(channel: u16, len: u64, properties: &[u8]) -> BytesMut {
    let mut payload = vec![0, 60, 0, 0];
    payload.extend(len.to_be_bytes());
    payload.extend(properties);
    let mut to = BytesMut::new();
    write(&mut to, HEADER, channel, &payload);
    to
}

fn body(channel: u16, bytes: &[u8]) -> BytesMut {
    let mut to = BytesMut::new();
    write(&mut to, BODY, channel, bytes);
    to
}

fn message(properties: &[u8], text: &[u8]) -> Vec<u8> {
    let mut all = deliver(1, b"key").to_vec();
    all.extend(header(1, text.len() as u64, properties));
    for piece in text.chunks(400) {
        all.extend(body(1, piece));
    }
    all
}

/// Properties with a table of one header, which has this value.
fn headers(value: &[u8]) -> Vec<u8> {
    let mut properties = vec![0x20, 0];
    properties.extend((value.len() as u32 + 2).to_be_bytes());
    properties.extend(b"\x01h");
    properties.extend(value);
    properties
}

/// Arrays in arrays, `levels` of them.
fn nested(levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in (0..levels).rev() {
        bytes.push(b'A');
        bytes.extend((5 * level as u32).to_be_bytes());
    }
    bytes
}

/// The header of the message among frames, as lapin reads it.
fn read(frames: &[AMQPFrame]) -> (u64, Option<String>, Option<ByteArray>) {
    let found = frames.iter().find_map(|frame| match frame {
        AMQPFrame::Header(_, header) => Some(header),
        _ => None,
    });
    let found = found.unwrap();
    let headers = found.properties.headers().clone().unwrap_or_default();
    let why = headers.inner().get(REASON).map(|why| match why {
        AMQPValue::LongString(why) => why.to_string(),
        other => panic!("{other:?}"),
    });
    let unread = headers.inner().get(UNREAD).map(|bytes| match bytes {
        AMQPValue::ByteArray(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    });
    (found.body_size, why, unread)
}

#[test]
fn ordinary_message_passes_as_it_is() {
    let properties = headers(&nested(MAX_DEPTH - 1));
    let bytes = message(&properties, &[b'x'; 1000]);
    let mut both = Both::new();
    both.incoming.feed(&bytes).unwrap();
    assert_eq!(both.incoming.ready, bytes);
    assert_eq!(parsed(&bytes).len(), 5);
}

#[test]
fn properties_that_lapin_cannot_parse_become_bytes_with_the_reason() {
    let deep = Unread::Depth.to_string();
    let text = Unread::Text.to_string();
    let wrong = Unread::Length.to_string();
    for (properties, expected) in [
        (headers(&nested(MAX_DEPTH)), &deep),
        (headers(&nested(20_000)), &deep),
        (vec![0x80, 0, 1, 0xff], &text),
        (vec![0x80, 0, 9, b'x'], &wrong),
        (vec![0, 1], &wrong),
        (vec![0, 0, 7], &wrong),
        (vec![], &wrong),
        (headers(b"z"), &Unread::Type(b'z').to_string()),
        (headers(b"S\0\0\x01\0"), &wrong),
    ] {
        let frames = Both::new().receive(&message(&properties, b"{}")).unwrap();
        let (len, why, unread) = read(&frames);
        assert_eq!((len, why.as_ref()), (2, Some(expected)));
        assert_eq!(unread.unwrap().as_slice(), properties);
    }
}

#[test]
fn content_header_that_leaves_no_room_for_a_reason_becomes_bytes() {
    let long = headers(&[b"S\0\x01\xf0\0" as &[u8], &[b'x'; 0x1f000]].concat());
    let frames = Both::new().receive(&message(&long, b"{}")).unwrap();
    let (_, why, unread) = read(&frames);
    let max = MAX_FRAME as usize - 4096;
    assert_eq!(why, Some(Unread::Long(max).to_string()));
    assert_eq!(unread.unwrap().as_slice(), &long[..max]);
}

#[test]
fn routing_key_that_is_not_utf8_has_question_marks() {
    for (key, expected) in [(&b"a\xffb"[..], "a?b"), ("\u{e4}".as_bytes(), "\u{e4}")] {
        let mut bytes = deliver(1, key);
        bytes.extend(header(1, 0, &[0, 0]));
        let frames = Both::new().receive(&bytes).unwrap();
        let text = format!("{:?}", frames[0]);
        assert!(text.contains(&format!("{expected:?}")), "{text}");
    }
}

#[test]
fn long_body_goes_to_a_file_and_back() {
    let mut both = Both::new();
    let text: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    let frames = both.receive(&message(&[0, 0], &text)).unwrap();
    let Some(AMQPFrame::Body(1, token)) = frames.last() else {
        panic!("{frames:?}");
    };
    assert_eq!(read(&frames).0, token.len() as u64);
    assert!(both.bodies.is_token(token));
    let claimed = both.bodies.claim(token).unwrap();
    // frame_max of connection.tune-ok.
    let tuned = [0, 10, 0, 31, 0, 0, 0, 0, 0x10, 0, 0, 0];
    assert_eq!(both.send(&method(0, &tuned)).unwrap(), method(0, &tuned));
    assert_eq!(both.frame_max.load(Ordering::Relaxed), 4096);
    for _ in 0..2 {
        let mut again = header(2, token.len() as u64, &[0, 0]);
        again.extend(body(2, token));
        let mut expected = header(2, 5000, &[0, 0]);
        expected.extend(body(2, &text[..4088]));
        expected.extend(body(2, &text[4088..]));
        assert_eq!(both.send(&again).unwrap(), expected);
    }
    drop(claimed);
    assert!(both.bodies.claim(token).is_none());
    let mut late = header(2, token.len() as u64, &[0, 0]);
    late.extend(body(2, token));
    assert!(matches!(both.send(&late), Err(Wrong::Lost(_))));
}

#[test]
fn bodies_that_nothing_has_claimed_end_with_their_connection() {
    let mut both = Both::new();
    let frames = both.receive(&message(&[0, 0], &[0; 1001])).unwrap();
    let Some(AMQPFrame::Body(_, token)) = frames.last() else {
        panic!("{frames:?}");
    };
    drop(both.incoming);
    assert!(both.bodies.claim(token).is_none());
    assert!(both.bodies.is_token(token));
}

#[test]
fn body_of_the_length_of_a_token_is_sent_as_it_is() {
    let mut both = Both::new();
    let text = [b'x'; bodies::TOKEN];
    let mut bytes = header(1, text.len() as u64, &[0, 0]);
    // A heartbeat between them.
    bytes.extend([8, 0, 0, 0, 0, 0, 0, 0xce]);
    bytes.extend(body(1, &text));
    let sent = both.send(&bytes).unwrap();
    assert_eq!(sent.len(), bytes.len());
    assert_eq!(parsed(&sent).len(), 3);
}

#[test]
fn returned_long_body_is_dropped() {
    let mut both = Both::new();
    let returned = [0, 60, 0, 50, 1, 56, 1, b'n', 0, 1, b'q'];
    let mut bytes = method(1, &returned).to_vec();
    bytes.extend(header(1, 1001, &[0, 0]));
    bytes.extend(body(1, &[0; 1001]));
    let frames = both.receive(&bytes).unwrap();
    assert_eq!(read(&frames).0, 0);
    let has_body = |frame: &AMQPFrame| matches!(frame, AMQPFrame::Body(..));
    assert!(!frames.iter().any(has_body), "{frames:?}");
}

#[test]
fn body_that_no_server_has_is_not_kept() {
    let mut both = Both::new();
    let mut bytes = deliver(1, b"");
    bytes.extend(header(1, 1 << 60, &[0, 0]));
    bytes.extend(body(1, &[0; 5000]));
    both.receive(&bytes).unwrap();
    let arrived = bodies::Arriving::new(1 << 60);
    let token = both.bodies.keep(1, arrived);
    let claimed = both.bodies.claim(&token).unwrap();
    assert!(claimed.is_kept().unwrap_err().contains("at most"));
}

#[test]
fn server_that_does_not_keep_to_the_protocol_is_told_apart() {
    let frame = |kind: u8, channel: u8, payload: &[u8], end: u8| {
        let mut bytes = vec![kind, 0, channel];
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes.push(end);
        bytes
    };
    let too_long = [
        &deliver(1, b"")[..],
        &header(1, 3, &[0, 0]),
        &body(1, b"four"),
    ]
    .concat();
    let cut = [
        &deliver(1, b"")[..],
        &header(1, 3, &[0, 0]),
        &deliver(1, b""),
    ]
    .concat();
    let start = [&[0, 10, 0, 10, 0, 9][..], &[0, 0, 0, 5, 0], &nested(20_000)].concat();
    for (bytes, expected) in [
        (b"AMQP\0\0\x09\x01".to_vec(), "another version"),
        (b"HTTP/1.1 400".to_vec(), "a frame of the type 72"),
        (
            vec![3, 0, 1, 0xff, 0xff, 0xff, 0xff],
            "a frame of 4294967303 bytes",
        ),
        (vec![1, 0, 1, 0, 2, 0, 0], "a frame of 131080 bytes"),
        (frame(3, 1, b"x", 0xcd), "a frame ends with 0xcd"),
        (frame(8, 0, b"x", 0xce), "a heartbeat with a payload"),
        (frame(1, 1, b"x", 0xce), "a method without a number"),
        (frame(1, 1, &[0, 50, 0, 10], 0xce), "only clients send"),
        (
            frame(1, 1, &[0, 60, 0, 60, 9], 0xce),
            "without its routing key",
        ),
        (frame(1, 0, &start, 0xce), "connection.start"),
        (
            header(1, 0, &[0, 0]).to_vec(),
            "a content header without its method",
        ),
        (body(1, b"x").to_vec(), "a body without its header"),
        (too_long, "longer than its header says"),
        (cut, "a method within the content"),
    ] {
        let error = Both::new().receive(&bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} instead of {expected}");
    }
    let mut both = Both::new();
    both.receive(&[8, 0, 0, 0]).unwrap();
    assert_eq!(both.incoming.end(), Err(Wrong::Half));
}

#[test]
fn messages_on_too_many_channels_at_once_end_the_connection() {
    let mut both = Both::new();
    let all = (1..=64).map(|channel| both.receive(&deliver(channel, b"")));
    assert!(all.into_iter().all(|it| it.is_ok()));
    let error = both.receive(&deliver(65, b"")).unwrap_err().to_string();
    assert!(error.contains("too many messages"), "{error}");
}

/// Values of headers, of which some are wrong or too deep.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(b"V".to_vec()),
        Just(b"t\x01".to_vec()),
        any::<[u8; 8]>().prop_map(|it| [&b"l"[..], &it].concat()),
        any::<[u8; 5]>().prop_map(|it| [&b"D"[..], &it].concat()),
        "[a-z\u{e4}]{0,9}".prop_map(|it| long(b'S', it.as_bytes())),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|it| long(b'x', &it)),
        prop::collection::vec(any::<u8>(), 0..9),
        (0..50_usize).prop_map(nested),
    ];
    leaf.prop_recursive(8, 64, 4, |inner| {
        let name = prop_oneof![
            9 => "[a-z]{0,5}".prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..5)
        ];
        let entry = (name, inner.clone())
            .prop_map(|(name, value)| [&[name.len() as u8][..], &name, &value].concat());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|it| long(b'A', &it.concat())),
            prop::collection::vec(entry, 0..4).prop_map(|it| long(b'F', &it.concat())),
        ]
    })
}

fn long(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u32).to_be_bytes();
    [&[kind][..], &len, bytes].concat()
}

proptest! {
    /// `receive` panics if lapin's parser cannot read what passes.
    #[test]
    fn lapin_can_parse_each_message_that_passes(
        flags in any::<u16>(),
        value in value(),
        rest in prop::collection::vec(any::<u8>(), 0..20),
        text in prop::collection::vec(any::<u8>(), 0..2000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut properties = headers(&value);
        if !rest.is_empty() {
            properties[..2].copy_from_slice(&(flags | 0x2000).to_be_bytes());
        }
        properties.extend(rest);
        let bytes = message(&properties, &text);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut both, mut passed) = (Both::new(), BytesMut::new());
        for pair in cuts.windows(2) {
            both.incoming.feed(&bytes[pair[0]..pair[1]]).unwrap();
            passed.extend(both.incoming.ready.split());
        }
        both.incoming.end().unwrap();
        let frames = parsed(&passed);
        let (_, why, unread) = read(&frames);
        if let Some(unread) = unread {
            prop_assert_eq!(unread.as_slice(), &properties[..]);
            prop_assert!(why.is_some());
        }
        let pieces: Vec<_> = frames.iter().filter_map(|frame| match frame {
            AMQPFrame::Body(_, piece) => Some(&piece[..]),
            _ => None,
        }).collect();
        let received = pieces.concat();
        match both.bodies.claim(&received) {
            None => prop_assert_eq!(received, text),
            Some(body) => {
                let mut kept = vec![0; body.len as usize];
                body.read(&mut kept, 0).unwrap();
                prop_assert_eq!(kept, text);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_grow(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![
            any::<u8>(), Just(0), Just(1), Just(2), Just(3), Just(60), Just(0xce)
        ], 0..40), 0..8),
    ) {
        let mut both = Both::new();
        for piece in &pieces {
            if both.incoming.feed(piece).is_err() {
                return Ok(());
            }
        }
        prop_assert!(both.incoming.ready.len() <= pieces.concat().len() + 8 * 64);
    }
}
