//! Connections to a Redis or Valkey server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, ScriptInvocation};
use tokio::sync::Mutex;

use super::scripts::Scripts;

const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may take to answer. Longer than it is asked to wait for a job.
const ANSWER: Duration = Duration::from_secs(10);
/// The first version with BLMOVE.
const OLDEST: (u32, u32) = (6, 2);

/// A server that several queues may use.
pub struct RedisServer {
    pub(super) client: Client,
    pub(super) scripts: Arc<Scripts>,
    /// For what need not wait.
    pub(super) shared: Arc<Link>,
}

impl RedisServer {
    /// Connects to a server and checks that it has what queues need.
    pub async fn open(url: &str) -> anyhow::Result<RedisServer> {
        // The URL has a password, so no message repeats it.
        let client = Client::open(url).map_err(|error| {
            anyhow!(
                "queue.source is not the URL of a Redis server: {error}; expected \
                 redis://HOST:PORT/DATABASE, rediss:// with TLS, or redis+unix:///SOCKET"
            )
        })?;
        let shared = Arc::new(Link::new(client.clone()));
        let name = client.get_connection_info().addr().to_string();
        let mut info = redis::cmd("INFO");
        info.arg("server");
        match shared.command::<String>(&info).await {
            Ok(info) => check(&info).with_context(|| format!("the Redis server {name}"))?,
            Err(error) if is_forbidden(&error) => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot use the Redis server {name}; check that it runs, and its address \
                         and password (queue.source, or REDIS_HOST, REDIS_PASSWORD and the like)"
                    )
                });
            }
        }
        Ok(RedisServer {
            client,
            scripts: Arc::default(),
            shared,
        })
    }

    /// The server without its password.
    pub fn name(&self) -> String {
        let info = self.client.get_connection_info();
        format!("redis {}/{}", info.addr(), info.redis_settings().db())
    }
}

/// Whether the server is there and the user may only not ask for its version.
fn is_forbidden(error: &anyhow::Error) -> bool {
    let code = error
        .downcast_ref::<RedisError>()
        .and_then(RedisError::code);
    code == Some("NOPERM")
}

fn check(info: &str) -> anyhow::Result<()> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    };
    if field("redis_mode") == Some("cluster") {
        bail!("is a cluster; surus work serves single servers");
    }
    // Valkey tells the version of Redis that it is compatible with here.
    let version = field("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>());
    if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        bail!("has the version {version}; surus work needs Redis 6.2 or newer, or Valkey");
    }
    Ok(())
}

/// A connection that is opened when it is needed, and again after it has failed.
pub struct Link {
    client: Client,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Link {
    pub fn new(client: Client) -> Link {
        Link {
            client,
            open: Mutex::new(None),
        }
    }

    pub async fn command<T: FromRedisValue>(&self, command: &Cmd) -> anyhow::Result<T> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        self.answered(answer).await
    }

    pub async fn call<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> anyhow::Result<T> {
        let mut connection = self.connection().await?;
        let answer = script.invoke_async(&mut connection).await;
        self.answered(answer).await
    }

    async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let opening = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = opening.await.map_err(once)?;
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// After any error the next call connects again: the server may have become a replica, or
    /// another may have its address.
    async fn answered<T>(&self, answer: Result<T, RedisError>) -> anyhow::Result<T> {
        if answer.is_err() {
            *self.open.lock().await = None;
        }
        answer.map_err(once)
    }
}

/// The text of an error already contains its cause, which would be printed twice.
fn once(error: RedisError) -> anyhow::Error {
    match error.source() {
        Some(_) => anyhow!("{error}"),
        None => error.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cause_of_an_error_is_named_once() {
        let link = Link::new(Client::open("redis://127.0.0.1:1/").unwrap());
        let answer = link.command::<String>(&redis::cmd("PING")).await;
        let text = format!("{:#}", answer.unwrap_err());
        assert_eq!(text.matches("refused").count(), 1, "{text}");
    }

    #[test]
    fn old_server_and_cluster_are_rejected() {
        let info = |version: &str, mode: &str| {
            format!("# Server\r\nredis_version:{version}\r\nredis_mode:{mode}\r\n")
        };
        for (version, mode, error) in [
            ("6.0.16", "standalone", Some("6.2 or newer")),
            ("7.2.4", "cluster", Some("cluster")),
            ("6.2.0", "standalone", None),
            ("7.0.15", "sentinel", None),
            ("", "standalone", None),
        ] {
            let checked = check(&info(version, mode)).map_err(|error| error.to_string());
            match error {
                Some(part) => assert!(checked.unwrap_err().contains(part), "{version} {mode}"),
                None => assert_eq!(checked, Ok(()), "{version} {mode}"),
            }
        }
    }
}
