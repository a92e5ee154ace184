//! A network that forwards nothing and closes no connection. AMQP has heartbeats for that, after
//! which its servers deliver a job again.

use std::sync::Arc;

use super::database::{Kind, Server, in_each_server, url};
use super::plain::Plain;
use super::proxy::Proxy;
use super::redis::{Redis, Site};
use super::table::Table;
use super::work::Work;

in_each_server! {
    job_is_settled_once_the_server_is_heard_again
    sigterm_ends_the_process_while_the_server_is_silent
}

fn job_is_settled_once_the_server_is_heard_again(kind: Kind) {
    let (plain, proxy, _server) = behind_a_proxy(kind, LEASE);
    let push = |number, what: &str| {
        plain.push(number, what);
    };
    settles_later(&plain, &proxy, push, || plain.table.is_empty());
}

fn sigterm_ends_the_process_while_the_server_is_silent(kind: Kind) {
    let (plain, proxy, _server) = behind_a_proxy(kind, SHORT_SHUTDOWN);
    let push = |number, what: &str| {
        plain.push(number, what);
    };
    ends(&plain, &proxy, push);
    assert!(!plain.table.is_empty(), "the server knows of no end");
}

#[test]
fn job_is_settled_once_redis_is_heard_again() {
    let (site, proxy) = redis_behind_a_proxy(LEASE);
    let push = |number, what: &str| site.push(number, what);
    settles_later(&site.plain, &proxy, push, || site.is_empty());
}

#[test]
fn sigterm_ends_the_process_while_redis_is_silent() {
    let (site, proxy) = redis_behind_a_proxy(SHORT_SHUTDOWN);
    ends(&site.plain, &proxy, |number, what| site.push(number, what));
    assert!(!site.is_empty(), "the server knows of no end");
}

/// Longer than the network is silent.
const LEASE: &str = "lease = '10m'\n";
const SHORT_SHUTDOWN: &str = "[work]\nshutdown_timeout = '1s'\n";

fn behind_a_proxy(kind: Kind, settings: &str) -> (Plain, Proxy, Arc<Server>) {
    let server = Server::shared(kind);
    let proxy = Proxy::to(server.port);
    let plain = Plain::with(settings, |_| {
        let mut table = Table::on(&server);
        table.source = url(kind, proxy.port, &table.name);
        table
    });
    (plain, proxy, server)
}

fn redis_behind_a_proxy(settings: &str) -> (Site, Proxy) {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port);
    let plain = Plain::from(&format!("redis://127.0.0.1:{}/0", proxy.port), settings);
    (Site { plain, redis }, proxy)
}

fn settles_later(
    plain: &Plain,
    proxy: &Proxy,
    push: impl Fn(usize, &str),
    is_empty: impl Fn() -> bool,
) {
    let work = finishes_unheard(plain, proxy, &push);
    work.wait_for_log(|log| log.contains("cannot settle a job"));
    work.wait_for_log(|log| log.contains("the broker failed"));
    proxy.mend();
    work.wait_until(is_empty);
    push(1, "");
    work.wait_until(|| plain.count("done 1") == 1);
    for number in [0, 1] {
        assert_eq!(plain.count(&format!("begins {number}")), 1, "{number}");
    }
}

fn ends(plain: &Plain, proxy: &Proxy, push: impl Fn(usize, &str)) {
    let mut work = finishes_unheard(plain, proxy, push);
    work.signal("TERM");
    let state = format!("/proc/{}/stat", work.pid());
    let has_ended = || std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") Z"));
    work.wait_for_minutes(2, has_ended);
    assert!(work.wait().success(), "{}", work.log());
}

/// Runs a job that finishes after the network has become silent.
fn finishes_unheard(plain: &Plain, proxy: &Proxy, push: impl Fn(usize, &str)) -> Work {
    let work = plain.start(&["--workers", "1"]);
    push(0, "wait");
    work.wait_until(|| plain.count("begins 0") == 1);
    proxy.hold();
    plain.go(true);
    work.wait_until(|| plain.count("done 0") == 1);
    work
}
