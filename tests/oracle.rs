//! Does PHP answer the same under Surus as under php-fpm? Asks both, and php-cgi, the same questions.
//!
//! A topic is a file of cases in `oracle/cases`; allowed differences are in `oracle/exceptions.toml`.
//! `ORACLES=fpm,cgi` leaves Surus out, which shows whether the corpus itself is sound; `ORACLE_CASE=word` asks only the
//! cases whose names contain it. `booted::` asks the same of `rewind`, or of the engine that `ORACLE_ENGINE` names.
#![allow(clippy::unwrap_used)]

mod common;

mod oracle {
    pub mod answer;
    pub mod cgi;
    pub mod compare;
    pub mod corpus;
    pub mod exceptions;
    pub mod fastcgi;
    pub mod http;
    pub mod oracles;
    pub mod request;
    pub mod topic;
    pub mod vars;
    pub mod watch;
}

/// The engine that Surus runs PHP by: the usual one, or another that does as it does.
fn engine(usual: &str) -> String {
    match std::env::var("ORACLE_ENGINE") {
        Ok(engine) if usual != "classic" => engine,
        _ => usual.into(),
    }
}

use oracle::answer::Answer;
use oracle::compare::{Blind, differences};

/// A test for every file in `oracle/cases`.
macro_rules! topics {
    ($($topic:ident)*) => {
        $(#[test]
        fn $topic() {
            let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
            oracle::topic::check(&engine("classic"), stringify!($topic), cases);
        })*

        /// The same of an engine that boots a script, which runs the file that each event names.
        mod booted {
            $(#[test]
            fn $topic() {
                let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
                super::oracle::topic::check(&super::engine("rewind"), stringify!($topic), cases);
            })*
        }

        #[test]
        fn every_file_of_cases_is_a_topic() {
            let named = [$(concat!(stringify!($topic), ".toml")),*];
            for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/cases")).unwrap() {
                let name = file.unwrap().file_name();
                assert!(named.contains(&name.to_str().unwrap()), "nothing runs cases/{}", name.display());
            }
        }
    };
}

topics! { server urls get post cookies files input limits unread headers status buffers bodies sessions endings shown environment userini php_ini isolation finish gone }

/// The same of a process that lives on from event to event.
#[test]
fn worker_heeds_php_ini_for_every_event() {
    let cases = include_str!("oracle/cases/php_ini.toml");
    oracle::topic::check("worker", "php_ini", cases);
}

/// The same of php-fpm behind Surus, without the topics in which what differs is allowed for our own PHP alone, or is a matter of kept
/// connections (`fastcgi_finish_request()` twice).
macro_rules! of_stock {
    ($($topic:ident)*) => {
        mod stock {
            $(#[test]
            fn $topic() {
                let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
                super::oracle::topic::check("fpm", stringify!($topic), cases);
            })*
        }
    };
}

of_stock! { server urls get post cookies files input limits unread headers status buffers bodies sessions endings shown php_ini isolation gone }

fn answer() -> Answer {
    let output =
        b"Status: 404 Not Found\r\nX-A: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nbody";
    Answer::from_cgi(output, "GET").unwrap()
}

/// The parts in which an answer, changed by `change`, differs from the one it was.
fn found(change: impl FnOnce(&mut Answer)) -> Vec<String> {
    let mut changed = answer();
    change(&mut changed);
    let blind = Blind {
        masks: Vec::new(),
        keys: Vec::new(),
    };
    differences(&answer(), &changed, "GET", &blind)
        .into_iter()
        .map(|difference| difference.part)
        .collect()
}

#[test]
fn a_wrong_status_header_or_body_is_found() {
    assert_eq!(found(|answer| answer.status = 200), ["status"]);
    assert_eq!(found(|answer| answer.reason = "Gone".into()), ["reason"]);
    assert_eq!(found(|answer| answer.headers[0].1 = b"2".to_vec()), ["x-a"]);
    assert_eq!(found(|answer| drop(answer.headers.remove(0))), ["x-a"]);
    assert_eq!(
        found(|answer| answer.headers.push(("X-A".into(), b"1".to_vec()))),
        ["x-a"]
    );
    assert_eq!(
        found(|answer| answer.headers.push(("X-New".into(), b"1".to_vec()))),
        ["x-new"]
    );
    assert_eq!(found(|answer| answer.headers.swap(1, 2)), ["set-cookie"]);
    assert_eq!(
        found(|answer| answer
            .headers
            .push(("Content-Length".into(), b"5".to_vec()))),
        ["content-length"]
    );
    assert_eq!(found(|answer| answer.body[0] = b'B'), ["body"]);
    assert_eq!(found(|answer| answer.body.push(b'\n')), ["body"]);
    assert_eq!(found(|answer| answer.complete = false), ["body"]);
}

#[test]
fn what_no_client_can_tell_apart_is_not_a_difference() {
    assert!(found(|_| ()).is_empty());
    assert!(found(|answer| answer.headers.swap(0, 1)).is_empty());
    assert!(found(|answer| answer.headers[0].0 = "x-a".into()).is_empty());
    assert!(
        found(|answer| answer
            .headers
            .push(("Content-Length".into(), b"4".to_vec())))
        .is_empty()
    );
    assert!(found(|answer| answer.headers.push(("Date".into(), b"now".to_vec()))).is_empty());
}
