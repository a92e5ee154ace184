//! Compares Debian's packages of PHP applications on Surus with the same on Apache and nginx.
//!
//! Both run php-fpm. The tests compare statuses, headers, redirects, pages' links, and files that
//! must not be sent.
//!
//! An application is a file in `applications/cases`. `make test-applications` installs them all in
//! a Debian below `target/` and runs these tests there.
#![allow(clippy::unwrap_used)]

mod common;

mod applications {
    pub mod case;
    pub mod client;
    pub mod files;
    pub mod hosts;
}

use applications::case::Case;
use applications::client::Client;
use applications::files;
use applications::hosts::Hosts;

/// A test for every file in `applications/cases`.
macro_rules! applications {
    ($($name:ident)*) => {
        $(#[test]
        #[ignore = "needs the Debian of `make test-applications`"]
        fn $name() {
            let case = include_str!(concat!("applications/cases/", stringify!($name), ".toml"));
            check(stringify!($name), case);
        })*

        #[test]
        fn every_case_file_is_an_application() {
            let named = [$(concat!(stringify!($name), ".toml")),*];
            let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications/cases");
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

applications! { adminer cacti mediawiki phpldapadmin phpmyadmin roundcube shaarli tt_rss }

fn check(name: &str, text: &str) {
    let case = Case::parse(text);
    let hosts = Hosts::start(&case);
    let mut found = visits(&case, &hosts);
    found.extend(files::compare(&case, &hosts));
    let log = hosts.surus.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(
        found.is_empty(),
        "{name}: {} differences\n{}\nSurus's errors:\n{}",
        found.len(),
        found.join("\n"),
        errors.join("\n")
    );
}

/// Leads one client per server through the case's requests.
fn visits(case: &Case, hosts: &Hosts) -> Vec<String> {
    let mut setup = Client::new(&hosts.apache);
    for request in &case.setup {
        setup.ask(request);
    }
    let mut clients = hosts
        .all()
        .map(|(name, address)| (name, Client::new(address)));
    let mut found = Vec::new();
    for request in &case.requests {
        let [apache, nginx, surus] = clients
            .each_mut()
            .map(|(_, client)| client.ask(request).summary(case));
        // If the two oracles disagree, their configuration decides.
        if surus != apache && surus != nginx && !case.differs(request) {
            found.push(format!(
                "{request}\n--- Apache\n{apache}--- nginx\n{nginx}--- Surus\n{surus}"
            ));
        }
        if std::env::var_os("APPLICATIONS_SHOW").is_some() {
            eprintln!("=== {request}\n{surus}");
        }
    }
    found
}
