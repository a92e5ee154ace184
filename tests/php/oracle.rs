//! Differential tests against php-fpm: the same requests must get the same responses from php-fpm,
//! php-cgi and Surus.
//!
//! A topic is a file of cases in `oracle/cases`; `oracle/exceptions.toml` lists allowed
//! differences. `ORACLES=fpm,cgi` leaves Surus out, which checks the corpus itself.
//! `ORACLE_CASE=word` runs only the cases with the word in their names. `booted::` runs the topics
//! on `rewind`, or on the engine in `ORACLE_ENGINE`.

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

/// The engine of Surus: the usual one, or another that must behave the same.
fn engine(usual: &str) -> String {
    match std::env::var("ORACLE_ENGINE") {
        Ok(engine) if usual != "classic" => engine,
        _ => usual.into(),
    }
}

use answer::Answer;
use compare::{Blind, differences};

/// A test for every file in `oracle/cases`.
macro_rules! topics {
    ($($topic:ident)*) => {
        $(#[test]
        fn $topic() {
            let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
            topic::check(&engine("classic"), stringify!($topic), cases);
        })*

        /// The topics on an engine that boots a script, which runs the requested file for each
        /// event.
        mod booted {
            $(#[test]
            fn $topic() {
                let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
                super::topic::check(&super::engine("rewind"), stringify!($topic), cases);
            })*
        }

        #[test]
        fn every_case_file_is_a_topic() {
            let named = [$(concat!(stringify!($topic), ".toml")),*];
            let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/php/oracle/cases");
            for file in std::fs::read_dir(cases).unwrap() {
                let name = file.unwrap().file_name();
                assert!(
                    named.contains(&name.to_str().unwrap()),
                    "nothing runs cases/{}",
                    name.display()
                );
            }
        }
    };
}

topics! {
    server urls get post cookies files input limits unread headers status buffers bodies sessions
    endings shown environment userini php_ini isolation finish gone
}

/// The php_ini topic on a process that serves several events.
#[test]
fn worker_applies_php_ini_to_every_request() {
    let cases = include_str!("oracle/cases/php_ini.toml");
    topic::check("worker", "php_ini", cases);
}

/// The topics on php-fpm behind Surus. Excludes topics with differences that are allowed only for
/// surus-php, or that depend on kept connections (`fastcgi_finish_request()` twice).
macro_rules! on_external_engines {
    ($($topic:ident)*) => {
        mod external {
            $(#[test]
            fn $topic() {
                let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
                super::topic::check("fpm", stringify!($topic), cases);
            })*
        }
    };
}

on_external_engines! {
    server urls get post cookies files input limits unread headers status buffers bodies sessions
    endings shown php_ini isolation gone
}

fn answer() -> Answer {
    let output =
        b"Status: 404 Not Found\r\nX-A: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nbody";
    Answer::from_cgi(output, "GET").unwrap()
}

/// The parts that differ after `change` has modified an answer.
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
fn wrong_status_header_or_body_is_a_difference() {
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
fn equivalent_answers_are_not_a_difference() {
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
