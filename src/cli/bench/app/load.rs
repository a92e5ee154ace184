//! The load of `surus bench app`: its requests, and how many fill a time.

use std::time::Duration;

use anyhow::anyhow;
use surus_load::{Expectations, Mix, Protocol, Request, Url};

use super::Plan;

/// Requests of all paths to a port of this machine. The caller sets when the load stops.
pub fn plan(plan: &Plan, port: u16) -> anyhow::Result<surus_load::Plan> {
    let request = |path: &String| {
        let url = Url::parse(&format!("http://127.0.0.1:{port}{path}"))?;
        let headers = plan.requests.headers.clone();
        Ok(Request {
            headers,
            ..Request::get(url)
        })
    };
    let requests = plan.requests.paths.iter().map(request);
    let requests = requests.collect::<anyhow::Result<Vec<_>>>()?;
    let mix = Mix::new(&requests, true).map_err(|error| anyhow!(error))?;
    Ok(surus_load::Plan {
        protocol: Protocol::Http1,
        concurrency: plan.concurrency,
        timeout: Duration::from_secs(60),
        expectations: Expectations::default(),
        ..surus_load::Plan::new(mix)
    })
}

/// How many requests take a time, if a warm-up with its drain took so long. A number, because a
/// time would cut off the last requests of slow engines.
pub fn requests_within(time: Duration, requests: u64, took: Duration, concurrency: usize) -> u64 {
    let rate = requests as f64 / took.as_secs_f64().max(1e-3);
    let fitting = (rate * time.as_secs_f64()) as u64;
    fitting.max(2 * concurrency as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_slow_pages_are_counted_with_their_drain() {
        let within = |requests, millis, concurrency| {
            let took = Duration::from_millis(millis);
            requests_within(Duration::from_secs(3), requests, took, concurrency)
        };
        assert_eq!(within(300, 300, 4), 3000);
        // Pages of a second: the warm-up of 300 ms has ended after that.
        assert_eq!(within(8, 1000, 8), 24);
        assert_eq!(within(8, 8000, 8), 16, "at least two of each connection");
        assert_eq!(within(0, 0, 1), 2);
    }
}
