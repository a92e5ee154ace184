//! One simulated user: a connection per origin, cookies, and one request at a time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::task::unconstrained;
use tokio::time::Sleep;

use crate::answer::{Answer, Error, Retention};
use crate::connect::Connector;
use crate::cookies::Jar;
use crate::outcome::RequestFailure;
use crate::plan::{Plan, Protocol};
use crate::requests::Prepared;
use crate::{http1, http2};

enum Connection {
    Http1(http1::Http1Connection),
    Http2(http2::Http2Connection),
}

pub struct User {
    timeout: Pin<Box<Sleep>>,
    links: Links,
}

struct Links {
    plan: Arc<Plan>,
    connector: Arc<Connector>,
    connections: Vec<Option<Connection>>,
    /// One per origin, if cookies are kept.
    jars: Option<Vec<Jar>>,
    /// Connections opened.
    opened: u64,
}

impl User {
    pub fn new(plan: Arc<Plan>, connector: Arc<Connector>) -> User {
        let origins = plan.mix.origins.len();
        User {
            timeout: Box::pin(tokio::time::sleep(plan.timeout)),
            links: Links {
                jars: plan
                    .keeps_cookies
                    .then(|| (0..origins).map(|_| Jar::default()).collect()),
                plan,
                connector,
                connections: (0..origins).map(|_| None).collect(),
                opened: 0,
            },
        }
    }

    /// Opens a connection before the run, if it is kept. Returns false if that fails; the first
    /// request then tries again.
    pub async fn prepare(&mut self) -> bool {
        let links = &mut self.links;
        if !links.plan.keeps_alive || links.connections.len() != 1 {
            return true;
        }
        let timeout = links.plan.timeout;
        matches!(
            tokio::time::timeout(timeout, links.open(0)).await,
            Ok(Ok(()))
        )
    }

    /// Connections that were opened.
    pub fn opened(&self) -> u64 {
        self.links.opened
    }

    /// Sends a request and returns its response, or why there is none and how many bytes came.
    /// `now` is the time.
    pub async fn ask(
        &mut self,
        request: &Prepared,
        wanted: &Retention<'_>,
        now: Instant,
    ) -> Result<Answer, (Error, u64)> {
        let User { timeout, links } = self;
        let deadline = now + links.plan.timeout;
        match within(timeout, deadline, links.exchange(request, wanted)).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err((error, links.close(request.origin).1)),
            None => {
                // An address that does not answer is like one that refuses: the user backs off.
                let is_unconnected = links.connections[request.origin].is_none();
                let (awaits_header_section, received) = links.close(request.origin);
                let failure = match awaits_header_section {
                    true => RequestFailure::Timeout,
                    false => RequestFailure::Unfinished,
                };
                let error = Error {
                    is_unconnected,
                    ..Error::new(failure, None)
                };
                Err((error, received))
            }
        }
    }
}

impl Links {
    async fn exchange(
        &mut self,
        request: &Prepared,
        wanted: &Retention<'_>,
    ) -> Result<Answer, Error> {
        let origin = request.origin;
        let has_ended = match &mut self.connections[origin] {
            None => true,
            Some(Connection::Http1(connection)) => connection.has_ended(),
            Some(Connection::Http2(connection)) => connection.has_ended(),
        };
        if has_ended {
            self.open(origin).await?;
        }
        match self.exchange_once(request, wanted).await {
            // The server has ended the idle connection while the request was on its way.
            Err(error) if error.is_unprocessed && !has_ended => {
                self.open(origin).await?;
                self.exchange_once(request, wanted).await
            }
            answer => answer,
        }
    }

    async fn exchange_once(
        &mut self,
        request: &Prepared,
        wanted: &Retention<'_>,
    ) -> Result<Answer, Error> {
        let origin = request.origin;
        let jar = self.jars.as_ref().map(|jars| &jars[origin]);
        let cookies = jar.and_then(Jar::header);
        let cookies = cookies.as_deref();
        let (answer, is_reusable) = match &mut self.connections[origin] {
            Some(Connection::Http1(connection)) => {
                let answer = connection.exchange(request, cookies, wanted).await?;
                (answer, connection.is_reusable())
            }
            Some(Connection::Http2(connection)) => {
                (connection.exchange(request, cookies, wanted).await?, true)
            }
            None => return Err(Error::closed()),
        };
        if let Some(jars) = &mut self.jars {
            let jar = &mut jars[origin];
            answer.cookies.iter().for_each(|cookie| jar.set(cookie));
        }
        if !is_reusable || !self.plan.keeps_alive {
            self.connections[origin] = None;
        }
        Ok(answer)
    }

    async fn open(&mut self, origin: usize) -> Result<(), Error> {
        self.connections[origin] = None;
        let opened = self.connect(origin).await;
        self.connections[origin] = Some(opened.map_err(|error| Error {
            is_unconnected: true,
            ..error
        })?);
        Ok(())
    }

    async fn connect(&mut self, origin: usize) -> Result<Connection, Error> {
        let stream = self.connector.open(origin).await?;
        self.opened += 1;
        let keeps_cookies = self.plan.keeps_cookies;
        Ok(match self.plan.protocol {
            Protocol::Http1 => {
                Connection::Http1(http1::Http1Connection::new(stream, keeps_cookies))
            }
            Protocol::Http2 => {
                Connection::Http2(http2::Http2Connection::open(stream, keeps_cookies).await?)
            }
        })
    }

    /// Closes a connection. Returns whether it still awaited a header section, and how many bytes
    /// it had received.
    fn close(&mut self, origin: usize) -> (bool, u64) {
        match self.connections[origin].take() {
            None => (true, 0),
            Some(Connection::Http1(connection)) => {
                (connection.awaits_header_section(), connection.received)
            }
            Some(Connection::Http2(connection)) => {
                (connection.awaits_header_section(), connection.received)
            }
        }
    }
}

/// Waits for a future until `deadline`. The sleep is reset only when it ends, so a request that
/// ends in time costs no timer. Deadlines must not come closer from call to call.
async fn within<T>(
    sleep: &mut Pin<Box<Sleep>>,
    deadline: Instant,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        // Reads of a fast body use up the budget that tokio gives a task, and without one, a timer
        // that has ended is pending.
        while pin!(unconstrained(sleep.as_mut())).poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(None);
            }
            sleep.as_mut().reset(deadline.into());
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Like reads that always find bytes.
    #[test]
    fn deadline_ends_a_future_that_uses_up_its_budget() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let began = Instant::now();
        let reads = async {
            while began.elapsed() < Duration::from_secs(60) {
                tokio::task::consume_budget().await;
            }
        };
        let timeout = Duration::from_millis(50);
        let ended = runtime.unwrap().block_on(async {
            let mut sleep = Box::pin(tokio::time::sleep(timeout));
            within(&mut sleep, began + timeout, reads).await
        });
        assert_eq!(ended, None);
    }
}
