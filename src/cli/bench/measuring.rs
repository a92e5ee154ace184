//! Runs a plan on a thread of its own, and meanwhile samples the server and shows progress.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use surus_load::{Origin, Pace, Plan, RunOutcome, Stop, Watch};
use surus_measure::interval_log::WriteInterval;
use surus_measure::{Machine, Probe, Usage, probe};

use super::interrupt;
use super::progress::Progress;

/// How often the progress is shown, and the server's processes are sampled if that is cheap
/// ([`Probe::look`]). Many rounds are not longer than a second.
const TICK: Duration = Duration::from_millis(200);

/// What a run has shown, of the responses and of the server's processes.
pub struct Result {
    pub outcome: RunOutcome,
    /// Missing if the server's processes were not found.
    pub usage: Option<Usage>,
    pub machine: Machine,
}

/// Runs a plan. The server is the processes `pids`, or those that listen on the URLs' addresses.
pub fn measure(plan: &Plan, pids: &[i32], shows_progress: bool) -> anyhow::Result<Result> {
    measure_with(plan, pids, shows_progress, None)
}

/// The same, and writes the histogram of each second to a log when it closes.
pub fn measure_with(
    plan: &Plan,
    pids: &[i32],
    shows_progress: bool,
    mut log: Option<&mut WriteInterval<'_>>,
) -> anyhow::Result<Result> {
    let (seconds, received) = channel();
    let (intervals, closed) = channel();
    let watch = Watch {
        ended: Arc::new(AtomicU64::new(0)),
        seconds,
        intervals: log.is_some().then_some(intervals),
    };
    let mut write = || match &mut log {
        Some(log) => closed.try_iter().try_for_each(|interval| log(&interval)),
        None => Ok(()),
    };
    let mut written = Ok(());
    let mut progress = shows_progress.then(|| Progress::new(plan.stop, watch.ended.clone()));
    let mut probe = Probe::begin(server(plan, pids));
    let thread = {
        let plan = plan.clone();
        std::thread::Builder::new()
            .name("bench".into())
            .spawn(move || surus_load::run(&plan, Some(watch), interrupt::received()))?
    };
    loop {
        if let Some(probe) = &mut probe {
            probe.look();
        }
        // The generator drops the sender when it ends.
        match received.recv_timeout(TICK) {
            Ok(second) => {
                written = written.and_then(|()| write());
                if let Some(progress) = &mut progress {
                    progress.second(&second);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(progress) = &mut progress {
                    progress.update();
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let usage = probe.map(Probe::end);
    if let Some(progress) = progress {
        progress.end();
    }
    let outcome = thread
        .join()
        .map_err(|_| anyhow!("the load generator panicked"))?;
    let written = written.and_then(|()| write());
    written.context("cannot write the log of latencies (--hdr)")?;
    Ok(Result {
        outcome: outcome.context("cannot send requests")?,
        usage,
        machine: Machine::this(),
    })
}

/// Checks that each process that an option names exists.
pub fn ensure_running(pids: &[i32], option: &str) -> anyhow::Result<()> {
    match pids.iter().find(|pid| !probe::is_running(**pid)) {
        Some(pid) => bail!("there is no process {pid} ({option})"),
        None => Ok(()),
    }
}

/// Sends requests without measuring. Fails if that is interrupted.
pub fn warm_up(plan: &Plan, time: Option<Duration>) -> anyhow::Result<()> {
    if let Some(time) = time
        && measure(&warm_up_plan(plan, time), &[], false)?
            .outcome
            .is_interrupted
    {
        bail!("interrupted in the warm-up; nothing was measured");
    }
    Ok(())
}

/// The plan of a warm-up. A ramp would go on beyond its last rate in a longer warm-up.
fn warm_up_plan(plan: &Plan, time: Duration) -> Plan {
    let mut plan = plan.clone();
    plan.stop = Stop::After(time);
    if let Pace::Open(schedule) = plan.pace {
        plan.pace = Pace::Open(schedule.without_ramp());
    }
    plan
}

/// The roots of the process trees that serve the URLs. Empty if one of them is served on another
/// machine, in another container, or as another user. CPU per request needs the CPU time of all
/// servers, because it counts all requests.
fn server(plan: &Plan, pids: &[i32]) -> Vec<i32> {
    if !pids.is_empty() {
        return pids.to_vec();
    }
    let mut found = Vec::new();
    for origin in &plan.mix.origins {
        let pids = listeners(origin);
        if pids.is_empty() {
            return Vec::new();
        }
        found.extend(pids);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn listeners(origin: &Origin) -> Vec<i32> {
    if let Some(socket) = &origin.unix {
        return probe::unix_listeners(socket);
    }
    let addresses = (origin.host.as_str(), origin.port).to_socket_addrs();
    // The generator connects to the first address of a name that a server listens on.
    let of_this_machine = addresses.into_iter().flatten().filter(is_of_this_machine);
    let found = of_this_machine.map(probe::listeners);
    let mut found = found.filter(|pids| !pids.is_empty());
    found.next().unwrap_or_default()
}

/// Whether an address is one of this machine's: only to these can a socket be bound.
fn is_of_this_machine(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command};
    use std::time::Instant;

    use surus_load::{Mix, Request, Schedule, Url};

    use super::*;

    /// A process that has a listening socket as stdin.
    fn holder() -> (Child, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut command = Command::new("sleep");
        let held = command.arg("600").stdin(OwnedFd::from(listener)).spawn();
        (held.unwrap(), url)
    }

    #[test]
    fn address_to_which_a_socket_can_be_bound_is_of_this_machine() {
        let is_own = |address: &str| is_of_this_machine(&address.parse().unwrap());
        assert!(is_own("127.0.0.1:80") && is_own("127.1.2.3:1"));
        assert!(!is_own("192.0.2.1:80") && !is_own("[2001:db8::1]:80"));
        // The address from which this machine would send to others, if it has one.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            assert!(is_of_this_machine(&socket.local_addr().unwrap()));
        }
    }

    #[test]
    fn warm_up_of_a_ramp_has_its_first_rate() {
        let url = Url::parse("http://127.0.0.1/").unwrap();
        let mut plan = Plan::new(Mix::new(&[Request::get(url)], true).unwrap());
        let time = Duration::from_secs(30);
        assert_eq!(warm_up_plan(&plan, time).pace, Pace::Closed);
        let ten_seconds = Duration::from_secs(10);
        plan.pace = Pace::Open(Schedule::ramp(100.0, 1000.0, ten_seconds));
        let warm_up = warm_up_plan(&plan, time);
        assert_eq!(warm_up.pace, Pace::Open(Schedule::constant(100.0)));
        assert_eq!(warm_up.stop, Stop::After(time));
    }

    #[test]
    fn server_is_the_processes_of_all_origins_or_unknown() {
        let mut holders = [holder(), holder()];
        let pids = holders
            .each_ref()
            .map(|(child, _)| child.id().cast_signed());
        let [one, two] = holders.each_ref().map(|(_, url)| url.as_str());
        let found = |urls: &[&str]| {
            let request = |url: &&str| Request::get(Url::parse(url).unwrap());
            let requests: Vec<_> = urls.iter().map(request).collect();
            server(&Plan::new(Mix::new(&requests, true).unwrap()), &[])
        };
        // Until its exec, a process that another test starts has the sockets, too.
        let expect = |urls: &[&str], expected: &[i32]| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while found(urls) != expected {
                assert!(Instant::now() < deadline, "{:?} of {urls:?}", found(urls));
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        expect(&[one], &pids[..1]);
        let mut both = pids;
        both.sort_unstable();
        expect(&[one, two, one], &both);
        // Requests to a server that is not found would make the others look cheap.
        assert!(found(&[one, "http://192.0.2.1/"]).is_empty());
        assert!(found(&["http://192.0.2.1/", one]).is_empty());
        assert!(found(&[one, "http://127.0.0.1:1/"]).is_empty());
        for (child, _) in &mut holders {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
