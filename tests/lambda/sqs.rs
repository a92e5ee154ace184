//! Tests of SQS messages with workers that fail. ElasticMQ is the queue, `surus lambda` the
//! function, and the emulator polls the queue.
//!
//! ElasticMQ comes from `scripts/elasticmq` and needs Java. Without either the tests print why they
//! test nothing.
//! Ten times as many messages: `make test-queue`.

mod account;
#[allow(dead_code)]
mod elasticmq;
mod function;
mod witness;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use account::{Account, Message, Name};
use elasticmq::{Queue, Server};
use function::{Consumer, Killer, TIMEOUT};
use witness::{Seen, Witness};

/// When failed messages are delivered again. Messages in progress are, too, if the machine stalls
/// for this long, as SQS permits. The account judges each delivery by itself, so it stays correct.
const VISIBILITY: Duration = Duration::from_secs(3);
/// For messages that must not become dead letters. Those behind a failing one are delivered again
/// with it, which counts for them, too.
const MANY: u32 = 100;
/// Longer than a run without failures takes.
const LONG: Duration = Duration::from_secs(180);

struct Run {
    name: &'static str,
    is_fifo: bool,
    reports_failures: bool,
    max_receives: u32,
    kills: usize,
}

/// The fate of the messages.
struct InvokeOutcome {
    account: Account,
    seen: Seen,
    dead: BTreeSet<Name>,
    /// Mistakes found while the messages ran. The test reports them only when all concurrent runs
    /// are over.
    wrong: Vec<String>,
}

impl Run {
    /// Sends the messages and runs the function until none is left. None if there is no queue.
    async fn run(&self, messages: &[Message]) -> Option<InvokeOutcome> {
        let server = tokio::task::spawn_blocking(Server::get).await.unwrap()?;
        let began = Instant::now();
        let queue = Queue::create(&server, self.name, self.is_fifo, TIMEOUT, self.max_receives);
        let witness = Witness::start(queue.address().to_string()).await;
        let url = queue.url_through(witness.address);
        let consumer = Consumer::start(&url, self.reports_failures).await;
        // The emulator rejects a mapping with such a short visibility timeout, so it is set later.
        let impatient = queue.clone();
        tokio::task::spawn_blocking(move || impatient.set_visibility(VISIBILITY))
            .await
            .unwrap();
        let killer = Killer::start(consumer.path(), self.kills);
        let (sent, counted) = (queue.clone(), queue.clone());
        let bodies: Vec<(String, usize)> = messages.iter().map(|m| (m.body(), m.group)).collect();
        let left = tokio::task::spawn_blocking(move || {
            send(&sent, bodies);
            until_empty(&counted)
        });
        let left = left.await;
        let killed = killer.end();
        let (notes, complaints) = consumer.end().await;
        let seen = witness.seen();
        // The queue itself reports more about these.
        let is_refusal = |line: &String| line.contains("cannot delete processed messages");
        let mut wrong: Vec<String> = complaints
            .into_iter()
            .filter(|line| !is_refusal(line))
            .collect();
        wrong.extend(seen.refused_without_reason());
        match left.unwrap() {
            0 => {}
            left => wrong.push(format!("{left} messages are left")),
        }
        let dead = tokio::task::spawn_blocking(move || queue.take_dead())
            .await
            .unwrap();
        let dead = dead.iter().map(|body| {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let of = |key: &str| body[key].as_u64().unwrap() as usize;
            (of("group"), of("number"))
        });
        let account = Account::new(account::read(&notes), &killed);
        println!(
            "{}: {} messages, {} attempts, {} workers killed, {} were delivered again before they \
                were deleted, in {:.1} s",
            self.name,
            messages.len(),
            account.len(),
            killed.len(),
            account.late(&seen.deleted),
            began.elapsed().as_secs_f64()
        );
        if killed.len() < self.kills {
            wrong.push(format!(
                "{} workers killed, and not {}",
                killed.len(),
                self.kills
            ));
        }
        Some(InvokeOutcome {
            account,
            seen,
            dead: dead.collect(),
            wrong,
        })
    }
}

/// Sends from several threads, one thread per group.
fn send(queue: &Queue, messages: Vec<(String, usize)>) {
    const THREADS: usize = 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let own = messages
                .iter()
                .filter(|(_, group)| group % THREADS == thread);
            let own: Vec<_> = own.cloned().collect();
            scope.spawn(move || queue.send(&own));
        }
    });
}

/// Waits until the queue is empty. Returns the number of messages that are left.
fn until_empty(queue: &Queue) -> usize {
    let limit = Instant::now() + LONG;
    loop {
        let left = queue.len();
        if left == 0 || Instant::now() > limit {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Two of a hundred messages fail the first or the first two times. One of two hundred kills its
/// worker, half of these when done. They are spread evenly over the groups, in each of which one
/// must wait for the other.
fn messages(count: usize, groups: usize) -> Vec<Message> {
    let mut all: Vec<Message> = (0..count)
        .map(|at| Message {
            group: at % groups,
            number: at / groups,
            ..Message::default()
        })
        .collect();
    let mut random = 20_261_121_u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e);
        (random >> 33) as usize % limit
    };
    let mut waiting: Vec<usize> = Vec::new();
    let mut pick = || {
        if waiting.is_empty() {
            waiting = (0..groups).collect();
        }
        let group = waiting.swap_remove(below(waiting.len()));
        group + groups * below(count / groups)
    };
    for number in 0..count / 50 {
        all[pick()].fails = 1 + number % 2;
    }
    for number in 0..count.div_ceil(200) {
        match number % 2 {
            0 => all[pick()].late = 1,
            _ => all[pick()].crashes = 1,
        }
    }
    all
}

/// Runs all messages while workers are killed, and returns what went wrong.
async fn run_all(
    name: &'static str,
    is_fifo: bool,
    reports_failures: bool,
    count: usize,
) -> Vec<String> {
    // A standard queue ignores groups.
    let messages = messages(count, 50);
    let run = Run {
        name,
        is_fifo,
        reports_failures,
        max_receives: MANY,
        kills: count / 50,
    };
    let Some(outcome) = run.run(&messages).await else {
        return Vec::new();
    };
    let (account, deleted) = (outcome.account, &outcome.seen.deleted);
    let mut wrong = outcome.wrong;
    if !outcome.dead.is_empty() {
        wrong.push(format!("dead: {:?}", outcome.dead));
    }
    wrong.extend(account.nothing_is_lost(&messages, &outcome.dead, deleted));
    wrong.extend(match reports_failures {
        true => account.each_is_settled(deleted),
        false => account.events_are_settled(deleted),
    });
    if is_fifo {
        wrong.extend(account.out_of_order(&outcome.dead, deleted, !reports_failures));
    }
    // The messages failed as often as they should.
    for message in messages {
        let least = 1 + message.fails + message.crashes + message.late;
        let times = account.times(message.name());
        if times < least {
            wrong.push(format!("{message:?} came {times} times"));
        }
    }
    wrong
}

fn nothing(wrong: [Vec<String>; 2]) {
    let wrong = wrong.concat();
    let max = wrong.len().min(50);
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong[..max].join("\n")
    );
}

/// Some messages always fail, among others.
async fn run_poison(name: &'static str, is_fifo: bool) -> Vec<String> {
    let messages: Vec<Message> = (0..40)
        .map(|at| (at % 8, at / 8))
        .map(|(group, number)| Message {
            group,
            number,
            fails: if number == 2 && group < 3 { 1000 } else { 0 },
            ..Message::default()
        })
        .collect();
    const MAX_RECEIVES: u32 = 3;
    let run = Run {
        name,
        is_fifo,
        reports_failures: true,
        max_receives: MAX_RECEIVES,
        kills: 0,
    };
    let Some(outcome) = run.run(&messages).await else {
        return Vec::new();
    };
    let (account, deleted) = (outcome.account, &outcome.seen.deleted);
    let mut wrong = outcome.wrong;
    wrong.extend(account.nothing_is_lost(&messages, &outcome.dead, deleted));
    wrong.extend(account.each_is_settled(deleted));
    if is_fifo {
        wrong.extend(account.out_of_order(&outcome.dead, deleted, false));
    }
    for message in &messages {
        let is_dead = outcome.dead.contains(&message.name());
        let times = account.times(message.name());
        // A good message may be a dead letter if it was behind a failing one and came as often.
        let may_be_dead = is_fifo && message.group < 3 && message.number > 2;
        let is_right = match message.fails {
            0 => !is_dead || may_be_dead,
            _ => is_dead && times > 0,
        };
        if !is_right || times > MAX_RECEIVES as usize {
            wrong.push(format!("{message:?} came {times} times, dead: {is_dead}"));
        }
    }
    wrong
}

// They mostly wait for messages to become visible, so they run at the same time.

#[tokio::test(flavor = "multi_thread")]
async fn every_message_runs_and_groups_keep_their_order() {
    nothing(
        tokio::join!(
            run_all("standard", false, true, 1000),
            run_all("groups", true, true, 1000),
        )
        .into(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_whole_batch_is_delivered_again_as_a_whole() {
    nothing(
        tokio::join!(
            run_all("whole", false, false, 100),
            run_all("whole-groups", true, false, 100),
        )
        .into(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_always_fails_becomes_a_dead_letter() {
    nothing(
        tokio::join!(
            run_poison("poison", false),
            run_poison("poison-groups", true),
        )
        .into(),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "40 seconds; ten times as many messages"]
async fn ten_thousand_messages_run() {
    nothing([run_all("many", false, true, 10_000).await, Vec::new()]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "40 seconds; ten times as many messages"]
async fn ten_thousand_grouped_messages_run_in_order() {
    nothing([run_all("many-groups", true, true, 10_000).await, Vec::new()]);
}
