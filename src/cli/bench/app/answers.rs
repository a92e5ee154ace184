//! Asks a server for each path and compares its answers.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, bail};
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::cli::bench::interrupt;
use crate::cli::page_diff::{self, Template};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a body.
const MAX_BYTES: usize = 64 << 20;
/// The requests that every engine gets.
#[derive(Debug)]
pub struct Requests {
    /// Paths with their queries.
    pub paths: Vec<String>,
    /// Headers, with a `Host` that does not depend on the server's port.
    pub headers: Vec<(String, String)>,
}

/// A response.
#[derive(Debug)]
pub struct EngineAnswer {
    pub status: u16,
    /// Length of the body.
    pub length: usize,
    /// The target of a redirection.
    pub location: Option<String>,
    /// Status, headers and body.
    pub text: Vec<u8>,
}

impl EngineAnswer {
    /// Whether the path can be measured: 2xx or 3xx.
    pub fn is_expected(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// The remedy for a status that shows its cause. Continues a sentence.
    pub fn remedy(&self) -> &'static str {
        match self.status {
            429 => {
                "; raise the application's limit of requests per client for the measurement, or \
                 name other paths (--path)"
            }
            500.. => {
                "; the application's own log may say more (storage/logs of Laravel, var/log of \
                 Symfony); or name other paths (--path)"
            }
            _ => "",
        }
    }
}

impl Requests {
    /// The value of `Host`.
    pub fn host(&self) -> &str {
        let mut headers = self.headers.iter();
        let host = headers.find(|(name, _)| name.eq_ignore_ascii_case("host"));
        host.map_or("localhost", |(_, value)| value)
    }

    /// Asks for one path over a connection of its own.
    pub fn ask(&self, port: u16, path: &str) -> anyhow::Result<EngineAnswer> {
        interrupt::check()?;
        let answer = crate::cli::block_on(async {
            tokio::select! {
                answer = tokio::time::timeout(TIMEOUT, self.request(port, path)) => match answer {
                    Ok(answer) => answer,
                    Err(_) => bail!("no response within {} s", TIMEOUT.as_secs()),
                },
                () = interrupt::received() => bail!("interrupted"),
            }
        });
        interrupt::check()?;
        answer.with_context(|| format!("GET {path}"))
    }

    async fn request(&self, port: u16, path: &str) -> anyhow::Result<EngineAnswer> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        tokio::spawn(connection);
        let mut request = Request::get(path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = sender
            .send_request(request.body(Empty::<bytes::Bytes>::new())?)
            .await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        let location = parts.headers.get(http::header::LOCATION);
        Ok(EngineAnswer {
            status: parts.status.as_u16(),
            length: body.len(),
            location: location
                .and_then(|value| value.to_str().ok())
                .map(String::from),
            text: page_diff::comparable(&parts, &body),
        })
    }
}

/// The first difference between the answers of two engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerDifference {
    pub path: String,
    pub expected: String,
    pub got: String,
}

impl std::fmt::Display for AnswerDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AnswerDifference {
            path,
            expected,
            got,
        } = self;
        write!(f, "GET {path}: `{got}` instead of `{expected}`")
    }
}

/// The answers of one engine.
#[derive(Debug, Default)]
pub struct Answers {
    /// By path, each once.
    distinct: Vec<Vec<Vec<u8>>>,
    pub count: usize,
}

impl Answers {
    pub fn add(&mut self, path: usize, answer: EngineAnswer) {
        if self.distinct.len() <= path {
            self.distinct.resize_with(path + 1, Vec::new);
        }
        self.count += 1;
        if !self.distinct[path].contains(&answer.text) {
            self.distinct[path].push(answer.text);
        }
    }

    /// The first difference from the answers of `other`.
    pub fn difference(&self, other: &Answers, paths: &[String]) -> Option<AnswerDifference> {
        let both = other.distinct.iter().zip(&self.distinct);
        for (path, (reference, own)) in paths.iter().zip(both) {
            let (first, others) = reference.split_first()?;
            let mut template = Template::new(first);
            others.iter().for_each(|answer| template.widen(answer));
            for answer in own {
                if let Some((expected, got)) = template.difference(answer) {
                    return Some(AnswerDifference {
                        path: path.clone(),
                        expected,
                        got,
                    });
                }
            }
        }
        None
    }
}
