//! Tests of the queue's bounds and order.
#![allow(clippy::unwrap_used)]

use tokio::task::JoinHandle;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const BOUNDS: Bounds = Bounds {
    max_waiting: 10_000,
    max_wait: Duration::from_secs(3600),
    target: SECOND,
    interval: Duration::from_secs(5),
};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Starts an event that waits.
async fn wait(queue: &Arc<RequestQueue>) -> JoinHandle<Result<Permit, Failure>> {
    let before = queue.waiting();
    let waits = tokio::spawn({
        let queue = queue.clone();
        async move { queue.enter_by(later(), EVENT).await }
    });
    while queue.waiting() == before {
        tokio::task::yield_now().await;
    }
    waits
}

fn is_rejected(answer: &Result<Permit, Failure>) -> bool {
    matches!(answer, Err(Failure::QueueTimeout(why)) if why.contains("overload"))
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_in_number_and_time() {
    let bounds = Bounds {
        max_waiting: 1,
        max_wait: Duration::from_secs(5),
        ..BOUNDS
    };
    let queue = Arc::new(RequestQueue::new(1, bounds));
    let permit = queue.enter_by(later(), EVENT).await.unwrap();
    let second = wait(&queue).await;
    assert_eq!(queue.waiting(), 1);
    assert!(matches!(
        queue.enter_by(later(), EVENT).await,
        Err(Failure::QueueFull("the queue is full"))
    ));
    assert!(matches!(
        second.await.unwrap(),
        Err(Failure::QueueTimeout("no worker became free in time"))
    ));
    assert_eq!(queue.waiting(), 0);
    let deadline = Instant::now() + SECOND;
    assert!(matches!(
        queue.enter_by(deadline, EVENT).await,
        Err(Failure::TimedOut)
    ));
    drop(permit);
    assert!(queue.enter_by(later(), EVENT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn burst_is_served_oldest_first() {
    let queue = Arc::new(RequestQueue::new(1, BOUNDS));
    let mut permit = queue.try_enter().unwrap().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(wait(&queue).await);
    }
    for waits in waiting {
        tokio::time::sleep(SECOND / 10).await;
        drop(permit);
        permit = waits.await.unwrap().unwrap();
    }
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn overloaded_queue_serves_the_newest_first_and_rejects_the_late() {
    let queue = Arc::new(RequestQueue::new(1, BOUNDS));
    let mut permit = queue.try_enter().unwrap().unwrap();
    let mut late = Vec::new();
    for _ in 0..100 {
        late.push(wait(&queue).await);
    }
    // During one interval, one event is served each second.
    for _ in 0..5 {
        tokio::time::sleep(SECOND + SECOND / 100).await;
        drop(permit);
        permit = late.remove(0).await.unwrap().unwrap();
    }
    tokio::time::sleep(SECOND * 9 / 10).await;
    let (older, newer) = (wait(&queue).await, wait(&queue).await);
    tokio::time::sleep(SECOND / 5).await;
    drop(permit);
    permit = newer.await.unwrap().unwrap();
    for late in late {
        assert!(is_rejected(&late.await.unwrap()));
    }
    assert_eq!(queue.waiting(), 1);
    drop(permit);
    permit = older.await.unwrap().unwrap();
    // An empty queue ends the overload.
    let (older, newer) = (wait(&queue).await, wait(&queue).await);
    drop(permit);
    drop(older.await.unwrap().unwrap());
    drop(newer.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn abandoned_wait_gives_its_turn_to_the_next() {
    let queue = Arc::new(RequestQueue::new(1, BOUNDS));
    let permit = queue.try_enter().unwrap().unwrap();
    let (first, second) = (wait(&queue).await, wait(&queue).await);
    first.abort();
    drop(permit);
    assert!(second.await.unwrap().is_ok());
    assert_eq!((queue.taken(), queue.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn queue_with_full_memory_rejects() {
    let queue = RequestQueue::new(1, BOUNDS);
    let _place = queue.try_enter().unwrap().unwrap();
    let more = budget::QUEUE.limit() + 1;
    assert!(matches!(
        queue.enter_by(later(), more).await,
        Err(Failure::QueueFull("the queue's memory is full"))
    ));
}

#[tokio::test(start_paused = true)]
async fn emptied_waits_for_the_last_event_and_closes() {
    let queue = Arc::new(RequestQueue::new(2, BOUNDS));
    let permit = queue.enter_by(later(), EVENT).await.unwrap();
    let emptied = tokio::spawn({
        let queue = queue.clone();
        async move { queue.emptied().await }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!emptied.is_finished());
    drop(permit);
    emptied.await.unwrap();
    assert!(matches!(
        queue.enter_by(later(), EVENT).await,
        Err(Failure::Busy("shutting down"))
    ));
}

#[tokio::test(start_paused = true)]
async fn closed_waits_for_events_that_wait_and_not_for_the_others() {
    let queue = Arc::new(RequestQueue::new(1, BOUNDS));
    let permit = queue.try_enter().unwrap().unwrap();
    let waits = wait(&queue).await;
    let closed = tokio::spawn({
        let queue = queue.clone();
        async move { queue.closed().await }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!closed.is_finished() && queue.try_enter().is_err());
    drop(permit);
    let permit = waits.await.unwrap().unwrap();
    closed.await.unwrap();
    assert_eq!(queue.taken(), 1);
    drop(permit);
}
