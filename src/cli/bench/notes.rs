//! The notes of reports: what a reader must know before the numbers.

use std::collections::{BTreeMap, BTreeSet};

use surus_load::{Plan, Protocol};
use surus_measure::{Unit, Usage};

use super::measuring::Result;

/// From this part of p99 on, a note says how late the generator was.
const LARGE_PART: f64 = 0.25;

/// Why there are no numbers of the server's processes.
const NO_SERVER: &str = "not all processes that serve the URLs were found, so their CPU time \
                         and memory are missing (--pid)";

/// The notes on one run.
pub fn of_run(plan: &Plan, result: &Result) -> Vec<String> {
    let outcome = &result.outcome;
    let mut notes = Vec::new();
    if outcome.is_interrupted {
        notes.push("the run was interrupted; requests in flight are not counted".into());
    }
    if outcome.is_generator_limited() {
        notes.push(format!(
            "the load generator was the limit (its thread used {:.0} % of a CPU); the server can \
             do more",
            outcome.own_busy() * 100.0
        ));
    }
    notes.extend(redirected(&outcome.totals.statuses));
    let (late, responses) = (outcome.late.len(), outcome.totals.responses);
    if late as u64 * 20 > responses {
        notes.push(format!(
            "{late} of {responses} responses came after the load had ended; requests/s counts them \
             with the time that they took; a longer load shows more (--duration)"
        ));
    }
    if let Some(offered) = outcome.offered {
        if !outcome.kept_rate() {
            notes.push(match outcome.is_generator_limited() {
                true => "the rate could not be kept, because of the load generator".into(),
                false => format!(
                    "the rate could not be kept, because {}",
                    all_wait(plan.concurrency)
                ),
            });
        }
        let (late, p99) = (
            offered.own_lateness.as_secs_f64() * 1000.0,
            outcome.latencies.percentile_ms(99.0),
        );
        if outcome.totals.responses > 0 && late >= p99 * LARGE_PART {
            notes.push(format!(
                "the load generator itself sent 1 % of the requests {} late or more, a large part \
                 of the p99 of {}; the server was faster",
                Unit::Ms.write(late),
                Unit::Ms.write(p99)
            ));
        }
        if offered.unsent > 0 {
            notes.push(never_sent(offered.unsent, offered.due));
        }
    }
    match &result.usage {
        None => notes.push(NO_SERVER.into()),
        Some(usage) if !usage.ended.is_empty() => notes.push(ended(&usage.names_of_ended())),
        Some(_) => {}
    }
    if plan.protocol == Protocol::Http2 {
        notes.push(
            "HTTP/2 carries one request at a time per connection; its bytes are those of fields \
             and bodies, without frames and compression"
                .into(),
        );
    }
    notes
}

/// Notes on the server's processes at several rates: some ended, or not all were found.
pub fn of_rates(usages: &[Option<&Usage>]) -> Vec<String> {
    let with_ended = usages.iter().flatten().filter(|it| !it.ended.is_empty());
    let names: BTreeSet<_> = with_ended.map(|it| it.names_of_ended()).collect();
    let mut notes: Vec<_> = names.iter().map(|names| ended(names)).collect();
    let all = usages.len();
    match usages.iter().filter(|it| it.is_none()).count() {
        0 => {}
        unknown if unknown == all => notes.push(NO_SERVER.into()),
        unknown => notes.push(format!(
            "at {unknown} of {all} rates, not all processes that serve the URLs were found, so \
             their CPU time and memory are missing there (--pid)"
        )),
    }
    notes
}

/// Why there is no CPU time of a server of which these processes have ended.
fn ended(names: &str) -> String {
    format!("{names} ended during the run, so CPU time of the server is missing")
}

/// Why requests that are due cannot be sent.
pub fn all_wait(connections: usize) -> String {
    match connections {
        1 => "the connection (--concurrency) was waiting for a response".to_string(),
        count => format!("all {count} connections (--concurrency) were waiting for responses"),
    }
}

/// What percentiles are if requests were never sent.
pub fn never_sent(unsent: u64, due: u64) -> String {
    format!(
        "{unsent} of {due} due requests were never sent; each counts with the time from when it \
         was due to the end of the run, so the percentiles are lower bounds"
    )
}

/// Says that redirects were not followed: they are answered faster than the pages behind them.
pub fn redirected(statuses: &BTreeMap<u16, u64>) -> Option<String> {
    let (mut redirects, mut names) = (0_u64, Vec::new());
    for (status, count) in statuses {
        if matches!(status, 301 | 302 | 303 | 307 | 308) {
            redirects += *count;
            names.push(status.to_string());
        }
    }
    let all: u64 = statuses.values().sum();
    let which = match redirects {
        0 => return None,
        1 if all == 1 => "the response was".into(),
        count if count == all => format!("all {all} responses were"),
        count => format!("{count} of {all} responses were"),
    };
    let names = names.join(" or ");
    Some(format!("{which} {names}; redirects are not followed"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use surus_load::{Mix, Offered, Request, RunOutcome, Totals, Url};
    use surus_measure::{Machine, Recorder};

    use super::*;

    /// The notes on a run of a second in which the generator's thread used this much of a CPU, and
    /// each response took 1 ms.
    fn notes_on(busy: f64, responses: u64, offered: Option<Offered>) -> String {
        let url = Url::parse("http://127.0.0.1:1/").unwrap();
        let plan = Plan::new(Mix::new(&[Request::get(url)], true).unwrap());
        let second = Duration::from_secs(1);
        let mut recorder = Recorder::new(false);
        for _ in 0..responses {
            recorder.response(Duration::ZERO, Duration::from_millis(1), 0);
        }
        let result = Result {
            outcome: RunOutcome {
                elapsed: second,
                totals: Totals {
                    requests: 10,
                    responses,
                    ..Totals::default()
                },
                latencies: recorder.finish(second),
                offered,
                own_cpu: second,
                own_cpu_in_time: second.mul_f64(busy),
                late: Vec::new(),
                is_interrupted: false,
            },
            usage: None,
            machine: Machine::this(),
        };
        of_run(&plan, &result).join("\n")
    }

    #[test]
    fn missed_rate_has_its_cause() {
        let missed = Offered {
            due: 100,
            unsent: 50,
            overdue: 0,
            own_lateness: Duration::ZERO,
        };
        let connections = "because all 50 connections (--concurrency) were waiting";
        let generator = "because of the load generator";
        let notes = notes_on(0.5, 10, Some(missed));
        assert!(
            notes.contains(connections) && !notes.contains(generator),
            "{notes}"
        );
        let notes = notes_on(0.97, 10, Some(missed));
        assert!(
            notes.contains(generator) && !notes.contains(connections),
            "{notes}"
        );
    }

    #[test]
    fn lateness_of_the_generator_is_a_note_if_it_is_a_large_part_of_p99() {
        let late = |micros| {
            let own_lateness = Duration::from_micros(micros);
            let offered = Offered {
                due: 10,
                unsent: 0,
                overdue: 0,
                own_lateness,
            };
            notes_on(0.5, 10, Some(offered))
        };
        let note = "itself sent 1 % of the requests 0.300 ms late or more";
        assert!(late(300).contains(note), "{}", late(300));
        assert!(!late(200).contains("late or more"));
    }

    #[test]
    fn note_says_that_the_generator_was_the_limit_if_it_used_its_cpu() {
        let note = "the load generator was the limit (its thread used 97 % of a CPU)";
        assert!(notes_on(0.97, 10, None).contains(note));
        assert!(!notes_on(0.94, 10, None).contains("the limit"));
        assert!(
            !notes_on(0.97, 0, None).contains("the limit"),
            "nothing was served"
        );
    }

    #[test]
    fn redirects_have_a_note_with_their_share() {
        let note = |counts: &[(u16, u64)]| {
            let counts: BTreeMap<_, _> = counts.iter().copied().collect();
            redirected(&counts)
        };
        assert_eq!(note(&[]), None);
        assert_eq!(note(&[(200, 5), (304, 1), (404, 1)]), None);
        let all = "all 7 responses were 301; redirects are not followed";
        assert_eq!(note(&[(301, 7)]).as_deref(), Some(all));
        let one = "the response was 301; redirects are not followed";
        assert_eq!(note(&[(301, 1)]).as_deref(), Some(one));
        let both = "all 7 responses were 302 or 308; redirects are not followed";
        assert_eq!(note(&[(302, 4), (308, 3)]).as_deref(), Some(both));
        let some = "2 of 7 responses were 301; redirects are not followed";
        assert_eq!(note(&[(200, 5), (301, 2)]).as_deref(), Some(some));
    }
}
