//! Options of `surus bench` and `surus bench compare`, and the plan that they make.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use surus_load::{Expectations, Mix, Origin, Pace, Plan, Protocol, Request, Schedule, StatusSet};
use surus_load::{Stop, Url, parse_file, weighted};

use crate::units::Time;

/// Most bytes of a file of requests or of a body.
const MAX_FILE: u64 = 64 << 20;
/// Open files besides connections: those of the runtime, of the report and of measuring the server.
const OTHER_FILES: u64 = 24;

/// The load, without its duration. `surus bench` and `surus bench compare` share it.
#[derive(Debug, clap::Args)]
pub struct Load {
    /// Send this many requests instead of sending for a time
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration",
        value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Number of connections, each with one request at a time
    #[arg(short, long, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    concurrency: u32,
    /// Send at this rate whether or not the server keeps up (open loop); FROM..TO changes it evenly
    #[arg(long, value_name = "RATE|FROM..TO", value_parser = parse_rate)]
    rps: Option<Rate>,
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// Header to send; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Body to send, as a form unless -H names another Content-Type
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// File whose content is the body, sent alike
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,
    /// Its content: a pipe has it only once.
    #[arg(skip)]
    body_read: OnceCell<Bytes>,
    /// Open a connection for every request
    #[arg(long)]
    no_keepalive: bool,
    /// Use HTTP/2, without TLS by prior knowledge
    #[arg(long, conflicts_with = "no_keepalive")]
    http2: bool,
    /// Connect to this Unix socket; URLs then name only host and path
    #[arg(long, value_name = "SOCKET")]
    unix: Option<PathBuf>,
    /// Accept any certificate of https URLs; else only Mozilla's list of authorities is trusted
    #[arg(long)]
    insecure: bool,
    /// Keep cookies per connection and send them back, like that many users
    #[arg(long)]
    cookies: bool,
    /// How long one request may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
    /// How long a connection waits after a failed request (closed loop only) [default: 10ms if it
    /// could not connect, else not at all]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "rps")]
    back_off: Option<Duration>,
    /// Send requests for this time before measuring
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub warm_up: Option<Duration>,
    /// Status that responses must have: 200, 2xx, 200-299 or 200,404 [default: 200-399]
    #[arg(long, value_name = "STATUS", value_parser = StatusSet::parse)]
    expect_status: Option<StatusSet>,
    /// Text that bodies must contain, in their first MiB
    #[arg(long, value_name = "TEXT")]
    expect_body: Option<String>,
}

/// A rate that may change evenly.
#[derive(Debug, Clone, Copy)]
struct Rate {
    from: f64,
    to: f64,
}

impl Load {
    /// The plan for these URLs and, if given, the requests of a file. It ends after `duration`,
    /// unless the number of requests is given.
    pub fn plan(
        &self,
        urls: &[String],
        file: Option<&PathBuf>,
        duration: Duration,
    ) -> anyhow::Result<Plan> {
        let mut requests = Vec::new();
        for url in urls {
            requests.push(self.request(url)?);
        }
        if let Some(file) = file {
            ensure_only_host(&requests)?;
            let text = read_limited(file).and_then(|bytes| {
                let text = String::from_utf8(bytes);
                text.map_err(|_| std::io::Error::other("it is no UTF-8 text"))
            });
            let text = text.with_context(|| format!("cannot read {} (--file)", file.display()))?;
            let base: Option<Origin> = requests.first().map(|request| request.url.origin.clone());
            requests = parse_file(&text, base.as_ref())
                .map_err(|error| anyhow!("{} (--file): {error}", file.display()))?;
            let headers = self.headers()?;
            let is_type = |(name, _): &(String, _)| name.eq_ignore_ascii_case("content-type");
            for request in &mut requests {
                if headers.iter().any(is_type) {
                    request.headers.retain(|header| !is_type(header));
                }
                request.headers.extend(headers.iter().cloned());
                self.redirect(request)?;
            }
        }
        let mix = Mix::new(&requests, !self.no_keepalive).map_err(|error| anyhow!(error))?;
        ensure_open_files(self.concurrency as usize, mix.origins.len())?;
        let stop = match self.requests {
            Some(count) => Stop::Requests(count),
            None => Stop::After(duration),
        };
        let pace = match (self.rps, stop) {
            (None, _) => Pace::Closed,
            (Some(rate), _) if rate.from == rate.to => Pace::Open(Schedule::constant(rate.from)),
            (Some(rate), Stop::After(length)) => {
                Pace::Open(Schedule::ramp(rate.from, rate.to, length))
            }
            (Some(_), Stop::Requests(_)) => {
                bail!("a rate that changes (--rps FROM..TO) needs --duration, not --requests")
            }
        };
        Ok(Plan {
            protocol: if self.http2 {
                Protocol::Http2
            } else {
                Protocol::Http1
            },
            concurrency: self.concurrency as usize,
            pace,
            stop,
            timeout: self.timeout,
            back_off: self.back_off.unwrap_or_default(),
            keeps_alive: !self.no_keepalive,
            keeps_cookies: self.cookies,
            accepts_any_certificate: self.insecure,
            expectations: Expectations {
                status: self.expect_status.clone().unwrap_or_default(),
                body: self.expect_body.clone(),
            },
            ..Plan::new(mix)
        })
    }

    /// The load in one line.
    pub fn describe(&self, plan: &Plan) -> String {
        self.describe_with(
            plan,
            &match self.rps {
                None => "closed loop".into(),
                Some(rate) if rate.from == rate.to => format!("open loop at {}/s", rate.from),
                Some(rate) => format!("open loop from {}/s to {}/s", rate.from, rate.to),
            },
        )
    }

    /// The load in one line, with its pace in words.
    pub fn describe_with(&self, plan: &Plan, pace: &str) -> String {
        let mut parts = vec![format!("{} connections", plan.concurrency), pace.into()];
        parts.push(match plan.stop {
            Stop::After(length) => format!("{} s", length.as_secs_f64()),
            Stop::Requests(count) => format!("{count} requests"),
        });
        parts.push(if self.http2 { "HTTP/2" } else { "HTTP/1.1" }.into());
        if self.no_keepalive {
            parts.push("no keep-alive".into());
        }
        if let Some(time) = self.back_off {
            parts.push(format!("waits {} s after a failure", time.as_secs_f64()));
        }
        parts.join(", ")
    }

    fn request(&self, text: &str) -> anyhow::Result<Request> {
        let (url, weight) = weighted(text).map_err(|error| anyhow!(error))?;
        let mut request = Request::get(Url::parse(url)?);
        request.weight = weight;
        request.headers = self.headers()?;
        if let Some(body) = &self.body {
            request.body = body.clone().into();
        }
        if let Some(file) = &self.body_file {
            request.body = self.read_body(file)?;
        }
        if self.body.is_some() || self.body_file.is_some() {
            request.declare("application/x-www-form-urlencoded");
        }
        match &self.method {
            Some(method) => request.method.clone_from(method),
            None if self.body.is_some() || self.body_file.is_some() => {
                request.method = "POST".into();
            }
            None => {}
        }
        self.redirect(&mut request)?;
        Ok(request)
    }

    /// The content of the body's file, which all requests share.
    fn read_body(&self, file: &Path) -> anyhow::Result<Bytes> {
        if let Some(body) = self.body_read.get() {
            return Ok(body.clone());
        }
        let body = read_limited(file)
            .with_context(|| format!("cannot read {} (--body-file)", file.display()))?;
        Ok(self.body_read.get_or_init(|| body.into()).clone())
    }

    fn redirect(&self, request: &mut Request) -> anyhow::Result<()> {
        if let Some(socket) = &self.unix {
            if request.url.origin.is_tls {
                bail!(
                    "{}: https over a Unix socket is not supported; write http:// (--unix)",
                    request.url
                );
            }
            let file = std::fs::metadata(socket)
                .with_context(|| format!("cannot connect to {} (--unix)", socket.display()))?;
            ensure!(
                file.file_type().is_socket(),
                "cannot connect to {}: it is no socket (--unix)",
                socket.display()
            );
            request.url.origin.unix = Some(socket.clone());
        }
        Ok(())
    }

    fn headers(&self) -> anyhow::Result<Vec<(String, String)>> {
        parse_headers(&self.headers)
    }
}

/// Parses `NAME: VALUE`.
pub fn parse_headers(headers: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let parse = |header: &String| {
        let (name, value) = header
            .split_once(':')
            .with_context(|| format!("-H '{header}': expected NAME: VALUE"))?;
        Ok((name.trim().to_string(), value.trim().to_string()))
    };
    headers.iter().map(parse).collect()
}

/// Checks the URLs that are given with a file of requests: at most one, without a path and a
/// weight, which the file has.
fn ensure_only_host(requests: &[Request]) -> anyhow::Result<()> {
    ensure!(
        requests.len() < 2,
        "--file takes one URL, to whose host its paths belong, but {} are named; write the others \
         as lines of the file",
        requests.len()
    );
    for Request { url, weight, .. } in requests {
        ensure!(
            url.path == "/" && *weight == 1,
            "{url}: with --file, the URL only names the host of the file's paths; write its path \
             and weight as a line of the file"
        );
    }
    Ok(())
}

/// Reads a file, which may be a pipe.
fn read_limited(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(std::io::Error::other("it is larger than 64 MiB")),
        false => Ok(bytes),
    }
}

/// Raises the limit of open files. Fails if it is too low for the connections, of which one is kept
/// to each origin.
pub fn ensure_open_files(concurrency: usize, origins: usize) -> anyhow::Result<()> {
    let limit = surus_sys::process::raise_open_files();
    let limit = limit.context("cannot raise the limit of open files")?;
    let needed = (concurrency * origins) as u64 + OTHER_FILES;
    ensure!(
        needed <= limit,
        "{concurrency} connections need about {needed} open files, but only {limit} are allowed; \
         use fewer (--concurrency), or raise the limit (ulimit -n)"
    );
    Ok(())
}

/// A time above zero with a unit, or in seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => text.parse::<Time>()?.0,
    };
    match time {
        Duration::ZERO => Err("the time must be above zero".into()),
        time if time > Duration::from_secs(7 * 86_400) => Err("at most a week is allowed".into()),
        time => Ok(time),
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = |text: &str| {
        let rate = text.parse::<f64>().ok();
        rate.filter(|rate| (0.001..=10_000_000.0).contains(rate))
            .ok_or_else(|| "expected requests per second, such as 100 or 100..1000".to_string())
    };
    match text.split_once("..") {
        None => rate(text).map(|rate| Rate {
            from: rate,
            to: rate,
        }),
        Some((from, to)) => Ok(Rate {
            from: rate(from)?,
            to: rate(to)?,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bare_numbers_are_seconds() {
        for (text, millis) in [("60", 60_000), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "0", "-1", "1d", "9999h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
