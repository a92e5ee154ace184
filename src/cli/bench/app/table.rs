//! The report of `surus bench app`: a row per engine, and why some have no numbers.

use surus_measure::{BarNumbers, Bars, Cell, Chart, Line, Machine, Measured, Report, Row, Scale};
use surus_measure::{Table, Unit};

use super::advice;
use super::contest::Contest;
use super::contestant::{Contestant, State};

/// Lines of a chart whose colours can be told apart.
const MAX_LINES: usize = 4;

pub fn report(contest: &Contest) -> Report {
    let plan = &contest.plan;
    let sorted = sorted(&contest.contestants);
    let reference = contest.contestants[contest.reference].entry.name;
    let mut tables = vec![Table {
        key: "engines".into(),
        title: "Engines, the one with the least CPU per request first".into(),
        columns: [
            "requests/s",
            "CPU per request",
            "p99",
            "memory per process",
            "cold start",
            "answers",
            "isolated",
        ]
        .map(String::from)
        .to_vec(),
        rows: sorted
            .iter()
            .map(|it| row(it, reference, contest.is_compared_after_load()))
            .collect(),
    }];
    tables.extend(differences(&sorted, reference));
    let failed = "Failed under load";
    tables.extend(texts(&sorted, "failures", failed, &|it| it.failure.clone()));
    let not_run = "Do not run the application";
    tables.extend(texts(&sorted, "not_run", not_run, &|it| match &it.state {
        State::Fails(why) => Some(why.clone()),
        _ => None,
    }));
    let paths = plan.requests.paths.join(" ");
    let advice = advice::advice(contest);
    let recommended = advice::recommended(contest);
    Report {
        title: format!("surus bench app {}", plan.launch.project.display()),
        subtitle: format!(
            "GET {paths}; {} rounds of about {} ms per engine, {} connections, {} workers",
            contest.rounds,
            contest.length.as_millis(),
            plan.concurrency,
            plan.launch.workers
        ),
        machine: Machine::this(),
        failure: contest.failure(),
        notes: notes(contest),
        tables,
        charts: chart(&sorted, &[Some(reference), recommended])
            .into_iter()
            .collect(),
        bars: bars(&sorted),
        advice,
    }
}

/// The first difference of each engine that answers otherwise than the reference.
fn differences(sorted: &[&Contestant], reference: &str) -> Option<Table> {
    let title = format!("Other answers than {reference}");
    texts(sorted, "differences", &title, &|it| match &it.state {
        State::Differs(how) => Some(how.to_string()),
        _ => None,
    })
}

/// A table with the sentence of each engine that has one.
fn texts(
    sorted: &[&Contestant],
    key: &str,
    title: &str,
    text: &dyn Fn(&Contestant) -> Option<String>,
) -> Option<Table> {
    let row = |it: &&Contestant| {
        let name = it.entry.name;
        Some(Row::new(name, name, vec![Cell::Text { text: text(it)? }]))
    };
    let rows: Vec<_> = sorted.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        key: key.into(),
        title: title.into(),
        columns: vec![String::new()],
        rows,
    })
}

/// An engine's CPU time and answers in a line.
pub fn in_words(contestant: &Contestant, contest: &Contest) -> String {
    let reference = contest.contestants[contest.reference].entry.name;
    let cpu = contestant
        .cpu()
        .map(|cpu| format!("{} of CPU per request", Unit::Us.write(cpu)));
    let cpu = cpu.unwrap_or_else(|| "unknown CPU time".into());
    match (&contestant.state, &contestant.failure) {
        (State::Fails(why), _) => format!("cannot run it: {why}"),
        (State::Differs(how), _) => format!("{cpu}, other answers: {how}"),
        (State::Same, Some(why)) => format!("fails under load: {why}"),
        (State::Same, None) if contestant.entry.name == reference => {
            format!("{cpu}, the reference")
        }
        (State::Same, None) => format!("{cpu}, the same answers"),
    }
}

/// By CPU per request, then those without. Those with failed requests follow, then those that do
/// not run.
fn sorted(contestants: &[Contestant]) -> Vec<&Contestant> {
    let mut sorted: Vec<_> = contestants.iter().collect();
    let cpu = |it: &Contestant| it.cpu().unwrap_or(f64::MAX);
    sorted.sort_by(|a, b| {
        let (first, second) = ((!a.runs(), !a.serves()), (!b.runs(), !b.serves()));
        first.cmp(&second).then_with(|| cpu(a).total_cmp(&cpu(b)))
    });
    sorted
}

fn row(contestant: &Contestant, reference: &str, is_compared_after_load: bool) -> Row {
    let name = contestant.entry.name;
    if !contestant.runs() {
        let mut cells = vec![Cell::missing("does not run")];
        cells.resize(7, Cell::missing(""));
        return Row::new(name, name, cells);
    }
    let samples = &contestant.samples;
    let median = |samples: &[f64], unit, missing: &str| {
        let number = Measured::median(samples, unit);
        number.map_or_else(|| Cell::missing(missing), Cell::measured)
    };
    let verdict = match &contestant.state {
        State::Differs(_) => "differ",
        _ if contestant.failure.is_some() => "fail under load",
        _ if name == reference => "reference",
        _ if !is_compared_after_load => "same before load",
        _ => "same",
    };
    let isolated = match contestant.entry.isolates {
        true => "yes",
        false => "no",
    };
    Row::new(
        name,
        name,
        vec![
            match contestant.failure {
                Some(_) => Cell::missing("requests failed"),
                None => median(&samples.rate, Unit::PerSecond, "no round"),
            },
            match contestant.cpu() {
                _ if contestant.failure.is_some() => Cell::missing("requests failed"),
                Some(_) => median(&samples.cpu, Unit::Us, ""),
                None if contestant.runs_elsewhere => Cell::missing("not counted"),
                None => Cell::missing("too little to divide"),
            },
            match samples.rate[..] {
                [] => Cell::missing("no round"),
                _ => median(&samples.p99, Unit::Ms, "no expected response"),
            },
            match contestant.runs_elsewhere {
                true => Cell::missing("not counted"),
                false => median(&samples.memory, Unit::Bytes, "not readable"),
            },
            // In milliseconds, those of slow applications would make the table too wide.
            median(&samples.cold_start, Unit::Seconds, "no round"),
            Cell::Verdict { verdict },
            Cell::Verdict { verdict: isolated },
        ],
    )
}

fn notes(contest: &Contest) -> Vec<String> {
    let mut notes = contest.plan.notes.clone();
    if let Some((round, all)) = contest.cut_short {
        notes.push(format!(
            "interrupted in round {round} of {all}: answers after load were not compared"
        ));
    }
    let names = |is: &dyn Fn(&Contestant) -> bool| {
        let named = contest.contestants.iter().filter(|it| is(it));
        let names: Vec<_> = named.map(|it| format!("`{}`", it.entry.name)).collect();
        names.join(", ")
    };
    let limited = names(&|it| it.was_generator_limited && it.runs());
    if !limited.is_empty() {
        notes.push(format!(
            "the load generator was the limit for {limited}: compare CPU per request, not \
             requests/s"
        ));
    }
    if contest
        .contestants
        .iter()
        .any(|it| it.serves() && it.cpu().is_none() && !it.runs_elsewhere)
    {
        notes.push(
            "a round in which an engine uses little CPU time says nothing of CPU per request; \
             measure longer (--duration 2s)"
                .into(),
        );
    }
    let workers = contest.plan.launch.workers;
    let with_spares = |it: &Contestant| it.processes > workers && it.runs();
    if let Some(first) = contest.contestants.iter().find(|it| with_spares(it)) {
        notes.push(format!(
            "{}: {} PHP processes serve instead of {workers}, because each serves one request and \
             then takes a moment to be replaced (engine.spare_workers)",
            names(&with_spares),
            first.processes
        ));
    }
    let elsewhere = names(&|it| it.runs_elsewhere && it.runs());
    if !elsewhere.is_empty() {
        notes.push(format!(
            "CPU time and memory of {elsewhere} are not counted: its php-fpm already runs, and may \
             serve others as well (engine.php_fpm_address)"
        ));
    }
    for contestant in &contest.contestants {
        if let (Some(why), true) = (contestant.cold_because, contestant.runs()) {
            notes.push(format!(
                "`{}` ran without a warm-up: {why}",
                contestant.entry.name
            ));
        }
    }
    if let Some(target) = &contest.redirection {
        notes.push(format!(
            "the application redirects to {target}; if that is not the page you mean, name it \
             (--path), and its host (-H 'Host: …')"
        ));
    }
    if advice::advice(contest).is_none() {
        notes.push(
            "no engine is recommended: none of Surus's own served every request as the reference \
             does"
                .into(),
        );
    }
    notes
}

/// Latencies of the last round: those of the engines in `first`, and of others in the order of the
/// table while there are colours.
fn chart(sorted: &[&Contestant], first: &[Option<&str>]) -> Option<Chart> {
    let is_measured = |it: &&&Contestant| it.serves() && it.latencies.is_some();
    let measured = || sorted.iter().filter(is_measured);
    let is_first = |it: &&&Contestant| first.contains(&Some(it.entry.name));
    let others = measured().filter(|it| !is_first(it));
    let mut shown: Vec<_> = measured().filter(is_first).chain(others).collect();
    shown.truncate(MAX_LINES);
    let all = measured().count();
    let line = |it: &&&Contestant| {
        Some(Line {
            name: it.entry.name.into(),
            points: it.latencies.as_ref()?.curve(),
        })
    };
    let lines: Vec<_> = shown.iter().filter_map(line).collect();
    let which = match all > MAX_LINES {
        true => format!(", {MAX_LINES} of {all} engines"),
        false => String::new(),
    };
    (!lines.is_empty()).then(|| Chart {
        title: format!("Latency by percentile, last round{which}"),
        x: "requests that were at least this fast".into(),
        scale: Scale::Nines,
        y: Unit::Ms,
        y_scale: Scale::Linear,
        lines,
    })
}

/// CPU time per request and requests per second of each engine that served all rounds.
fn bars(sorted: &[&Contestant]) -> Vec<Bars> {
    let chart = |title: &str, samples: &dyn Fn(&Contestant) -> &[f64], unit| {
        let bar = |it: &&Contestant| {
            let number = Measured::median(samples(it), unit)?;
            Some((it.entry.name.to_string(), number))
        };
        let serving = sorted.iter().filter(|it| it.serves());
        Bars {
            title: title.into(),
            numbers: BarNumbers::Measured(serving.filter_map(bar).collect()),
        }
    };
    let mut all = vec![
        chart(
            "CPU per request",
            &|it| match it.cpu() {
                Some(_) => &it.samples.cpu,
                None => &[],
            },
            Unit::Us,
        ),
        chart("Requests/s", &|it| &it.samples.rate, Unit::PerSecond),
    ];
    all.retain(|bars| !bars.is_empty());
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use surus_measure::Recorder;

    use super::*;
    use crate::cli::bench::app::answers::{AnswerDifference, Requests};
    use crate::config::Config;
    use crate::engines;

    fn measured(name: &str) -> Contestant {
        let requests = Requests {
            paths: vec!["/".into()],
            headers: Vec::new(),
        };
        let entry = engines::find(name).unwrap();
        let nowhere = std::path::Path::new("/nowhere");
        let mut new =
            Contestant::new(entry, nowhere, &Config::default(), None, &requests, 1).unwrap();
        let mut recorder = Recorder::new(false);
        recorder.response(Duration::ZERO, Duration::from_millis(1), 0);
        new.latencies = Some(recorder.finish(Duration::from_secs(1)));
        new
    }

    #[test]
    fn chart_has_the_reference_and_the_recommended_engine() {
        let all = ["worker", "cgi", "cli", "fork", "rewind", "classic"].map(measured);
        let sorted: Vec<_> = all.iter().collect();
        let chart = chart(&sorted, &[Some("classic"), Some("rewind")]).unwrap();
        let names: Vec<_> = chart.lines.iter().map(|line| &*line.name).collect();
        assert_eq!(names, ["rewind", "classic", "worker", "cgi"]);
        assert!(chart.title.ends_with(", 4 of 6 engines"), "{}", chart.title);
    }

    #[test]
    fn engine_that_failed_to_start_in_a_later_round_is_in_no_chart() {
        let mut all = ["classic", "fork"].map(measured);
        for it in &mut all {
            (it.samples.cpu, it.samples.rate) = (vec![1.0; 2], vec![1.0; 2]);
        }
        let names = |all: &[Contestant; 2]| {
            let sorted: Vec<_> = all.iter().collect();
            let chart = chart(&sorted, &[]).unwrap();
            let mut names = vec![chart.lines.into_iter().map(|it| it.name).collect()];
            for chart in bars(&sorted) {
                let BarNumbers::Measured(bars) = chart.numbers else {
                    panic!("they are measured here");
                };
                names.push(bars.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
            }
            names
        };
        assert_eq!(names(&all), [["classic", "fork"]; 3]);
        all[1].state = State::Fails("in round 3: it has ended".into());
        assert_eq!(names(&all), [["classic"]; 3]);
    }

    #[test]
    fn engine_with_failed_requests_has_no_rate_and_follows_those_that_served() {
        let mut all = ["cgi", "classic", "fork", "rewind"].map(measured);
        for it in &mut all {
            (it.samples.cpu, it.samples.rate) = (vec![2.0; 2], vec![1.0; 2]);
        }
        all[0].state = State::Fails("it has ended".into());
        all[1].failure = Some("10 of 10 requests failed".into());
        all[1].samples.cpu = vec![1.0; 2];
        all[2].samples.cpu.clear();
        let sorted = sorted(&all);
        let names: Vec<_> = sorted.iter().map(|it| it.entry.name).collect();
        assert_eq!(names, ["rewind", "fork", "classic", "cgi"]);
        let cells = row(&all[1], "classic", true).cells;
        let failed = Cell::missing("requests failed");
        assert_eq!(cells[..2], [failed.clone(), failed]);
        assert_eq!(cells[2], Cell::missing("no expected response"));
        let verdict = "fail under load";
        assert_eq!(cells[5], Cell::Verdict { verdict });
        for chart in bars(&sorted) {
            let BarNumbers::Measured(bars) = chart.numbers else {
                panic!("they are measured here");
            };
            assert!(bars.iter().all(|(name, _)| name != "classic"), "{bars:?}");
        }
    }

    #[test]
    fn answers_that_were_compared_only_before_load_have_a_verdict_of_their_own() {
        let verdict = |name, is_compared| {
            let cells = row(&measured(name), "classic", is_compared).cells;
            match cells[5] {
                Cell::Verdict { verdict } => verdict,
                _ => unreachable!("the sixth column is the verdict"),
            }
        };
        assert_eq!(verdict("rewind", true), "same");
        assert_eq!(verdict("rewind", false), "same before load");
        assert_eq!(verdict("classic", false), "reference");
    }

    #[test]
    fn differences_are_from_the_reference_that_answers_were_compared_with() {
        let mut other = measured("worker");
        other.state = State::Differs(AnswerDifference {
            path: "/".into(),
            expected: "1".into(),
            got: "2".into(),
        });
        let table = differences(&[&other], "rewind").unwrap();
        assert_eq!(table.title, "Other answers than rewind");
        let same = measured("rewind");
        assert!(differences(&[&same], "rewind").is_none());
    }
}
