//! Tests of the response buffer with slow clients.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::future::poll_fn;

use super::*;

/// Long enough for a disk; the limit of waits that would never end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Gives more than fits in memory while the client takes nothing; then PHP is done. Returns whether
/// a file was created.
async fn sent(is_quick_so_far: bool) -> (SpoolWriter, SpoolReader, bool) {
    let spool = Spool {
        directory: None,
        max: 1 << 30,
    };
    let (mut writer, reader) = pair(Some(Arc::new(spool)));
    // Pretend that the client has been fast enough for an hour of waiting.
    writer.sent = if is_quick_so_far { 360 << 30 } else { 0 };
    let polls = Cell::new(0);
    for piece in 0..2 * PIECES {
        let piece = Bytes::from(vec![piece as u8; 1000]);
        let is_done = || {
            polls.set(polls.get() + 1);
            polls.get() > 3
        };
        let writing = timeout(TIMEOUT, writer.write_waiting(piece, is_done));
        writing.await.expect("it waits for the client").unwrap();
    }
    let is_spooled = writer.channel.lock().is_spooled();
    (writer, reader, is_spooled)
}

async fn all(mut reader: SpoolReader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| reader.poll_read(cx)).await {
        all.extend(piece.unwrap());
    }
    all
}

/// A full disk may take nothing or a few more pages.
#[tokio::test]
async fn full_disk_makes_php_wait() {
    let spool = Spool {
        directory: None,
        max: 999,
    };
    let (mut writer, reader) = pair(Some(Arc::new(spool)));
    let mut pieces = 0;
    let piece = || Bytes::from(vec![1; 1000]);
    while timeout(TIMEOUT, writer.write_waiting(piece(), || false))
        .await
        .is_ok()
    {
        pieces += 1;
        assert!(pieces < 5 * PIECES, "memory is unlimited");
    }
    writer.end(Ok(()));
    assert_eq!(all(reader).await.len(), 1000 * pieces);
}

/// The disk took a little and the client read it, but memory still holds more than its limit.
#[tokio::test]
async fn nearly_full_disk_is_not_retried_before_there_is_room() {
    let spool = Spool {
        directory: None,
        max: 1 << 30,
    };
    let (mut writer, _reader) = pair(Some(Arc::new(spool)));
    (writer.written, writer.is_full) = (4096, true);
    let waiting = (0..=PIECES).map(|_| SpoolPart::Memory(Bytes::from_static(b"left")));
    writer.channel.lock().parts.extend(waiting);
    let piece = Bytes::from_static(b"next");
    assert_eq!(
        writer.put_into_file(piece.clone()).await,
        Err(piece.clone())
    );
    writer.channel.lock().parts.pop_front();
    assert_eq!(writer.put_into_file(piece).await, Ok(()));
    assert!(writer.channel.lock().is_spooled());
}

#[tokio::test]
async fn slow_client_does_not_delay_the_next_event_once_php_is_done() {
    let expected: Vec<u8> = (0..2 * PIECES)
        .flat_map(|piece| [piece as u8; 1000])
        .collect();
    for is_quick_so_far in [true, false] {
        let (writer, reader, is_spooled) = sent(is_quick_so_far).await;
        assert_eq!(is_spooled, !is_quick_so_far);
        writer.end(Ok(()));
        assert_eq!(all(reader).await, expected);
    }
}
