//! Messages in the queues of the AMQP transport.

use super::super::amqp::Broker;
use super::super::database::Kind;
use super::super::site::extension;
use super::super::work::with_longer_times;
use super::Messenger;

struct Amqp {
    messenger: Messenger,
    /// The name of exchange and queue.
    name: String,
    broker: &'static Broker,
}

impl Amqp {
    fn new(version: &str, name: &str, options: &str) -> Amqp {
        extension("amqp", "php-amqp");
        let broker = Broker::get();
        let dsn = format!(
            "amqp://guest:guest@127.0.0.1:{}/%2f/{name}?{options}",
            broker.port()
        );
        let messenger = Messenger::new(Kind::Sqlite, version, &dsn);
        let name = name.into();
        Amqp {
            messenger,
            name,
            broker,
        }
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn messages_of_an_unconfigured_application_run_as_messenger_decides() {
    let _running = super::super::amqp::stays();
    for (version, engine) in [("messenger7", "rewind"), ("messenger5", "worker")] {
        let amqp = Amqp::new(version, &format!("decides-{engine}"), "");
        let messenger = &amqp.messenger;
        messenger.send(&["well", "throw", "final", "later delayed"]);
        // One that Messenger could not decode.
        amqp.broker.push(&amqp.name, "no envelope");
        let work = messenger.start(&["--workers", "1", "--engine", engine], &[]);
        let ended = ["delayed is done", "well is done", "throw, ", "final, "];
        let runs = || ended.map(|note| messenger.count(note));
        work.wait_until(|| runs() == [1, 1, 2, 1] && messenger.rows("failed") == 2);
        // A message that arrives while Surus waits.
        messenger.send(&["again"]);
        work.wait_until(|| messenger.count("again is done") == 1);
        work.end();
        assert_eq!(runs(), [1, 1, 2, 1], "{version} {engine}");
        let buried = amqp.broker.take(&format!("{}.failed", amqp.name));
        assert_eq!(buried.len(), 1);
        assert_eq!(buried[0].body, "no envelope");
        assert!(buried[0].header("surus-reason").is_some());
        assert!(amqp.broker.take(&amqp.name).is_empty());
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn message_that_is_sent_again_keeps_its_headers_and_goes_to_its_own_queue_only() {
    let _running = super::super::amqp::stays();
    // With a delay, Messenger sends it through its delay exchange to the queue that it is from.
    let options = "exchange[type]=fanout&queues[own-a]&queues[own-b]";
    let mut amqp = Amqp::new("messenger7", "own", options);
    let env = &mut amqp.messenger.env;
    env.push(("SERIALIZER".into(), "App\\Headers".into()));
    env.push(("RETRY_DELAY".into(), "100".into()));
    amqp.messenger.send(&["throw"]);
    let work = amqp.messenger.start(&["--workers", "1"], &[]);
    // Twice from each queue; the serializer has both texts from headers.
    work.wait_until(|| amqp.messenger.rows("failed") == 2);
    assert_eq!(
        amqp.messenger.count("throw by headers, "),
        4,
        "{}",
        work.log()
    );
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn message_that_ends_its_process_is_sent_again_and_fails_as_messenger_decides() {
    let _running = super::super::amqp::stays();
    with_longer_times(only_a_message_that_never_ends_times_out);
}

/// Whether a message that never ends began twice, and no other reached the timeout.
fn only_a_message_that_never_ends_times_out(timeout: &str) -> bool {
    let amqp = Amqp::new("messenger7", &format!("ends-{timeout}"), "");
    let messenger = &amqp.messenger;
    messenger.configure_timeout(timeout);
    messenger.send(&["exit", "kill", "hang", "well"]);
    let work = messenger.start(&["--workers", "2"], &[]);
    let is_over = || messenger.rows("failed") == 3 && messenger.count("well is done") == 1;
    work.wait_until(|| is_over() || work.timeouts() > 2);
    if work.timeouts() > 2 || messenger.count("hang, ") < 2 {
        work.end();
        return false;
    }
    let ended = ["exit, ", "kill, ", "hang, ", "well is done"];
    let runs = ended.map(|note| messenger.count(note));
    assert_eq!(runs, [2, 2, 2, 1], "{}", work.log());
    work.end();
    assert!(amqp.broker.take(&amqp.name).is_empty());
    true
}
