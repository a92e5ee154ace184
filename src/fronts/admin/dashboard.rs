//! The dashboard: one page, and a stream of events (SSE) with one snapshot a second for all of its
//! readers.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::MissedTickBehavior;

use super::text;
use crate::observe::snapshot::{Observer, Snapshot};

/// Streams at a time.
const MAX_READERS: usize = 16;

const INTERVAL: Duration = Duration::from_secs(1);

pub type DashboardBody = UnsyncBoxBody<Bytes, Infallible>;

/// The readers of snapshots.
pub struct Dashboard {
    permits: Arc<Semaphore>,
    /// The last event.
    events: watch::Sender<Bytes>,
    /// Whether a task takes snapshots.
    is_watched: Mutex<bool>,
}

impl Default for Dashboard {
    fn default() -> Self {
        Dashboard {
            permits: Arc::new(Semaphore::new(MAX_READERS)),
            events: watch::Sender::default(),
            is_watched: Mutex::new(false),
        }
    }
}

impl Dashboard {
    /// Adds a reader. The first one starts the task that calls `sample`, which ends after the last.
    pub fn stream(
        self: &Arc<Self>,
        sample: impl FnMut(&mut Observer) -> Snapshot + Send + 'static,
    ) -> Response<DashboardBody> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            let why = format!("{MAX_READERS} dashboards are open already; close one\n");
            return text(StatusCode::SERVICE_UNAVAILABLE, why).map(BodyExt::boxed_unsync);
        };
        let reader = DashboardReader {
            events: self.events.subscribe(),
            _permit: permit,
        };
        self.watch(sample);
        let events = stream::unfold(reader, |mut reader| async {
            reader.events.changed().await.ok()?;
            let event = reader.events.borrow_and_update().clone();
            Some((Ok(Frame::data(event)), reader))
        });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn watch(self: &Arc<Self>, mut sample: impl FnMut(&mut Observer) -> Snapshot + Send + 'static) {
        let is_watched = std::mem::replace(&mut *self.lock(), true);
        if is_watched {
            return;
        }
        let dashboard = self.clone();
        tokio::spawn(async move {
            let mut observer = Observer::default();
            let mut ticks = tokio::time::interval(INTERVAL);
            // Late snapshots in a row would have rates of nearly no time.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                // Under the lock, so that a new reader starts another task if this one ends.
                let mut is_watched = dashboard.lock();
                *is_watched = dashboard.events.receiver_count() > 0;
                if !*is_watched {
                    return;
                }
                drop(is_watched);
                let json = serde_json::to_string(&sample(&mut observer)).unwrap_or_default();
                dashboard
                    .events
                    .send_replace(format!("data: {json}\n\n").into());
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.is_watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open stream. A reader that is too slow misses snapshots.
struct DashboardReader {
    events: watch::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

/// The page. Bytes of clients come from the stream only, and the page shows them as text; these
/// headers hold even if it did not.
pub fn page() -> Response<DashboardBody> {
    let random = RandomState::new();
    let nonce = format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1));
    let page = include_str!("dashboard.html").replacen("{{nonce}}", &nonce, 1);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let mut response = text(StatusCode::OK, page).map(BodyExt::boxed_unsync);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &*policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Samples = Arc<AtomicUsize>;

    fn open(dashboard: &Arc<Dashboard>, samples: &Samples) -> Response<DashboardBody> {
        let samples = samples.clone();
        dashboard.stream(move |_| {
            samples.fetch_add(1, Ordering::SeqCst);
            Snapshot::default()
        })
    }

    async fn event(stream: &mut Response<DashboardBody>) -> String {
        let frame = stream.body_mut().frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_snapshot_a_second_is_for_all_readers_and_none_without() {
        let (dashboard, samples) = (Arc::new(Dashboard::default()), Samples::default());
        let mut streams: Vec<_> = (0..3).map(|_| open(&dashboard, &samples)).collect();
        for round in 1..=3 {
            for stream in &mut streams {
                let event = event(stream).await;
                assert!(
                    event.starts_with("data: {") && event.ends_with("}\n\n"),
                    "{event}"
                );
            }
            assert_eq!(samples.load(Ordering::SeqCst), round);
        }
        drop(streams);
        tokio::time::sleep(INTERVAL * 10).await;
        assert_eq!(samples.load(Ordering::SeqCst), 3);
        let mut again = open(&dashboard, &samples);
        event(&mut again).await;
        assert_eq!(samples.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn readers_are_bounded_and_a_permit_is_free_when_one_leaves() {
        let (dashboard, samples) = (Arc::new(Dashboard::default()), Samples::default());
        let mut streams: Vec<_> = (0..MAX_READERS)
            .map(|_| open(&dashboard, &samples))
            .collect();
        assert!(streams.iter().all(|stream| stream.status() == 200));
        assert_eq!(open(&dashboard, &samples).status(), 503);
        streams.pop();
        assert_eq!(open(&dashboard, &samples).status(), 200);
    }

    #[test]
    fn page_runs_only_its_own_script_and_loads_nothing() {
        let (one, other) = (page(), page());
        let policy = |page: &Response<DashboardBody>| {
            let value = &page.headers()[header::CONTENT_SECURITY_POLICY];
            value.to_str().unwrap().to_owned()
        };
        assert_ne!(policy(&one), policy(&other));
        let page = include_str!("dashboard.html");
        for forbidden in [
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "http://",
            "src=",
        ] {
            assert!(
                !page
                    .replace("http://www.w3.org/2000/svg", "")
                    .contains(forbidden)
            );
        }
        assert_eq!(page.matches("<script").count(), 1);
    }
}
