//! Tests that the oracle's corpus gets the same responses behind Lambda's services as behind
//! `surus serve`.

use regex::bytes::Regex;
use serde_json::Value;
use surus::emulator::http::HttpService;

use super::behind::Behind;
use super::exceptions::{self, Exceptions};
use crate::common::Surus;
use crate::common::engines::TestDir;
use crate::oracle::answer::Answer;
use crate::oracle::compare::{Blind, differences};
use crate::oracle::corpus::{Case, Step, Topic, Touch, load, write_scripts};
use crate::oracle::http;
use crate::oracle::watch::Watch;

/// One test for every file of cases, and for the files that run on further services.
macro_rules! topics {
    ($($topic:ident)*; $($elsewhere:ident)*; $($streamed:ident)*) => {
        $(#[test]
        fn $topic() {
            let cases = include_str!(concat!(
                "../../php/oracle/cases/",
                stringify!($topic),
                ".toml"
            ));
            check(stringify!($topic), cases, Mode::Buffered, &[HttpService::Url]);
        })*

        /// Cases that differ between the services' event formats.
        mod elsewhere {
            use super::*;

            $(#[test]
            fn $elsewhere() {
                let cases = include_str!(concat!(
                    "../../php/oracle/cases/",
                    stringify!($elsewhere),
                    ".toml"
                ));
                let services = [
                    HttpService::Http,
                    HttpService::Rest,
                    HttpService::Alb,
                    HttpService::AlbMulti,
                ];
                check(stringify!($elsewhere), cases, Mode::Buffered, &services);
            })*
        }

        /// Cases that differ in streamed responses.
        mod streamed {
            use super::*;

            $(#[test]
            fn $streamed() {
                let cases = include_str!(concat!(
                    "../../php/oracle/cases/",
                    stringify!($streamed),
                    ".toml"
                ));
                check(stringify!($streamed), cases, Mode::Stream, &[HttpService::Url]);
            })*
        }

        #[test]
        fn every_file_of_cases_is_a_topic() {
            // A function is not told that a client has left.
            let named = ["gone.toml", $(concat!(stringify!($topic), ".toml")),*];
            let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/php/oracle/cases");
            for file in std::fs::read_dir(cases).unwrap() {
                let name = file.unwrap().file_name();
                assert!(
                    named.contains(&name.to_str().unwrap()),
                    "no test runs cases/{}",
                    name.display()
                );
            }
        }
    };
}

topics! {
    server urls get post cookies files input limits unread headers status buffers bodies sessions
    endings shown environment userini php_ini isolation finish;
    get post cookies files headers status;
    bodies buffers cookies finish headers status
}

/// `lambda.mode`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Buffered,
    Stream,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Buffered => "buffered",
            Mode::Stream => "stream",
        }
    }
}

/// The two servers. The tokens replace `{who}` in requests and have the same length.
const SERVE: &str = "WHOisSRV";
const FUNCTION: &str = "WHOisFUN";

/// Panics with all differences of the topic.
fn check(topic: &str, text: &str, mode: Mode, services: &[HttpService]) {
    let Topic { ini, cases, .. } = load(topic, text);
    let home = TestDir::empty();
    write_scripts(&home.root.join("scripts"));
    cases
        .iter()
        .for_each(|case| case.write(&home.root, &home.state));
    let added = home.root.with_file_name("ini");
    std::fs::create_dir(&added).unwrap();
    std::fs::write(added.join("oracle.ini"), ini).unwrap();
    let minor = surus_php::EXECUTABLE.rsplit("surus-php").next().unwrap();
    let scan_dir = format!("/etc/php/{minor}/fpm/conf.d:{}", added.display());
    let env = [
        ("PHP_INI_SCAN_DIR", scan_dir.as_str()),
        ("SURUS_COMPRESS_ENABLED", "false"),
        ("SURUS_ENGINE_NAME", "classic"),
        ("SURUS_ENGINE_WORKERS", "1"),
        ("SURUS_LAMBDA_MODE", mode.name()),
    ];
    let serve = Surus::spawn(&home.root, &[], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    let function = Behind::start(&home.root, &env);
    let wanted = std::env::var("ORACLE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for &service in services {
        let exceptions = exceptions::load(service, mode);
        let mut trial = Trial {
            home: &home,
            serve: &serve,
            function: &function,
            service,
            address: match mode {
                Mode::Buffered => function.service(service),
                Mode::Stream => function.streaming_service(service),
            },
            exceptions: &exceptions,
        };
        for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
            let found = trial.run(case);
            if !found.is_empty() {
                failures.push(format!(
                    "== {service:?}, {}\n{}",
                    case.name,
                    found.join("\n")
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{topic}: {} cases failed\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

struct Trial<'a> {
    home: &'a TestDir,
    serve: &'a Surus,
    function: &'a Behind,
    service: HttpService,
    /// The service's address.
    address: String,
    exceptions: &'a Exceptions,
}

impl Trial<'_> {
    /// The differences, if any.
    fn run(&mut self, case: &Case) -> Vec<String> {
        let mut absences = self.exceptions.absence.iter();
        if absences.any(|absence| case.name.starts_with(&absence.cases)) {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        // Which exceptions were needed.
        let mut needed = vec![false; self.exceptions.difference.len()];
        let logged = self.function.log().len();
        let steps = case.steps();
        // With one worker each, the second time shows what the first has left behind.
        for number in 0..case.times.min(2) * steps.len() {
            let step = &steps[number % steps.len()];
            let request = case.request(step, "{who}");
            let mut say = |what: String| wrong.push(format!("   {what}\n{}", request.shown()));
            let reference = match self.ask(SERVE, case, step) {
                Ok(answer) => answer,
                Err(error) => {
                    say(format!("serve: {error}"));
                    continue;
                }
            };
            // Checks that the case works as intended; tests/php/oracle.rs checks the whole
            // response.
            let (status, expected) = (reference.status, step.status.unwrap_or(200));
            if status != expected {
                say(format!(
                    "serve: the case is about {expected}, and this is {status}"
                ));
            }
            match self.ask(FUNCTION, case, step) {
                Err(error) => say(format!("lambda: {error}")),
                Ok(answer) => {
                    let reference = self.carried(reference, &request.method);
                    let answer = self.carried(answer, &request.method);
                    let blind = self.blind(case, [&reference, &answer]);
                    for difference in differences(&reference, &answer, &request.method, &blind) {
                        if !self.excused(case, &difference.part, &mut needed) {
                            say(format!("{} differs\n{}", difference.part, difference.shown));
                        }
                    }
                }
            }
        }
        if let Some(needle) = case.log.as_ref().filter(|_| case.log_since.is_none()) {
            let is_logged = eventually(|| self.function.log()[logged..].contains(needle.as_str()));
            if !is_logged && !self.excused(case, "log", &mut needed) {
                let log = self.function.log();
                wrong.push(format!(
                    "   {needle:?} is not in the log:\n{}",
                    &log[logged..]
                ));
            }
        }
        for (exception, needed) in self.exceptions.difference.iter().zip(needed) {
            if exception.case == case.name && !needed {
                let part = &exception.part;
                wrong.push(format!("   unneeded exception for {part}"));
            }
        }
        wrong
    }

    /// Sends the request and creates the step's file.
    fn ask(&self, who: &str, case: &Case, step: &Step) -> Result<Answer, String> {
        match step.touch(&self.home.state, who) {
            Touch::Nothing => self.ask_until(who, case, step, None),
            Touch::During(watch) => self.ask_until(who, case, step, Some(watch)),
            Touch::Afterwards(file) => {
                let answer = self.ask_until(who, case, step, None);
                std::fs::write(file, "").unwrap();
                answer
            }
        }
    }

    /// Repeats the request until the step's condition holds, if it has one.
    fn ask_until(
        &self,
        who: &str,
        case: &Case,
        step: &Step,
        watch: Option<Watch>,
    ) -> Result<Answer, String> {
        let request = case.request(step, who);
        let address = match who {
            SERVE => &self.serve.address,
            _ => &self.address,
        };
        let mut answer = Err("never asked".to_string());
        eventually(|| {
            answer = http::ask(address, &request.wire(), &request.method, watch.clone());
            let said = answer.as_ref().map(|answer| &answer.body[..]);
            step.until
                .as_ref()
                .is_none_or(|until| said == Ok(until.as_bytes()))
        });
        answer
    }

    /// The part of a response that this service can carry.
    fn carried(&self, mut answer: Answer, method: &str) -> Answer {
        // Added by the service: the event's id, and the length of what it sends, which is zero
        // for HEAD.
        let length = answer.body.len().to_string();
        let is_own = |name: &str, value: &[u8]| match &name.to_ascii_lowercase()[..] {
            "x-amzn-requestid" => true,
            "content-length" => method == "HEAD" || value == length.as_bytes(),
            _ => false,
        };
        answer.headers.retain(|(name, value)| !is_own(name, value));
        // Each service has its own reason phrases.
        answer.reason.clear();
        if self.service == HttpService::Rest || self.service == HttpService::AlbMulti {
            return answer;
        }
        // All others have one value per name, and a separate field for cookies.
        let mut joined: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in answer.headers {
            let is_cookie = name.eq_ignore_ascii_case("set-cookie");
            let mut before = joined.iter_mut();
            match before.find(|(there, _)| !is_cookie && there.eq_ignore_ascii_case(&name)) {
                Some((_, all)) => all.extend([b", ", &value[..]].concat()),
                None => joined.push((name, value)),
            }
        }
        answer.headers = joined;
        answer
    }

    fn blind(&self, case: &Case, answers: [&Answer; 2]) -> Blind {
        let port = |address: &str| address.rsplit(':').next().unwrap().to_string();
        let (here, there) = (port(&self.serve.address), port(&self.address));
        let own = [
            format!("{SERVE}|{FUNCTION}"),
            format!(r"\b({here}|{there})\b"),
        ];
        let masks = case.mask.iter().chain(&own);
        let mut keys = Vec::new();
        if case.server_variables {
            let is_own = |name: &str| {
                let mut all = self.exceptions.variable.iter();
                all.any(|variable| variable.is(name))
            };
            for answer in answers {
                let object = serde_json::from_slice::<serde_json::Map<_, Value>>(&answer.body);
                keys.extend(object.unwrap_or_default().into_iter().map(|(name, _)| name));
            }
            keys.retain(|name| is_own(name));
        }
        Blind {
            masks: masks.map(|mask| Regex::new(mask).unwrap()).collect(),
            keys,
        }
    }

    fn excused(&self, case: &Case, part: &str, needed: &mut [bool]) -> bool {
        let mut all = self.exceptions.difference.iter();
        let at = all.position(|exception| exception.case == case.name && exception.part == part);
        if let Some(at) = at {
            needed[at] = true;
        }
        at.is_some()
    }
}

/// Whether `condition` holds within ten seconds.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..1000 {
        if condition() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}
