//! Connections to a RabbitMQ server, and publishing with confirms.
//!
//! A server that is short of memory or disk space stops reading from connections that publish. So
//! publishing has a connection of its own, and acknowledgements go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind};
use tokio::sync::Mutex;
use tracing::warn;

use super::guard;
use super::guard::bodies::Bodies;
use super::guard::frame::{MAX_FRAME, MIN_FRAME};

const ANSWER: Duration = Duration::from_secs(10);
/// How many seconds a server may take to confirm a message that is sent, unless it has said that it
/// takes none.
const CONFIRM: usize = 30;
/// How long a message may take to arrive that was asked for. Heartbeats notice a server that has
/// ended.
const ARRIVE: Duration = Duration::from_secs(600);
/// Seconds between heartbeats. The server may ask for more frequent ones.
const HEARTBEAT: u16 = 30;
/// How long a queue of delayed messages stays after the last one was due.
const SPARE: Duration = Duration::from_secs(300);
/// A queue is declared again after a message that was stored so much later than its declaration.
const RENEW: Duration = Duration::from_secs(5);

/// A server that several queues may use.
pub struct AmqpServer {
    uri: AMQPUri,
    /// The bodies above `max_payload` that its connections have received.
    pub(super) bodies: Arc<Bodies>,
    max_payload: u64,
    /// Declares and counts. It is not blocked, because it does not publish.
    asking: Mutex<Option<Arc<Connection>>>,
    publishing: Mutex<Option<Publishing>>,
}

#[derive(Clone)]
struct Publishing {
    connection: Arc<Connection>,
    channel: Channel,
}

impl AmqpServer {
    /// Connects to a server. The URL has a password, so no message repeats it. Bodies above
    /// `max_payload` become files.
    pub async fn open(url: &str, max_payload: u64) -> anyhow::Result<AmqpServer> {
        let server = AmqpServer {
            uri: read(url)?,
            bodies: Arc::default(),
            max_payload,
            asking: Mutex::default(),
            publishing: Mutex::default(),
        };
        server.asking().await.with_context(|| {
            format!(
                "cannot use the RabbitMQ server {}; check that it runs, and its address, virtual \
                 host, user and password (queue.source, or the transport's DSN)",
                server.name()
            )
        })?;
        Ok(server)
    }

    /// The server without its password.
    pub fn name(&self) -> String {
        let at = &self.uri.authority;
        format!("amqp {}:{} {}", at.host, at.port, self.uri.vhost)
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let named = ConnectionProperties::default().with_connection_name("surus work".into());
        let (uri, bodies) = (self.uri.clone(), self.bodies.clone());
        answer(guard::connect(uri, named, bodies, self.max_payload)).await
    }

    /// The connection that publishes. It is opened when it is needed, and again after it has
    /// failed.
    async fn publishing(&self) -> anyhow::Result<Publishing> {
        let mut open = self.publishing.lock().await;
        if let Some(open) = &*open
            && open.channel.status().connected()
            && open.connection.status().connected()
        {
            return Ok(open.clone());
        }
        let connection = Arc::new(self.connect().await?);
        let channel = answer(connection.create_channel()).await?;
        answer(channel.confirm_select(ConfirmSelectOptions::default())).await?;
        let opened = Publishing {
            connection,
            channel,
        };
        *open = Some(opened.clone());
        Ok(opened)
    }

    async fn asking(&self) -> anyhow::Result<Arc<Connection>> {
        let mut open = self.asking.lock().await;
        if let Some(open) = &*open
            && open.status().connected()
        {
            return Ok(open.clone());
        }
        let connection = Arc::new(self.connect().await?);
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// A channel for one operation, whose failure would end other operations of its channel.
    pub(super) async fn channel(&self) -> anyhow::Result<Channel> {
        let connection = self.asking().await?;
        answer(connection.create_channel()).await
    }

    /// Publishes a message to a queue. Returns once the server has stored it.
    pub(super) async fn publish(
        &self,
        queue: &str,
        properties: BasicProperties,
        body: &[u8],
    ) -> anyhow::Result<()> {
        const BLOCKED: &str = "the server takes no messages at present, because it is short of \
                               memory or disk space";
        let Publishing {
            connection,
            channel,
        } = self.publishing().await?;
        let status = connection.status();
        ensure!(!status.blocked(), BLOCKED);
        let to = name(queue)?;
        let publish = async {
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let sent = channel.basic_publish("".into(), to, options, body, properties);
            sent.await?.await
        };
        tokio::pin!(publish);
        let in_file = self.bodies.claim(body);
        let sent = || in_file.as_ref().map_or(0, |body| body.sent());
        let (mut waited, mut before) = (0, sent());
        let mut is_reported = false;
        let confirmed = loop {
            match tokio::time::timeout(Duration::from_secs(1), &mut publish).await {
                Ok(confirmed) => break confirmed?,
                // The server has the message in its receive buffer: sent again, it would be
                // there twice.
                Err(_) if status.blocked() => {
                    if !std::mem::replace(&mut is_reported, true) {
                        warn!(queue, reason = BLOCKED, "cannot settle a job; waiting");
                    }
                }
                // A long body may take its time.
                Err(_) if sent() != before => (waited, before) = (0, sent()),
                Err(_) if waited < CONFIRM => waited += 1,
                Err(_) => {
                    *self.publishing.lock().await = None;
                    bail!("the server has not confirmed a message within {CONFIRM} seconds");
                }
            }
        };
        let is_stored = confirmed.is_ack();
        if confirmed.take_message().is_some() {
            bail!("the queue {queue} does not exist");
        }
        ensure!(is_stored, "the queue {queue} has refused a message");
        Ok(())
    }

    /// Publishes a message that reaches a queue after a pause. It waits in a queue of its own,
    /// which ends some minutes after its last message.
    pub(super) async fn publish_later(
        &self,
        queue: &str,
        properties: BasicProperties,
        body: &[u8],
        pause: Duration,
    ) -> anyhow::Result<()> {
        // Servers take at most 32 bits.
        let ms = pause.as_millis().min(1 << 31) as i64;
        let delayed = format!("surus.delay.{queue}.{ms}");
        let mut arguments = FieldTable::default();
        let text = |text: &str| AMQPValue::LongString(text.into());
        let spare = SPARE.as_millis() as i64;
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(queue));
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(ms));
        arguments.insert("x-expires".into(), AMQPValue::LongLongInt(ms + spare));
        let declared = Instant::now();
        self.declare(&delayed, arguments.clone()).await?;
        self.publish(&delayed, properties, body).await?;
        // The queue ends with its messages some time after its last declaration. A server that was
        // blocked meanwhile has taken this message so late that it would not be due before.
        if declared.elapsed() > RENEW {
            self.declare(&delayed, arguments).await?;
        }
        Ok(())
    }

    /// Declares a durable queue.
    pub(super) async fn declare(&self, queue: &str, arguments: FieldTable) -> anyhow::Result<()> {
        let channel = self.channel().await?;
        let options = QueueDeclareOptions::durable();
        answer(channel.queue_declare(name(queue)?, options, arguments)).await?;
        let _ = channel.close(200, "done".into()).await;
        Ok(())
    }

    /// How many messages wait in a queue. None if it does not exist.
    pub(super) async fn count(&self, queue: &str) -> anyhow::Result<Option<u64>> {
        let channel = self.channel().await?;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let found = channel.queue_declare(name(queue)?, passive, FieldTable::default());
        let found = match answer(found).await {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let _ = channel.close(200, "done".into()).await;
        Ok(Some(found.message_count().into()))
    }

    /// Ends the connections that its queues share.
    pub(super) async fn close(&self) {
        if let Some(open) = self.publishing.lock().await.take() {
            close(&open.connection).await;
        }
        if let Some(open) = self.asking.lock().await.take() {
            close(&open).await;
        }
    }
}

/// Ends a connection after all that it still has to send.
pub(super) async fn close(connection: &Connection) {
    let closing = connection.close(200, "done".into());
    let _ = tokio::time::timeout(Duration::from_secs(5), closing).await;
}

/// The server's answer, within some seconds.
pub(super) async fn answer<T>(
    request: impl Future<Output = lapin::Result<T>>,
) -> anyhow::Result<T> {
    let answered = tokio::time::timeout(ANSWER, request).await;
    Ok(answered.context("the server does not answer within 10 seconds")??)
}

/// A requested message. A long one may take its time.
pub(super) async fn message<T>(
    request: impl Future<Output = lapin::Result<T>>,
) -> anyhow::Result<T> {
    let arrived = tokio::time::timeout(ARRIVE, request).await;
    Ok(arrived.context("a message has not arrived within 10 minutes")??)
}

/// Whether a queue does not exist.
pub(super) fn is_missing(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref().map(lapin::Error::kind);
    matches!(kind, Some(ErrorKind::ProtocolError(error))
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
}

/// The name of a queue, which AMQP limits to 255 bytes.
pub(super) fn name(queue: &str) -> anyhow::Result<ShortString> {
    ShortString::try_new(queue).map_err(|_| {
        anyhow!("the queue's name {queue:?} is longer than the 255 bytes that AMQP allows")
    })
}

fn read(url: &str) -> anyhow::Result<AMQPUri> {
    let expected = "expected amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// with TLS";
    // lapin repeats other texts in its errors, with their passwords.
    ensure!(
        url.starts_with("amqp://") || url.starts_with("amqps://"),
        "queue.source is not the URL of a RabbitMQ server: {expected}"
    );
    let mut uri: AMQPUri = url.parse().map_err(|error| {
        anyhow!("queue.source is not the URL of a RabbitMQ server: {error}; {expected}")
    })?;
    // lapin would take `localhost` for an address of IPv6.
    let (_, authority) = url.split_once("//").unwrap_or_default();
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        uri.authority.host = address.into();
    }
    if uri.vhost.is_empty() {
        uri.vhost = "/".into();
    }
    uri.query.heartbeat.get_or_insert(HEARTBEAT);
    // lapin keeps buffers of many frames, and takes 0 for no limit. The server can lower it.
    let frame = uri
        .query
        .frame_max
        .filter(|max| (MIN_FRAME..MAX_FRAME).contains(max));
    uri.query.frame_max = Some(frame.unwrap_or(MAX_FRAME));
    Ok(uri)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn url_names_a_server_and_a_virtual_host() {
        for (url, host, port, vhost) in [
            ("amqp://h", "h", 5672, "/"),
            ("amqp://h/", "h", 5672, "/"),
            ("amqp://h:1/%2f", "h", 1, "/"),
            ("amqps://u:p%40ss@h/app", "h", 5671, "app"),
            ("amqp://u:p@[::1]:7/app", "::1", 7, "app"),
        ] {
            let uri = read(url).unwrap();
            let at = &uri.authority;
            assert_eq!(
                (&*at.host, at.port, &*uri.vhost),
                (host, port, vhost),
                "{url}"
            );
            assert_eq!(uri.query.heartbeat, Some(HEARTBEAT));
        }
        let uri = read("amqp://u:p%40ss@h?heartbeat=5").unwrap();
        assert_eq!(uri.authority.userinfo.password, "p@ss");
        assert_eq!(uri.query.heartbeat, Some(5));
        for broken in [
            "amqp://u:secret@h:x/",
            "amqp:u:secret@h/v",
            "http://u:secret@h",
        ] {
            let error = read(broken).unwrap_err().to_string();
            assert!(
                error.contains("queue.source") && !error.contains("secret"),
                "{error}"
            );
        }
        for (query, max) in [
            ("", MAX_FRAME),
            ("?frame_max=0", MAX_FRAME),
            ("?frame_max=8192", 8192),
        ] {
            let uri = read(&format!("amqp://h{query}")).unwrap();
            assert_eq!(uri.query.frame_max, Some(max), "{query}");
        }
    }
}
