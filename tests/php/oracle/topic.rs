//! Runs the cases of one topic on every oracle and reports all differences.

use regex::bytes::Regex;

use super::answer::Answer;
use super::compare::{Blind, differences};
use super::corpus::{Case, Step, Touch, load, write_scripts};
use super::exceptions::{self, Exceptions};
use super::oracles::{Name, Oracles, eventually};
use super::watch::Watch;
use crate::common::php::is_since;

/// Panics with all differences of the topic when Surus uses `engine`.
pub fn check(engine: &str, topic: &str, text: &str) {
    let read = load(topic, text);
    // A booted script has the settings of its own directory; the `.user.ini` of a requested URL is
    // not read, and Surus rejects one that sets a firewall.
    let asked_at_all = |case: &&Case| engine == "classic" || !case.has_user_ini();
    let cases: Vec<_> = read.cases.iter().filter(asked_at_all).collect();
    let mut oracles = Oracles::start(engine, &read, |root, state| {
        write_scripts(&root.join("scripts"));
        cases.iter().for_each(|case| case.write(root, state));
    });
    let exceptions = exceptions::load(engine);
    let wanted = std::env::var("ORACLE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut asked = 0;
    for case in cases.into_iter().filter(|case| case.name.contains(&wanted)) {
        asked += 1;
        let found = Trial {
            case,
            oracles: &mut oracles,
            exceptions: &exceptions,
        }
        .run();
        if !found.is_empty() {
            failures.push(format!("== {}\n{}", case.name, found.join("\n")));
        }
    }
    println!("{topic}: {asked} cases");
    // From engine.verify_restore; the worker exits after its response.
    if oracles.log(Name::Surus).contains("memory differs") {
        failures.push(oracles.log(Name::Surus));
    }
    assert!(
        failures.is_empty(),
        "{topic}: {} of {asked} cases failed\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

struct Trial<'a> {
    case: &'a Case,
    oracles: &'a mut Oracles,
    exceptions: &'a Exceptions,
}

impl Trial<'_> {
    /// Returns all failures.
    fn run(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        // The exceptions that were needed.
        let mut needed = vec![false; self.exceptions.difference.len()];
        let mut others = self.oracles.others();
        others.retain(|&oracle| !self.absent(oracle));
        let all: Vec<Name> = [Name::Fpm]
            .into_iter()
            .chain(others.iter().copied())
            .collect();
        let logged: Vec<usize> = all
            .iter()
            .map(|&name| self.oracles.log(name).len())
            .collect();

        let steps = self.case.steps();
        for number in 0..self.case.times * steps.len() {
            let step = &steps[number % steps.len()];
            if number % steps.len() == 0 && !wrong.is_empty() {
                // Another round would give the same failures.
                break;
            }
            let request = self.case.request(step, "{who}");
            let mut say = |oracle: Name, what: String| {
                wrong.push(format!("   {oracle:?}: {what}\n{}", request.shown()))
            };
            let reference = match self.ask(Name::Fpm, step) {
                Ok(answer) => answer,
                Err(error) => {
                    say(Name::Fpm, error);
                    continue;
                }
            };
            for what in step.unexpected(&reference) {
                say(Name::Fpm, what);
            }
            for &oracle in &others {
                // A php-cgi has no request before.
                if oracle == Name::Cgi && number >= steps.len() {
                    continue;
                }
                match self.ask(oracle, step) {
                    Err(error) => say(oracle, error),
                    Ok(answer) => {
                        for difference in
                            differences(&reference, &answer, &request.method, &self.blind(oracle))
                        {
                            if !self.excused(oracle, &difference.part, &mut needed) {
                                say(
                                    oracle,
                                    format!("{} differs\n{}", difference.part, difference.shown),
                                );
                            }
                        }
                    }
                }
            }
        }

        for (&oracle, &from) in all.iter().zip(&logged) {
            let mut new = String::new();
            let since = self.case.log_since.as_deref();
            match self.case.log.as_ref().filter(|_| is_since(since)) {
                Some(needle) => {
                    let logged = eventually(|| {
                        new = self.oracles.log(oracle)[from..].to_string();
                        new.contains(needle.as_str())
                    });
                    if !logged && !self.excused(oracle, "log", &mut needed) {
                        wrong.push(format!(
                            "   {oracle:?}: {needle:?} is not in the log:\n{new}"
                        ));
                    }
                }
                None => {
                    new.push_str(&self.oracles.log(oracle)[from..]);
                    // This is a bug of the test script, not of an oracle.
                    if oracle == Name::Fpm && new.contains("PHP ") {
                        wrong.push(format!("   {oracle:?}: unexpected in the log:\n{new}"));
                    }
                }
            }
        }

        for (exception, needed) in self.exceptions.difference.iter().zip(needed) {
            if exception.case == self.case.name && others.contains(&exception.oracle) && !needed {
                wrong.push(format!(
                    "   {:?}: the exception for {} is not needed",
                    exception.oracle, exception.part
                ));
            }
        }
        wrong
    }

    /// Sends the step's request as `oracle`, and creates the step's file.
    fn ask(&mut self, oracle: Name, step: &Step) -> Result<Answer, String> {
        match step.touch(&self.oracles.state, oracle.token()) {
            Touch::Nothing => self.ask_until(oracle, step, None),
            Touch::During(watch) => {
                let answer = self.ask_until(oracle, step, Some(watch.clone()));
                match watch.leaves && watch.file.exists() {
                    true => Ok(Answer::unread()),
                    false => answer,
                }
            }
            Touch::Afterwards(file) => {
                let answer = self.ask_until(oracle, step, None);
                std::fs::write(file, "").unwrap();
                answer
            }
        }
    }

    /// Repeats the request if the step has `until`.
    fn ask_until(
        &mut self,
        oracle: Name,
        step: &Step,
        watch: Option<Watch>,
    ) -> Result<Answer, String> {
        let request = self.case.request(step, oracle.token());
        let Some(until) = &step.until else {
            return self.oracles.ask(oracle, &request, watch);
        };
        let mut answer = Err("never asked".to_string());
        eventually(|| {
            answer = self.oracles.ask(oracle, &request, watch.clone());
            matches!(&answer, Ok(answer) if answer.body == until.as_bytes())
        });
        match answer {
            Ok(answer) if answer.body != until.as_bytes() => Err(format!(
                "it never was {until:?}, but {:?}",
                String::from_utf8_lossy(&answer.body)
            )),
            answer => answer,
        }
    }

    fn blind(&self, oracle: Name) -> Blind {
        let tokens = format!("{}|{}", Name::Fpm.token(), oracle.token());
        let masks = self
            .case
            .mask
            .iter()
            .chain([&tokens])
            .map(|mask| Regex::new(mask).unwrap())
            .collect();
        let keys = match self.case.server_variables {
            true => self
                .exceptions
                .variable
                .iter()
                .map(|variable| variable.name.clone())
                .collect(),
            false => Vec::new(),
        };
        Blind { masks, keys }
    }

    /// Whether the oracle skips this case.
    fn absent(&self, oracle: Name) -> bool {
        self.exceptions
            .absence
            .iter()
            .any(|absence| absence.oracle == oracle && self.case.name.starts_with(&absence.cases))
    }

    fn excused(&self, oracle: Name, part: &str, needed: &mut [bool]) -> bool {
        let at = self.exceptions.difference.iter().position(|exception| {
            exception.case == self.case.name && exception.oracle == oracle && exception.part == part
        });
        if let Some(at) = at {
            needed[at] = true;
        }
        at.is_some()
    }
}
