//! Recommends an engine, with reasons and the lines of `surus.toml`.

use surus_measure::{Advice, Unit, rounds};

use super::Plan;
use super::contest::Contest;
use super::contestant::{Contestant, State};
use crate::engines::PhpProgram;

/// Isolating engines, the one with the fewest conditions first. A later one must need less CPU.
const BY_SIMPLICITY: [&str; 4] = ["classic", "rewind", "fork", "standby"];
/// The share of the CPU time that an engine with more conditions may need at most.
const WORTH_IT: f64 = 0.9;

/// Missing if no engine served everything as `classic` does.
pub fn advice(contest: &Contest) -> Option<Advice> {
    let chosen = choose(&contest.contestants)?;
    let name = chosen.entry.name;
    let reference = contest.contestants[contest.reference].entry.name;
    Some(Advice {
        title: format!("Recommended: {name}"),
        reasons: reasons(
            chosen,
            &contest.contestants,
            reference,
            contest.is_compared_after_load(),
        ),
        file: match &contest.plan.file {
            Some(file) => format!("For [engine] in {}:", file.display()),
            None => format!("For {}/surus.toml:", contest.plan.launch.project.display()),
        },
        lines: lines(chosen, &contest.plan),
    })
}

/// The name of the engine that is recommended.
pub fn recommended(contest: &Contest) -> Option<&'static str> {
    choose(&contest.contestants).map(|it| it.entry.name)
}

fn choose(all: &[Contestant]) -> Option<&Contestant> {
    let is_candidate = |it: &&Contestant| {
        let is_same = it.state == State::Same && it.serves();
        is_same && it.entry.runs == PhpProgram::SurusPhp && !it.samples.rate.is_empty()
    };
    let find = |name: &str| {
        all.iter()
            .filter(is_candidate)
            .find(|it| it.entry.name == name)
    };
    let mut isolating = BY_SIMPLICITY.into_iter().filter_map(find);
    let first = isolating.next().or_else(|| find("worker"))?;
    Some(isolating.fold(
        first,
        |best, next| match next.needs_less_than(best, WORTH_IT) {
            true => next,
            false => best,
        },
    ))
}

/// If only answers before load were compared, the reasons say so.
fn reasons(
    chosen: &Contestant,
    all: &[Contestant],
    reference: &str,
    is_compared_after_load: bool,
) -> Vec<String> {
    let name = chosen.entry.name;
    let mut reasons = Vec::new();
    let classic = all.first().filter(|it| it.serves());
    let write = |cpu: f64| Unit::Us.write(cpu);
    if name == "classic" {
        reasons.push(
            "Every request starts clean, as under php-fpm, and no application needs a change."
                .into(),
        );
    } else {
        if name != reference && !is_compared_after_load {
            reasons.push(format!(
                "Its answers before load were those of `{reference}`."
            ));
        } else if name != reference {
            reasons.push(format!(
                "Its {} answers were those of `{reference}`, before and after load.",
                chosen.answers.count
            ));
        }
        if chosen.entry.isolates {
            reasons.push(
                "It isolates: a request finds nothing of the one before it in memory, as under \
                 php-fpm."
                    .into(),
            );
        }
        if let (Some(own), Some(others)) = (chosen.cpu(), classic.and_then(Contestant::cpu)) {
            reasons.push(format!(
                "A request needs {} of CPU; on `classic`, {}: {:.1} × as much.",
                write(own),
                write(others),
                others / own
            ));
        }
    }
    reasons.extend(classic.and_then(|classic| worse(chosen, classic)));
    if let Some(why) = chosen.cold_because {
        reasons.push(format!("Without a warm-up, because {why}."));
    }
    let booting = || all.iter().filter(|it| it.entry.boots_script());
    if booting().next().is_some() && !booting().any(Contestant::runs) {
        reasons.push(
            "No engine that boots the application once could run it; a script that calls \
             surus_serve() makes that possible, and requests cheaper."
                .into(),
        );
    }
    for other in all.iter().filter(|it| it.entry.name != name) {
        let named = other.entry.name;
        let is_ours = other.entry.runs == PhpProgram::SurusPhp;
        match &other.state {
            _ if named == "classic" || !is_ours => {}
            State::Fails(_) => {}
            State::Differs(how) => {
                let why = match other.entry.isolates {
                    true => ".".into(),
                    false => why_differs(all, &how.path),
                };
                reasons.push(format!("`{named}` is out: its answers differ{why}"));
            }
            State::Same if other.failure.is_some() => {
                reasons.push(format!("`{named}` is out: requests failed under load."));
            }
            State::Same if other.needs_less_than(chosen, WORTH_IT) => {
                let cpu = other.cpu().map(write).unwrap_or_default();
                reasons.push(format!(
                    "`{named}` needs even less CPU ({cpu}), but keeps what requests leave in \
                     memory; see `surus leaks` before you choose it."
                ));
            }
            State::Same if other.entry.isolates && is_below(other.cpu(), chosen.cpu()) => {
                let cpu = other.cpu().map(write).unwrap_or_default();
                reasons.push(format!(
                    "`{named}` needed less CPU in the median ({cpu}), but not in every round, or \
                     not 10 % less; more rounds on a quiet machine tell (--rounds 20)."
                ));
            }
            State::Same => {}
        }
    }
    reasons
}

/// Says which numbers of an engine are worse than those of `classic`, by more than the share that
/// decides between engines.
fn worse(chosen: &Contestant, classic: &Contestant) -> Option<String> {
    let (own, others) = (&chosen.samples, &classic.samples);
    let numbers = [
        ("requests/s", &own.rate, &others.rate, Unit::PerSecond),
        ("p99", &own.p99, &others.p99, Unit::Ms),
        (
            "memory per process",
            &own.memory,
            &others.memory,
            Unit::Bytes,
        ),
        (
            "cold start",
            &own.cold_start,
            &others.cold_start,
            Unit::Seconds,
        ),
    ];
    let worse = numbers.into_iter().filter_map(|(name, own, others, unit)| {
        let (own, others) = (rounds::median(own)?, rounds::median(others)?);
        // Of rates, less is worse.
        let (less, more) = match unit {
            Unit::PerSecond => (own, others),
            _ => (others, own),
        };
        let (own, others) = (unit.write(own), unit.write(others));
        (less < more * WORTH_IT).then(|| format!("{name} {own} instead of {others}"))
    });
    let worse: Vec<_> = worse.collect();
    (!worse.is_empty()).then(|| format!("Worse than on `classic`: {}.", worse.join("; ")))
}

/// Continues the sentence that the answers of an engine without isolation differ at a path. Only
/// engines that boot the application and isolate can tell whether requests leave something behind.
fn why_differs(all: &[Contestant], path: &str) -> String {
    let differs = |it: &&Contestant| matches!(&it.state, State::Differs(how) if how.path == path);
    let isolating = || all.iter().filter(|it| it.entry.isolates && it.runs());
    if let Some(other) = isolating().find(differs) {
        return format!(
            ", and those of `{}`, which isolates, do there, too: {path} may depend on the engine.",
            other.entry.name
        );
    }
    match isolating().any(|it| it.entry.boots_script() && it.state == State::Same) {
        true => ", so requests leave something behind; `surus leaks` names it.".into(),
        false => ": the boot may be why, or what requests leave behind; see `surus leaks`.".into(),
    }
}

fn is_below(one: Option<f64>, other: Option<f64>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one < other)
}

fn lines(chosen: &Contestant, plan: &Plan) -> Vec<String> {
    let quote = |text: &str| toml::Value::from(text).to_string();
    let mut lines = vec![
        "[engine]".to_string(),
        format!("name = {}", quote(chosen.entry.name)),
    ];
    if let Some(script) = &chosen.script {
        let relative = script.strip_prefix(&plan.launch.project).unwrap_or(script);
        lines.push(format!("script = {}", quote(&relative.to_string_lossy())));
    }
    if !chosen.warmup.is_empty() {
        let urls: Vec<_> = chosen.warmup.iter().map(|url| quote(url)).collect();
        lines.push(format!("warmup = [{}]", urls.join(", ")));
    }
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::bench::app::answers::{AnswerDifference, Requests};
    use crate::config::Config;
    use crate::engines;

    /// An engine that needed this CPU time in two rounds.
    fn contestant(name: &str, cpu: [f64; 2]) -> Contestant {
        let requests = Requests {
            paths: vec!["/".into()],
            headers: Vec::new(),
        };
        let project = std::path::Path::new("/nowhere");
        let entry = engines::find(name).unwrap();
        let mut new =
            Contestant::new(entry, project, &Config::default(), None, &requests, 1).unwrap();
        new.samples.cpu = cpu.to_vec();
        new.samples.rate = vec![1.0; 2];
        new
    }

    fn differs(path: &str) -> State {
        State::Differs(AnswerDifference {
            path: path.into(),
            expected: "classic".into(),
            got: "other".into(),
        })
    }

    #[test]
    fn requests_leave_something_behind_only_if_no_isolating_engine_differs_there() {
        let leaves = "differ, so requests leave something behind; `surus leaks` names it.";
        let depends = "differ, and those of `rewind`, which isolates, do there, too: / may depend \
                       on the engine.";
        let unknown = "differ: the boot may be why, or what requests leave behind";
        let fails = || State::Fails("no script".into());
        for (rewind, expected) in [
            (State::Same, leaves),
            (differs("/other"), unknown),
            (differs("/"), depends),
            (fails(), unknown),
        ] {
            let mut all = ["classic", "worker", "rewind"].map(|it| contestant(it, [9.0, 9.0]));
            all[1].state = differs("/");
            all[2].state = rewind;
            let reasons = reasons(&all[0], &all, "classic", true).concat();
            let expected = format!("`worker` is out: its answers {expected}");
            assert!(
                reasons.contains(&expected),
                "{expected} is not in {reasons}"
            );
        }
    }

    fn chosen(all: &[Contestant]) -> Option<&str> {
        choose(all).map(|it| it.entry.name)
    }

    #[test]
    fn engine_with_more_conditions_must_need_less_cpu_in_each_round() {
        let classic = || contestant("classic", [100.0, 110.0]);
        for (rewind, expected) in [
            ([50.0, 60.0], "rewind"),
            ([95.0, 100.0], "classic"),
            ([50.0, 120.0], "classic"),
        ] {
            let all = [classic(), contestant("rewind", rewind)];
            assert_eq!(chosen(&all), Some(expected), "{rewind:?}");
            let best = choose(&all).unwrap();
            let says_why_not = reasons(best, &all, "classic", true)
                .concat()
                .contains("(--rounds 20)");
            assert_eq!(says_why_not, expected == "classic", "{rewind:?}");
        }
    }

    #[test]
    fn numbers_that_got_worse_are_reasons_against() {
        let mib = |count: f64| vec![count * 1024.0 * 1024.0; 2];
        let mut all = [
            contestant("classic", [100.0, 100.0]),
            contestant("rewind", [50.0, 50.0]),
        ];
        for (place, p99, memory) in [(0, 2.0, 16.0), (1, 8.0, 48.0)] {
            let samples = &mut all[place].samples;
            samples.p99 = vec![p99; 2];
            samples.memory = mib(memory);
            samples.cold_start = vec![0.1; 2];
        }
        let text = reasons(&all[1], &all, "classic", true).concat();
        let expected = "Worse than on `classic`: p99 8.00 ms instead of 2.00 ms; memory per \
                        process 48.0 MiB instead of 16.0 MiB.";
        assert!(text.contains(expected), "{text}");
        // Slower by less than the measurement tells, and better.
        all[1].samples.p99 = vec![2.1; 2];
        all[1].samples.memory = mib(8.0);
        all[1].samples.rate = vec![2.0; 2];
        let text = reasons(&all[1], &all, "classic", true).concat();
        assert!(!text.contains("Worse"), "{text}");
        all[1].samples.rate = vec![0.5; 2];
        all[1].samples.cold_start = vec![0.5; 2];
        let text = reasons(&all[1], &all, "classic", true).concat();
        let expected = "Worse than on `classic`: requests/s 0.500/s instead of 1.00/s; cold start \
                        0.500 s instead of 0.100 s.";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn classic_with_failed_requests_is_no_baseline() {
        let mut all = [
            contestant("classic", [1.0, 1.0]),
            contestant("rewind", [50.0, 50.0]),
        ];
        all[0].samples.rate = vec![100.0; 2];
        all[0].failure = Some("503".into());
        assert_eq!(chosen(&all), Some("rewind"));
        let text = reasons(&all[1], &all, "classic", true).concat();
        assert!(!text.contains("on `classic`"), "{text}");
    }

    #[test]
    fn engine_without_isolation_is_named_and_not_chosen() {
        let all = [
            contestant("classic", [100.0, 100.0]),
            contestant("worker", [10.0, 10.0]),
        ];
        let best = choose(&all).unwrap();
        assert_eq!(best.entry.name, "classic");
        let reasons = reasons(best, &all, "classic", true).concat();
        assert!(
            reasons.contains("`worker` needs even less CPU (10.0 µs)"),
            "{reasons}"
        );
    }

    #[test]
    fn engine_with_other_answers_or_failures_is_not_chosen() {
        let mut rewind = contestant("rewind", [10.0, 10.0]);
        rewind.state = differs("/");
        let mut fork = contestant("fork", [10.0, 10.0]);
        fork.failure = Some("502".into());
        let mut all = [contestant("classic", [100.0, 100.0]), rewind, fork];
        assert_eq!(chosen(&all), Some("classic"));
        all[0].failure = Some("500".into());
        assert_eq!(chosen(&all), None);
    }
}
