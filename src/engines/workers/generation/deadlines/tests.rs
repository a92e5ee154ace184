//! Tests what sweeps find, by a clock that each sweep advances: nothing that a worker writes and no
//! state of a process delays other requests by more than a second.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};

use surus_sys::process;
use surus_sys::seqpacket::Seqpacket;
use tokio::sync::oneshot;

use super::*;
use crate::engine::Report;
use crate::engines::workers::generation::in_flight::WorkerAnswer;
use crate::engines::workers::generation::in_flight::tests::slot;
use crate::engines::workers::generation::state::Worker;
use crate::engines::workers::pool_memory::WorkerSize;
use crate::launcher::Pid;

const LIMITS: RequestLimits = RequestLimits {
    queue_wait: Duration::MAX,
    kill_timeout: Duration::from_secs(1),
    slow_request: Some(Duration::from_secs(3)),
    boot: Duration::MAX,
    capacity: 1,
};

/// States of a line in the scoreboard (sapi/base/scoreboard_layout.h).
const IDLE: u32 = 1;
const RUNNING: u32 = 3;

/// A process that ignores the signal by which workers are told to look for requests.
struct Process(Child);

impl Process {
    fn start() -> Process {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=34", "--ignore-signal=35", "sleep", "1000"]);
        let process = Process(command.spawn().unwrap());
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", process.pid()));
        while name().unwrap() != "sleep\n" {
            std::thread::sleep(Duration::from_millis(1));
        }
        process.becomes('S');
        process
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn becomes(&self, state: char) {
        while process::state(self.pid()) != Some(state) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&self) {
        let mut kill = Command::new("kill");
        kill.args(["-STOP", &self.pid().to_string()]);
        kill.status().unwrap();
        self.becomes('T');
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Workers that do nothing, and a sweeper with its clock.
struct Pool {
    shared: Arc<GenerationState>,
    sweeper: Sweeper,
    /// None after the end of the generation's requests.
    inbox: Option<Inbox>,
    requests: Seqpacket,
    processes: Vec<Process>,
    now: Instant,
}

impl Pool {
    /// All workers are idle.
    fn new(workers: usize) -> Pool {
        let shared = GenerationState::with_workers(workers, Duration::ZERO);
        let (ours, theirs) = Seqpacket::blocking_pair().unwrap();
        let pool = Pool {
            sweeper: Sweeper::new(shared.clone(), LIMITS),
            inbox: Some(Inbox::new(Seqpacket::from(ours), shared.poller.clone())),
            requests: Seqpacket::from(theirs),
            processes: (0..workers).map(|_| Process::start()).collect(),
            now: Instant::now(),
            shared,
        };
        for (index, process) in pool.processes.iter().enumerate() {
            pool.write_line(index, IDLE, None);
            pool.shared.lock_workers()[index] = Some(Worker {
                pid: Arc::new(Pid::new(process.pid(), None, None)),
                exit: None,
                killed: None,
                started: pool.now,
                end: None,
                has_waited: true,
                size: WorkerSize::default(),
            });
        }
        pool
    }

    /// Writes a worker's line as the worker does.
    fn write_line(&self, worker: usize, state: u32, held: Option<Key>) {
        let slot = held.map_or(0, |key| u32::from(key.slot));
        let tag = held.map_or(0, |key| u64::from(key.ticket.tag()));
        let numbers = [state.to_ne_bytes(), slot.to_ne_bytes()].concat();
        let start = 64 * worker as u64;
        write(self.shared.board.fd(), start, &numbers);
        // Since the machine started.
        write(self.shared.board.fd(), start + 8, &[0; 8]);
        write(self.shared.board.fd(), start + 16, &tag.to_ne_bytes());
        let pid = self.processes[worker].pid();
        write(self.shared.board.fd(), start + 48, &pid.to_ne_bytes());
    }

    /// A request that waits in the request ring, or in the socket.
    fn request(&mut self, by_socket: bool) -> (Key, oneshot::Receiver<WorkerAnswer>) {
        let (answer, answered) = oneshot::channel();
        let (shared, sent_at) = (&self.shared, self.now);
        let key = shared.in_flight.open(&shared.board, slot).unwrap();
        let position = match by_socket {
            true => shared.poller.rings.announce(|| Ok(())),
            false => shared.poller.rings.put(&[IoSlice::new(b"request")]),
        };
        let sent = Sent {
            at: sent_at,
            position: position.unwrap(),
            by_socket,
            to_polling_worker: false,
        };
        shared.in_flight.with(key, |slot| {
            (slot.sent, slot.answer, slot.entered) = (Some(sent), Some(answer), sent_at);
        });
        (key, answered)
    }

    /// Moves the head of the request ring to its end, as a worker does that takes all.
    fn skip_all(&self) {
        let (_, tail) = self.shared.poller.rings.inbox_ends();
        // Behind the header, the doorbells and the bits of written rings.
        write(self.shared.poller.rings.fd(), 4 * 64, &tail.to_ne_bytes());
    }

    /// Sweeps until this is the case, for at most a second, with the time from something that
    /// happened just after the last sweep.
    fn sweeps_until(&mut self, what: &str, mut is: impl FnMut(&GenerationState) -> bool) {
        let until = self.now + Duration::from_secs(1);
        while !is(&self.shared) {
            assert!(self.now + TICK <= until, "{what}: not within a second");
            self.sweep();
        }
    }

    /// Processes that it suspends have stopped afterwards.
    fn sweep(&mut self) {
        self.now += TICK;
        self.sweeper.sweep(self.inbox.as_ref(), self.now);
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(pid) = self.shared.pid(index)
                && self.sweeper.suspects.has_suspended(&pid)
            {
                process.becomes('T');
            }
        }
    }

    /// Suspects the workers that hold nothing, with their time over.
    fn suspects_all(&mut self) {
        let all = self.shared.without_event();
        self.sweeper.suspects.add(&self.shared, all);
    }

    fn killed(&self, worker: usize) -> impl Fn(&GenerationState) -> bool + use<> {
        move |shared| {
            let workers = shared.lock_workers();
            workers[worker].as_ref().unwrap().killed.is_some()
        }
    }
}

fn write(memory: BorrowedFd<'_>, at: u64, bytes: &[u8]) {
    let memory = File::from(memory.as_fd().try_clone_to_owned().unwrap());
    memory.write_all_at(bytes, at).unwrap();
}

fn failed(answer: &mut oneshot::Receiver<WorkerAnswer>) -> Option<RequestProgress> {
    let failed = answer.try_recv().ok()?.err()?;
    Some(failed.progress)
}

#[tokio::test]
async fn request_whose_message_was_skipped_is_sent_again_within_a_second() {
    let mut pool = Pool::new(2);
    let (_, mut answer) = pool.request(false);
    pool.skip_all();
    let is_sent_again = |_: &GenerationState| failed(&mut answer) == Some(RequestProgress::Queued);
    pool.sweeps_until("it is sent again", is_sent_again);
}

#[tokio::test]
async fn request_with_an_overwritten_ticket_fails_within_a_second() {
    for word in [0, u64::MAX] {
        let mut pool = Pool::new(2);
        let (key, mut answer) = pool.request(false);
        pool.skip_all();
        let at = 64 * 2 + 8 * u64::from(key.slot);
        write(pool.shared.board.fd(), at, &word.to_ne_bytes());
        let is_failed =
            |_: &GenerationState| failed(&mut answer) == Some(RequestProgress::Received);
        pool.sweeps_until("it fails", is_failed);
    }
}

/// A pool whose first worker runs a request, and what waits for its response.
fn of_two_with_one_running() -> (Pool, oneshot::Receiver<WorkerAnswer>) {
    let mut pool = Pool::new(2);
    let (key, running) = pool.request(false);
    pool.write_line(0, RUNNING, Some(key));
    pool.skip_all();
    pool.now += TICK;
    pool.sweeper.sweep(pool.inbox.as_ref(), pool.now);
    (pool, running)
}

#[tokio::test]
async fn request_that_a_worker_runs_for_long_is_counted_as_slow_once() {
    let (mut pool, _running) = of_two_with_one_running();
    let counted = |pool: &Pool| pool.shared.metrics.slow_requests("classic").get();
    for _ in 0..50 {
        pool.sweep();
    }
    assert_eq!(counted(&pool), 0, "2.5 s of 3");
    for _ in 0..100 {
        pool.sweep();
    }
    assert_eq!(counted(&pool), 1);
}

/// Another worker runs a request, so the pool stays.
#[tokio::test]
async fn worker_that_sleeps_while_a_request_waits_is_killed_within_a_second() {
    let (mut pool, _running) = of_two_with_one_running();
    let (_, _waiting) = pool.request(false);
    let is_killed = pool.killed(1);
    pool.sweeps_until("it is killed", is_killed);
    assert!(!pool.killed(0)(&pool.shared) && !pool.shared.replace.is_cancelled());
}

/// The others hold requests, so nothing is served until one of them ends.
#[tokio::test]
async fn missing_worker_makes_the_pool_unready_within_a_second_and_replaced_later() {
    let (mut pool, _running) = of_two_with_one_running();
    pool.shared.lock_workers()[1] = None;
    let (_, _waiting) = pool.request(false);
    let is_stuck = |shared: &GenerationState| shared.is_stuck.load(Ordering::SeqCst);
    pool.sweeps_until("it says so", is_stuck);
    assert!(!pool.shared.replace.is_cancelled());
    for _ in 0..50 {
        pool.sweep();
    }
    assert!(pool.shared.replace.is_cancelled());
}

#[tokio::test]
async fn pool_in_which_all_workers_sleep_while_a_request_waits_is_replaced_within_a_second() {
    let mut pool = Pool::new(2);
    let (_, _waiting) = pool.request(false);
    pool.sweeps_until("it is replaced", |shared| shared.replace.is_cancelled());
    assert!(pool.shared.hands_over());
}

/// One that says that it exits may take longer.
#[tokio::test]
async fn exiting_worker_does_not_keep_others_that_sleep_from_being_killed() {
    const EXITING: u32 = 5;
    let mut pool = Pool::new(2);
    pool.write_line(0, EXITING, None);
    let (_, _waiting) = pool.request(false);
    let is_killed = pool.killed(1);
    pool.sweeps_until("it is killed", is_killed);
    assert!(!pool.killed(0)(&pool.shared) && !pool.shared.replace.is_cancelled());
}

#[tokio::test]
async fn stopped_workers_are_killed_within_a_second_if_a_request_waits() {
    let mut pool = Pool::new(2);
    pool.processes.iter().for_each(Process::stop);
    let (_, _waiting) = pool.request(false);
    for worker in 0..2 {
        let is_killed = pool.killed(worker);
        pool.sweeps_until("it is killed", is_killed);
    }
    assert!(!pool.shared.replace.is_cancelled());
}

#[tokio::test]
async fn stopped_master_process_is_resumed_and_replaced_within_a_second() {
    let mut pool = Pool::new(1);
    let master = Process::start();
    pool.shared.master.set(master.pid()).unwrap();
    pool.shared.report.set(Report::default()).unwrap();
    let (key, _running) = pool.request(false);
    pool.write_line(0, RUNNING, Some(key));
    // The last check is as old as can be.
    pool.now += TICK;
    pool.sweeper.sweep(pool.inbox.as_ref(), pool.now);
    master.stop();
    pool.sweeps_until("it is replaced", |shared| shared.replace.is_cancelled());
    master.becomes('S');
}

/// Otherwise they would keep the generation, and with it the end of Surus, for the time limit of
/// requests.
#[tokio::test]
async fn stopped_workers_of_a_generation_that_drains_are_killed_within_a_second() {
    let mut pool = Pool::new(2);
    pool.processes.iter().for_each(Process::stop);
    // One holds a request, which has its own time limit.
    let (key, _running) = pool.request(false);
    pool.write_line(0, RUNNING, Some(key));
    pool.skip_all();
    pool.now += TICK;
    pool.sweeper.sweep(pool.inbox.as_ref(), pool.now);
    pool.shared.drain();
    let is_killed = pool.killed(1);
    pool.sweeps_until("it is killed", is_killed);
    assert!(!pool.killed(0)(&pool.shared));
}

/// They look as if they waited for requests.
#[tokio::test]
async fn workers_that_sleep_after_the_last_request_are_ended_within_a_second() {
    let mut pool = Pool::new(2);
    pool.shared.drain();
    pool.inbox = None;
    let has_ended = |shared: &GenerationState| shared.dropped.is_cancelled();
    pool.sweeps_until("all end", has_ended);
    // One that still runs a request is not disturbed.
    let mut pool = Pool::new(2);
    let (key, _running) = pool.request(false);
    pool.write_line(0, RUNNING, Some(key));
    pool.skip_all();
    pool.shared.drain();
    pool.inbox = None;
    let is_killed = pool.killed(1);
    pool.sweeps_until("it is killed", is_killed);
    assert!(!pool.killed(0)(&pool.shared) && !has_ended(&pool.shared));
}

#[tokio::test]
async fn drain_wakes_a_parked_sweeper() {
    let shared = GenerationState::without_processes(Duration::ZERO);
    shared.parking.park();
    shared.drain();
    let notified = tokio::time::timeout(Duration::from_secs(60), shared.parking.notified());
    assert!(notified.await.is_ok());
}

#[tokio::test]
async fn suspects_are_suspended_and_killed_one_per_sweep() {
    let mut pool = Pool::new(3);
    pool.suspects_all();
    for worker in 0..3 {
        pool.sweep();
        assert_eq!(process::state(pool.processes[worker].pid()), Some('T'));
        assert!(!pool.killed(worker)(&pool.shared), "it may hold an event");
        assert!(worker == 0 || pool.killed(worker - 1)(&pool.shared));
    }
    pool.sweep();
    assert!(pool.killed(2)(&pool.shared));
}

#[tokio::test]
async fn suspect_that_has_claimed_an_event_before_it_stopped_is_resumed() {
    let mut pool = Pool::new(1);
    pool.suspects_all();
    pool.sweep();
    let (key, _answer) = pool.request(false);
    pool.write_line(0, RUNNING, Some(key));
    pool.skip_all();
    pool.sweep();
    pool.processes[0].becomes('S');
    assert!(!pool.killed(0)(&pool.shared));
}

/// It may be a forged claim, so that happens a few times only.
#[tokio::test]
async fn suspect_is_resumed_if_an_event_has_been_claimed_by_an_unknown_worker() {
    let mut pool = Pool::new(1);
    pool.suspects_all();
    pool.sweep();
    let (key, _answer) = pool.request(false);
    pool.skip_all();
    assert!(pool.shared.board.revoke(key.slot, key.ticket));
    pool.sweep();
    pool.processes[0].becomes('S');
    assert!(!pool.killed(0)(&pool.shared));
    let is_killed = pool.killed(0);
    pool.sweeps_until("it is killed", is_killed);
}

/// Each request that is lost is sent again.
#[tokio::test]
async fn socket_that_loses_requests_is_replaced_within_a_second() {
    let mut pool = Pool::new(2);
    let until = pool.now + Duration::from_secs(1);
    while !pool.shared.replace.is_cancelled() {
        let (_, mut answer) = pool.request(true);
        pool.skip_all();
        let is_lost = |_: &GenerationState| failed(&mut answer).is_some();
        pool.sweeps_until("it is lost", is_lost);
        assert!(pool.now <= until);
    }
}

#[tokio::test]
async fn request_socket_that_was_shut_down_is_replaced_within_a_second() {
    let mut pool = Pool::new(2);
    let (_, _waiting) = pool.request(false);
    let theirs =
        std::os::unix::net::UnixStream::from(pool.requests.as_fd().try_clone_to_owned().unwrap());
    theirs.shutdown(std::net::Shutdown::Both).unwrap();
    // A worker that finds it closed exits.
    pool.shared.is_inbox_suspect.store(true, Ordering::SeqCst);
    pool.sweeps_until("it is replaced", |shared| shared.replace.is_cancelled());
}

/// It saw the request to stop before its signal arrived, and ended its response.
#[tokio::test]
async fn response_of_a_worker_that_exits_before_its_signal_still_counts_as_stopped() {
    let shared = GenerationState::without_processes(Duration::ZERO);
    let key = shared.in_flight.open(&shared.board, slot).unwrap();
    let exited = Holder {
        worker: 0,
        pid: Arc::new(Pid::new(u32::MAX, None, None)),
        has_shown_ticket: true,
    };
    assert!(!shared.stop(&exited, key));
    let sweeper = Sweeper::new(shared.clone(), LIMITS);
    sweeper.stop(key, 1, exited, Instant::now());
    let is_stopping = |slot: &mut InFlightRequest| slot.stopping.is_some();
    assert_eq!(shared.in_flight.with(key, is_stopping), Some(true));
}
