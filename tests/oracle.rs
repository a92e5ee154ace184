//! Does PHP answer the same under Surus as under php-fpm? Asks both, and php-cgi, the same questions.
//!
//! A topic is a file of cases in `oracle/cases`; allowed differences are in `oracle/exceptions.toml`.
//! `SURUS_ORACLE=fpm,cgi` leaves Surus out, which shows whether the corpus itself is sound; `ORACLE_CASE=word` asks only the
//! cases whose names contain it.
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
}

/// A test for every file in `oracle/cases`.
macro_rules! topics {
    ($($topic:ident)*) => {
        $(#[test]
        fn $topic() {
            let cases = include_str!(concat!("oracle/cases/", stringify!($topic), ".toml"));
            oracle::topic::check(stringify!($topic), cases);
        })*

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

topics! { server urls get post cookies files input limits unread headers status buffers bodies sessions endings shown environment userini isolation finish }
