//! Writes lines to a stream on its own thread, so that a slow reader delays no request.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::budget::Budget;

/// The largest single write.
const PIECE: usize = 64 << 10;

/// How long lines are collected before the next write. Waking the thread for each line takes more
/// CPU than the rest of a short request, and delays its response.
const PAUSE: Duration = Duration::from_millis(5);
/// How often lines that could not be written are reported.
const REPORTS: Duration = Duration::from_secs(10);
/// Bytes that each writer may hold even if others have used the budget up, because their streams
/// are not read.
const OWN_SHARE: u64 = 256 << 10;
/// How many times as long as it may stall, the last lines may take.
const LIMITS: u32 = 15;

/// Sends lines of type `T` to a stream.
pub struct Writer<T> {
    sender: Sender<LogMessage<T>>,
    account: Arc<Account>,
    thread: Thread,
}

enum LogMessage<T> {
    Line(T, usize),
    /// This many lines are missing here.
    Lost(u64),
    /// An action to run once everything before it is written.
    Then(Box<dyn FnOnce() + Send>),
}

struct Account {
    /// For all writers of its kind. Lines beyond it are lost, except for a share of each writer.
    budget: &'static Budget,
    /// Bytes of this writer that wait or are being written.
    waiting: AtomicU64,
    /// Lines that were lost and not yet reported.
    lost: AtomicU64,
}

impl Account {
    fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes bytes for a line. An empty queue accepts a line of any size.
    fn try_take(&self, bytes: u64) -> bool {
        let waiting = self.waiting();
        let is_own = waiting == 0 || waiting.saturating_add(bytes) <= OWN_SHARE;
        let is_taken = self.budget.try_take_unless_exempt(is_own, bytes);
        if is_taken {
            self.waiting.fetch_add(bytes, Ordering::AcqRel);
        }
        is_taken
    }

    fn release(&self, bytes: u64) {
        self.budget.release(bytes);
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl<T: Send + 'static> Writer<T> {
    /// `format` turns a line into text. The writing thread calls `report_lost` with the number of
    /// missing lines, once the stream accepts data again.
    pub fn start(
        name: &str,
        budget: &'static Budget,
        to: impl Write + Send + 'static,
        format: impl FnMut(T, &mut Vec<u8>) + Send + 'static,
        report_lost: impl FnMut(u64) + Send + 'static,
    ) -> io::Result<Writer<T>> {
        let (sender, receiver) = channel();
        let account = Arc::new(Account {
            budget,
            waiting: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let written = account.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || write(&receiver, &written, to, format, report_lost))?;
        Ok(Writer {
            sender,
            account,
            thread: thread.thread().clone(),
        })
    }

    /// Queues a line of about `size` bytes, or drops it. Never blocks.
    pub fn send(&self, line: T, size: usize) {
        let account = &*self.account;
        if !account.try_take(size as u64) {
            account.lost.fetch_add(1, Ordering::AcqRel);
            return;
        }
        match account.lost.swap(0, Ordering::AcqRel) {
            0 => {}
            lost => drop(self.sender.send(LogMessage::Lost(lost))),
        }
        let _ = self.sender.send(LogMessage::Line(line, size));
    }

    /// Returns when everything sent so far is written.
    pub async fn written(&self) {
        if self.account.waiting() > 0 {
            let (done, is_done) = tokio::sync::oneshot::channel::<()>();
            self.then(move || drop(done));
            let _ = is_done.await;
        }
    }

    /// Like [`written`](Self::written), but returns as well when nothing was written for `limit`,
    /// and after [`LIMITS`] times that.
    pub async fn written_unless_stalled(&self, limit: Duration) {
        let mut written = std::pin::pin!(self.written());
        for _ in 0..LIMITS {
            let waiting = self.account.waiting();
            let is_written = tokio::time::timeout(limit, &mut written).await.is_ok();
            if is_written || self.account.waiting() >= waiting {
                return;
            }
        }
    }

    /// Like [`written_unless_stalled`](Self::written_unless_stalled), but blocks the thread.
    pub fn wait_until_written(&self, limit: Duration) {
        let (done, is_done) = channel::<()>();
        self.then(move || drop(done));
        for _ in 0..LIMITS {
            let waiting = self.account.waiting();
            let is_written = is_done.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
            if is_written || self.account.waiting() >= waiting {
                return;
            }
        }
    }

    fn then(&self, action: impl FnOnce() + Send + 'static) {
        let _ = self.sender.send(LogMessage::Then(Box::new(action)));
        self.thread.unpark();
    }
}

/// Lines that could not be written, because the stream is closed or its disk is full.
#[derive(Default)]
struct Unwritten {
    lines: u64,
    reported: Option<Instant>,
}

impl Unwritten {
    /// What to report now: at most once in [`REPORTS`].
    fn due(&mut self, now: Instant) -> Option<u64> {
        let is_due = |reported| now.saturating_duration_since(reported) >= REPORTS;
        if self.lines == 0 || !self.reported.is_none_or(is_due) {
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.lines))
    }
}

fn write<T>(
    receiver: &Receiver<LogMessage<T>>,
    account: &Account,
    mut to: impl Write,
    mut format: impl FnMut(T, &mut Vec<u8>),
    mut report_lost: impl FnMut(u64),
) {
    let mut text = Vec::new();
    let mut written = Instant::now();
    let mut unwritten = Unwritten::default();
    while let Ok(first) = receiver.recv() {
        let (mut sizes, mut lines) = (0, 0);
        let mut next = Some(first);
        // Combines all waiting lines into one write.
        while let Some(LogMessage::Line(line, size)) = next {
            format(line, &mut text);
            sizes += size;
            lines += 1;
            next = (text.len() < PIECE)
                .then(|| receiver.try_recv().ok())
                .flatten();
        }
        if !text.is_empty() {
            if to.write_all(&text).and_then(|()| to.flush()).is_err() {
                unwritten.lines += lines;
            }
            if let Some(lines) = unwritten.due(written) {
                report_lost(lines);
            }
            let is_all = text.len() < PIECE;
            text.clear();
            text.shrink_to(PIECE);
            account.release(sizes as u64);
            let before = std::mem::replace(&mut written, Instant::now());
            if is_all && next.is_none() && written - before < 2 * PAUSE {
                std::thread::park_timeout(PAUSE);
            }
        }
        match next {
            Some(LogMessage::Lost(lost)) => report_lost(lost),
            Some(LogMessage::Then(action)) => {
                if unwritten.lines > 0 {
                    report_lost(std::mem::take(&mut unwritten.lines));
                }
                report_remaining(account, &mut report_lost);
                action();
            }
            Some(LogMessage::Line(..)) => {}
            None if account.waiting() == 0 => {
                report_remaining(account, &mut report_lost);
            }
            None => {}
        }
    }
}

/// Reports lost lines if no later line has reported them.
fn report_remaining(account: &Account, report_lost: &mut impl FnMut(u64)) {
    match account.lost.swap(0, Ordering::AcqRel) {
        0 => {}
        lost => report_lost(lost),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    const MAX: usize = 16 << 20;

    /// A stream that accepts nothing while the test holds it.
    #[derive(Clone, Default)]
    struct Stream(Arc<Mutex<Vec<u8>>>);

    impl Stream {
        fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
            self.0.lock().unwrap()
        }
    }

    impl Write for Stream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(stream: &Stream) -> Writer<String> {
        start_with(Box::leak(Box::new(Budget::new("test", MAX as u64))), stream)
    }

    fn start_with(budget: &'static Budget, stream: &Stream) -> Writer<String> {
        let mut direct = stream.clone();
        Writer::start(
            "test",
            budget,
            stream.clone(),
            |line: String, text| text.extend_from_slice(line.as_bytes()),
            move |lost| writeln!(direct, "{lost} lost").unwrap(),
        )
        .unwrap()
    }

    fn send(writer: &Writer<String>, line: String) {
        let size = line.len();
        writer.send(line, size);
    }

    #[test]
    fn lines_are_written_in_order() {
        let stream = Stream::default();
        let writer = start(&stream);
        let mut expected = String::new();
        for number in 0..10_000 {
            let line = format!("line {number}\n");
            expected += &line;
            send(&writer, line);
        }
        writer.wait_until_written(Duration::from_secs(60));
        assert_eq!(String::from_utf8_lossy(&stream.lock()), expected);
    }

    #[test]
    fn blocked_stream_drops_lines_and_reports_their_number() {
        let stream = Stream::default();
        let writer = start(&stream);
        let large = "x".repeat(MAX / 4 - 1) + "\n";
        let held = stream.lock();
        for _ in 0..7 {
            send(&writer, large.clone());
        }
        drop(held);
        writer.wait_until_written(Duration::from_secs(60));
        send(&writer, "again\n".into());
        writer.wait_until_written(Duration::from_secs(60));
        let text = String::from_utf8_lossy(&stream.lock()).into_owned();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 6, "four, the notice, one more");
        assert!(lines[..4].iter().all(|line| line.starts_with('x')));
        assert_eq!(&lines[4..], ["3 lost", "again"]);
    }

    #[tokio::test]
    async fn blocked_stream_costs_no_lines_of_another() {
        static BUDGET: Budget = Budget::new("test", MAX as u64);
        let (blocked, other) = (Stream::default(), Stream::default());
        let first = start_with(&BUDGET, &blocked);
        let second = start_with(&BUDGET, &other);
        let held = blocked.0.clone();
        let (is_held, taken) = channel();
        let (release, released) = channel::<()>();
        let holder = std::thread::spawn(move || {
            let _held = held.lock().unwrap();
            is_held.send(()).unwrap();
            let _ = released.recv();
        });
        taken.recv().unwrap();
        let large = "x".repeat(MAX / 2 - 1) + "\n";
        for _ in 0..3 {
            send(&first, large.clone());
        }
        assert!(!BUDGET.has_room(1));
        let mut expected = String::new();
        for number in 0..20_000 {
            let line = format!("line {number}\n");
            expected += &line;
            send(&second, line);
            if number == 10_000 {
                second.written().await;
            }
        }
        second.written_unless_stalled(Duration::from_secs(60)).await;
        assert_eq!(String::from_utf8_lossy(&other.lock()), expected);
        assert!(first.account.waiting() > 0, "the other is still blocked");
        drop(release);
        holder.join().unwrap();
        first.wait_until_written(Duration::from_secs(60));
        let text = String::from_utf8_lossy(&blocked.lock()).into_owned();
        assert_eq!(text.lines().last(), Some("1 lost"));
    }

    /// A file on a full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_reported() {
        let stream = Stream::default();
        let mut direct = stream.clone();
        let writer = Writer::start(
            "test",
            Box::leak(Box::new(Budget::new("test", MAX as u64))),
            Full,
            |line: String, text| text.extend_from_slice(line.as_bytes()),
            move |lost| writeln!(direct, "{lost}").unwrap(),
        )
        .unwrap();
        for _ in 0..5 {
            send(&writer, "a line\n".into());
        }
        writer.wait_until_written(Duration::from_secs(60));
        let text = String::from_utf8_lossy(&stream.lock()).into_owned();
        let lost: u64 = text.lines().map(|line| line.parse::<u64>().unwrap()).sum();
        assert_eq!(lost, 5);
    }

    #[test]
    fn lost_lines_are_reported_where_they_are_missing() {
        let stream = Stream::default();
        let writer = start(&stream);
        let held = stream.lock();
        send(&writer, "x".repeat(MAX - 8) + "\n");
        send(&writer, "too long\n".into());
        send(&writer, "short\n".into());
        drop(held);
        writer.wait_until_written(Duration::from_secs(60));
        let text = String::from_utf8_lossy(&stream.lock()).into_owned();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(lines, ["1 lost", "short"]);
    }

    #[test]
    fn empty_queue_accepts_a_line_of_any_length() {
        let stream = Stream::default();
        let writer = start(&stream);
        send(&writer, "x".repeat(2 * MAX));
        writer.wait_until_written(Duration::from_secs(60));
        assert_eq!(stream.lock().len(), 2 * MAX);
    }
}
