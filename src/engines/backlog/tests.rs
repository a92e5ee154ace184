//! What becomes of a response while its client is slow.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::future::poll_fn;

use super::*;

/// For a disk, and for what would be for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than has room in memory, for a client that takes nothing; then PHP is done. Says whether a file was made.
async fn given(is_quick_so_far: bool) -> (Giver, Taker, bool) {
    let spool = Spool {
        directory: None,
        max: 1 << 30,
    };
    let (mut giver, taker) = backlog(Some(Arc::new(spool)));
    // It has taken so much so quickly that it would be waited for, for an hour.
    giver.given = if is_quick_so_far { 360 << 30 } else { 0 };
    let looks = Cell::new(0);
    for piece in 0..2 * PIECES {
        let piece = Bytes::from(vec![piece as u8; 1000]);
        let is_done = || {
            looks.set(looks.get() + 1);
            looks.get() > 3
        };
        let giving = timeout(PATIENCE, giver.give(piece, is_done));
        giving.await.expect("it is waited for the client").unwrap();
    }
    let is_spooled = giver.shared.lock().is_spooled();
    (giver, taker, is_spooled)
}

async fn all(mut taker: Taker) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| taker.poll_take(cx)).await {
        all.extend(piece.unwrap());
    }
    all
}

/// As with a full disk, which takes nothing, or has a page left.
#[tokio::test]
async fn where_a_file_takes_nothing_php_waits() {
    let spool = Spool {
        directory: None,
        max: 999,
    };
    let (mut giver, taker) = backlog(Some(Arc::new(spool)));
    let mut pieces = 0;
    let piece = || Bytes::from(vec![1; 1000]);
    while timeout(PATIENCE, giver.give(piece(), || false))
        .await
        .is_ok()
    {
        pieces += 1;
        assert!(pieces < 5 * PIECES, "memory takes it all");
    }
    giver.end(Ok(()));
    assert_eq!(all(taker).await.len(), 1000 * pieces);
}

/// It has taken a little, and the client that; what is left in memory is still more than is to wait there.
#[tokio::test]
async fn a_file_that_takes_little_is_not_asked_before_there_is_room() {
    let spool = Spool {
        directory: None,
        max: 1 << 30,
    };
    let (mut giver, _taker) = backlog(Some(Arc::new(spool)));
    (giver.written, giver.is_full) = (4096, true);
    let waiting = (0..=PIECES).map(|_| Part::Memory(Bytes::from_static(b"left")));
    giver.shared.lock().parts.extend(waiting);
    let piece = Bytes::from_static(b"next");
    assert_eq!(giver.put_into_file(piece.clone()).await, Err(piece.clone()));
    giver.shared.lock().parts.pop_front();
    assert_eq!(giver.put_into_file(piece).await, Ok(()));
    assert!(giver.shared.lock().is_spooled());
}

#[tokio::test]
async fn once_php_is_done_its_next_event_does_not_wait_for_the_client() {
    let expected: Vec<u8> = (0..2 * PIECES)
        .flat_map(|piece| [piece as u8; 1000])
        .collect();
    for is_quick_so_far in [true, false] {
        let (giver, taker, is_spooled) = given(is_quick_so_far).await;
        assert_eq!(is_spooled, !is_quick_so_far);
        giver.end(Ok(()));
        assert_eq!(all(taker).await, expected);
    }
}
