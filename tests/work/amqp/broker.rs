//! The RabbitMQ server that all tests share. It ends with this process.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::super::site::installed;
use crate::common::ports::free_port;

/// The script of the package without its wrapper, which wants a user of its own.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Runs epmd until this process ends. Then removes the directory, once the server has ended, too.
const EPMD: &str = r#"
directory=$1
shift
"$@" </dev/null &
cat >/dev/null
kill -KILL $!
wait
for _ in $(seq 300); do
    kill -0 "$(cat "$directory"/database/*.pid)" || break
    sleep 0.1
done
rm -rf "$directory"
"#;

pub struct Broker {
    child: Mutex<Child>,
    ports: [u16; 3],
    directory: TempDir,
    runtime: Runtime,
    open: Mutex<Option<(Connection, Channel)>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Classic,
    /// As RabbitMQ 3 declares it by default.
    Quorum,
    /// With a delivery limit, which RabbitMQ 4 has by default.
    Limited,
}

/// A message that a test has taken from a queue.
pub struct Message {
    pub body: String,
    pub properties: BasicProperties,
}

impl Message {
    /// The number of its job.
    pub fn number(&self) -> usize {
        let job: Value = serde_json::from_str(&self.body).unwrap();
        job["n"].as_u64().unwrap() as usize
    }

    /// The bytes of a header.
    pub fn bytes(&self, name: &str) -> &[u8] {
        let headers = self.properties.headers().as_ref().unwrap();
        match &headers.inner()[name] {
            AMQPValue::ByteArray(bytes) => bytes.as_slice(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// The text of a header.
    pub fn header(&self, name: &str) -> Option<String> {
        let headers = self.properties.headers().as_ref()?;
        match headers.inner().get(name)? {
            AMQPValue::LongString(text) => Some(text.to_string()),
            AMQPValue::LongLongInt(number) => Some(number.to_string()),
            other => panic!("{name} is {other:?}"),
        }
    }
}

static LOCK: RwLock<()> = RwLock::new(());

/// While it is held, no test restarts the server or fills it.
pub fn stays() -> RwLockReadGuard<'static, ()> {
    LOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that disturb others.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    LOCK.write().unwrap_or_else(PoisonError::into_inner)
}

impl Broker {
    pub fn get() -> &'static Broker {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(Broker::start)
    }

    fn start() -> Broker {
        installed(SERVER, "rabbitmq-server");
        let directory = TempDir::with_prefix("surus-rabbit-").unwrap();
        fs::write(directory.path().join("plugins"), "[].").unwrap();
        let ports = [(); 3].map(|()| free_port());
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nvm_memory_high_watermark.relative = 0.9\n\
             disk_free_limit.absolute = 1MB\n",
            ports[0]
        );
        fs::write(directory.path().join("rabbitmq.conf"), config).unwrap();
        // It maps names of nodes to ports.
        let mut epmd = Command::new("sh");
        epmd.args(["-c", EPMD, "epmd"]).arg(directory.path());
        epmd.args(["epmd", "-address", "127.0.0.1", "-port"]);
        let epmd = epmd
            .arg(ports[2].to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Never dropped, so it closes with this process.
        std::mem::forget(epmd);
        while TcpStream::connect(("127.0.0.1", ports[2])).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let broker = Broker {
            child: Mutex::new(spawn(ports, directory.path())),
            ports,
            directory,
            runtime: Runtime::new().unwrap(),
            open: Mutex::new(None),
        };
        broker.wait();
        broker
    }

    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Waits until the server takes connections.
    fn wait(&self) {
        for _ in 0..6000 {
            // A server that starts may accept a connection and never answer.
            let connected = self.runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(5), self.connect()).await
            });
            if let Ok(Ok(open)) = connected {
                *self.open.lock().unwrap() = Some(open);
                return;
            }
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "rabbitmq-server has ended: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("rabbitmq-server does not start: {}", self.log());
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log"));
        log.unwrap_or_default()
    }

    /// Has the server's own shell do something.
    pub fn tell(&self, command: &str) {
        let mut child = self.child.lock().unwrap();
        let stdin = child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        stdin.flush().unwrap();
    }

    /// Kills the server. It has saved by then which quorum queues it has: for half a second after
    /// the declaration of one, it would lose it.
    pub fn kill(&self) {
        const SAVED: &str = "tables are saved";
        let saved = || self.log().matches(SAVED).count();
        let before = saved();
        self.tell(&format!(
            r#"logger:notice("~p {SAVED}", [length([dets:sync(It) || It <- dets:all()])])."#
        ));
        for _ in 0..6000 {
            if saved() > before {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(saved() > before, "{}", self.log());
        *self.open.lock().unwrap() = None;
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again after [`kill`](Self::kill).
    pub fn revive(&self) {
        *self.child.lock().unwrap() = spawn(self.ports, self.directory.path());
        self.wait();
    }

    async fn connect(&self) -> lapin::Result<(Connection, Channel)> {
        let url = format!("amqp://guest:guest@127.0.0.1:{}", self.port());
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        Ok((connection, channel))
    }

    /// Runs something with a channel, which is opened again if it has failed.
    fn with<T, F: Future<Output = lapin::Result<T>>>(
        &self,
        run: impl FnOnce(Channel) -> F,
    ) -> lapin::Result<T> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.runtime.block_on(async {
            let is_open = |(connection, channel): &(Connection, Channel)| {
                connection.status().connected() && channel.status().connected()
            };
            if !open.as_ref().is_some_and(is_open) {
                *open = Some(self.connect().await?);
            }
            run(open.as_ref().unwrap().1.clone()).await
        })
    }

    /// Declares a durable queue, and returns its name.
    pub fn create(&self, kind: Kind) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("work{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut arguments = FieldTable::default();
        let text = |text: &str| AMQPValue::LongString(text.into());
        if kind != Kind::Classic {
            arguments.insert("x-queue-type".into(), text("quorum"));
        }
        if kind == Kind::Limited {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(20));
        }
        let options = QueueDeclareOptions::durable();
        self.with(async |channel| {
            channel
                .queue_declare(name.as_str().into(), options, arguments)
                .await
        })
        .unwrap();
        name
    }

    pub fn push(&self, queue: &str, body: &str) {
        let properties = BasicProperties::default().with_delivery_mode(2);
        self.push_with(queue, body, properties);
    }

    /// Publishes a message and waits until the server has stored it.
    pub fn push_with(&self, queue: &str, body: &str, properties: BasicProperties) {
        let options = BasicPublishOptions::default();
        self.with(async |channel| {
            let sent = channel.basic_publish(
                "".into(),
                queue.into(),
                options,
                body.as_bytes(),
                properties,
            );
            sent.await?.await
        })
        .unwrap();
    }

    /// Publishes many messages, and waits until the server has stored them.
    pub fn push_all(&self, queue: &str, bodies: impl Iterator<Item = String>) {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        self.with(async |channel| {
            let mut sent = Vec::new();
            for body in bodies {
                let (queue, properties) = (queue.into(), properties.clone());
                let one =
                    channel.basic_publish("".into(), queue, options, body.as_bytes(), properties);
                sent.push(one.await?);
            }
            for stored in sent {
                stored.await?;
            }
            Ok::<_, lapin::Error>(())
        })
        .unwrap();
    }

    /// Removes the messages of a queue that no consumer has.
    pub fn purge(&self, queue: &str) {
        let options = QueuePurgeOptions::default();
        let purged = self.with(async |channel| channel.queue_purge(queue.into(), options).await);
        purged.unwrap();
    }

    /// How many messages wait in a queue. None if it does not exist.
    pub fn count(&self, queue: &str) -> Option<usize> {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let found = self.with(async |channel| {
            let arguments = FieldTable::default();
            channel
                .queue_declare(queue.into(), passive, arguments)
                .await
        });
        found.ok().map(|queue| queue.message_count() as usize)
    }

    /// Removes the messages of a queue.
    pub fn take(&self, queue: &str) -> Vec<Message> {
        let taken = self.with(async |channel| {
            let mut taken = Vec::new();
            let options = BasicGetOptions::default();
            while let Some(message) = channel.basic_get(queue.into(), options).await? {
                message.acker.ack(BasicAckOptions::default()).await?;
                taken.push(Message {
                    body: String::from_utf8_lossy(&message.data).into_owned(),
                    properties: message.properties.clone(),
                });
            }
            Ok::<_, lapin::Error>(taken)
        });
        taken.unwrap_or_default()
    }
}

fn spawn([port, distribution, epmd]: [u16; 3], directory: &Path) -> Child {
    let own = |name: &str| directory.join(name).display().to_string();
    let env = [
        ("HOME", own("")),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("ERL_EPMD_PORT", epmd.to_string()),
        ("RABBITMQ_NODENAME", format!("surus{port}@localhost")),
        ("RABBITMQ_DIST_PORT", distribution.to_string()),
        ("RABBITMQ_MNESIA_BASE", own("database")),
        ("RABBITMQ_LOG_BASE", own("")),
        ("RABBITMQ_LOGS", own("log")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", own("plugins")),
        ("RABBITMQ_CONFIG_FILE", own("rabbitmq.conf")),
        ("RABBITMQ_CONF_ENV_FILE", own("none")),
        // A shell of Erlang, which ends the server when its standard input closes.
        ("RABBITMQ_ALLOW_INPUT", "1".into()),
        (
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}".into(),
        ),
    ];
    let output = fs::File::create(directory.join("output")).unwrap();
    Command::new(SERVER)
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap()
}
