//! Tests of the parser of frames.

use super::*;
use proptest::prelude::*;

/// All items of these pieces; pieces of noise and of bodies are joined.
fn parse(pieces: &[&[u8]]) -> Result<Vec<Item>, FrameError> {
    let mut parser = Parser::default();
    let mut items: Vec<Item> = Vec::new();
    for piece in pieces {
        parser.buffer().extend_from_slice(piece);
        while let Some(item) = parser.item()? {
            match (items.last_mut(), item) {
                (Some(Item::Noise(before)), Item::Noise(more))
                | (Some(Item::Body(before)), Item::Body(more)) => {
                    *before = [&before[..], &more].concat().into();
                }
                (_, item) => items.push(item),
            }
        }
    }
    Ok(items)
}

fn payload(stream: u8, context: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put_payload(&mut frame, 0, context, body, body.len() as u64).unwrap();
    frame[10] = stream;
    frame
}

/// A header with a right checksum and any content.
fn header(first: u8, flags: u8, len: u32) -> Vec<u8> {
    let mut header = vec![first, flags];
    header.extend(len.to_le_bytes());
    header.extend(checksum(&header).to_le_bytes());
    header.extend([0, 0]);
    header
}

#[test]
fn checksum_equals_that_of_php() {
    assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
}

#[test]
fn frames_have_the_bytes_of_goridge() {
    // Frame::packFrame(new Frame('{"pid":1}', [], Frame::CONTROL | Frame::CODEC_JSON))
    let mut control = Vec::new();
    put_control(&mut control, r#"{"pid":1}"#);
    assert_eq!(control[..6], [0x13, 0x09, 9, 0, 0, 0]);
    assert_eq!(control[10..], *b"\0\0{\"pid\":1}");
    // One option: where the body begins.
    let frame = payload(0, b"head", b"body");
    assert_eq!(frame[..6], [0x14, 0, 8, 0, 0, 0]);
    assert_eq!(frame[10..], *b"\0\0\x04\0\0\0headbody");
}

#[test]
fn noise_around_frames_is_separated_from_them() {
    let mut output = b"Warning: \x1b[31mred\x1b[0m \x13\x14\n".to_vec();
    output.extend(payload(STREAM, b"h", b"b"));
    output.extend(b"var_dump");
    let mut control = Vec::new();
    put_control(&mut control, "{}");
    output.extend(&control);
    let begin = Payload {
        flags: 0,
        stream: STREAM,
        context: Bytes::from_static(b"h"),
        body_len: 1,
    };
    let expected = [
        Item::Noise(Bytes::from_static(
            b"Warning: \x1b[31mred\x1b[0m \x13\x14\n",
        )),
        Item::Payload(begin),
        Item::Body(Bytes::from_static(b"b")),
        Item::End,
        Item::Noise(Bytes::from_static(b"var_dump")),
        Item::Control(Bytes::from_static(b"{}")),
    ];
    assert_eq!(parse(&[&output]).unwrap(), expected);
}

#[test]
fn contradictory_frame_is_an_error_with_its_reason() {
    let mut wrong = payload(0, b"head", b"body");
    wrong[7] ^= 1;
    assert_eq!(parse(&[&wrong]), Err(FrameError::Checksum));
    let mut beyond = payload(0, b"head", b"body");
    beyond[12] = 9;
    let (context, payload_len) = (9, 8);
    assert_eq!(
        parse(&[&beyond]),
        Err(FrameError::ContextBeyondPayload {
            context,
            payload: payload_len
        })
    );
    assert_eq!(
        parse(&[&header(0x13, 0, 8)]),
        Err(FrameError::Options(0)),
        "a payload without its option"
    );
    assert_eq!(
        parse(&[&header(0x1d, 0, 8)]),
        Err(FrameError::HeaderLength(13)),
        "with ten options"
    );
    let long = u32::MAX;
    assert_eq!(
        parse(&[&header(0x13, ERROR, long)]),
        Err(FrameError::MessageLength(long))
    );
    let mut endless = header(0x14, 0, long);
    endless.extend((MAX_CONTEXT + 1).to_le_bytes());
    assert_eq!(
        parse(&[&endless]),
        Err(FrameError::ContextLength(MAX_CONTEXT + 1))
    );
}

#[test]
fn body_is_passed_on_as_it_arrives() {
    let mut endless = header(0x14, 0, u32::MAX);
    endless.extend(1_u32.to_le_bytes());
    endless.extend(b"cpiece");
    let items = parse(&[&endless]).unwrap();
    assert_eq!(items[1], Item::Body(Bytes::from_static(b"piece")));
    assert_eq!(items.len(), 2);
}

#[test]
fn longest_frame_is_rejected_before_it_is_written() {
    let mut into = Vec::new();
    let max = u64::from(u32::MAX);
    assert!(put_payload(&mut into, 0, b"c", b"", max).is_none());
    assert!(put_payload(&mut into, 0, b"c", b"", max - 1).is_some());
}

/// Text, as a script prints it, with the control characters that terminals know.
fn text() -> impl Strategy<Value = Vec<u8>> {
    "[ -~\n\t\x1b]{0,40}".prop_map(String::into_bytes)
}

proptest! {
    #[test]
    fn frames_in_pieces_equal_the_whole(
        frames in prop::collection::vec((text(), 0..16_u8, text(), any::<Vec<u8>>()), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut output = Vec::new();
        let mut expected: Vec<Item> = Vec::new();
        for (noise, stream, context, body) in &frames {
            output.extend(noise);
            output.extend(payload(*stream, context, body));
            if !noise.is_empty() {
                expected.push(Item::Noise(noise.clone().into()));
            }
            expected.push(Item::Payload(Payload {
                flags: 0,
                stream: *stream,
                context: context.clone().into(),
                body_len: body.len() as u32,
            }));
            if !body.is_empty() {
                expected.push(Item::Body(body.clone().into()));
            }
            expected.push(Item::End);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(output.len() + 1)).collect();
        cuts.extend([0, output.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &output[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse(&pieces), Ok(expected));
    }

    #[test]
    fn arbitrary_output_neither_panics_nor_is_lost(
        pieces in prop::collection::vec(prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0x13), Just(0x14), Just(0)], 0..40), 0..8),
    ) {
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let Ok(items) = parse(&pieces) else { return Ok(()) };
        let noise: usize = items.iter().map(|item| match item {
            Item::Noise(noise) => noise.len(),
            _ => 0,
        }).sum();
        prop_assert!(noise <= pieces.concat().len());
    }
}
