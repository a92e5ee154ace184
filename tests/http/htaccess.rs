//! Compares how `surus serve` and Apache apply `.htaccess` files.
//!
//! A site is a file in `htaccess/sites`: its files, its requests, and intended differences with
//! their reasons. `HTACCESS_SITE=name` compares only the sites whose names contain it.

mod apache;
mod client;
mod site;
mod slow;

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::common::Surus;
use apache::Apache;
use client::{Answer, ask};
use site::{Site, general_exception};

#[test]
fn htaccess_sites_respond_like_apache() {
    let wanted = std::env::var("HTACCESS_SITE").unwrap_or_default();
    let sites: Vec<Site> = Site::all()
        .into_iter()
        .filter(|site| site.name.contains(&wanted))
        .collect();
    assert!(!sites.is_empty(), "no site is called {wanted}");
    let apache = Apache::start(&sites);
    let differences = Mutex::new(Vec::new());
    let queue = Mutex::new(sites.iter());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(site) = queue.lock().unwrap().next() else {
                        return;
                    };
                    let found = compare(site, &apache);
                    differences.lock().unwrap().extend(found);
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    let count = differences.len();
    assert!(
        count == 0,
        "{count} differences:\n{}",
        differences.join("\n")
    );
}

fn compare(site: &Site, apache: &Apache) -> Vec<String> {
    let surus = Surus::serve(site.root.path(), &["--workers", "1", "--engine", "classic"]);
    let mut differences = Vec::new();
    let mut unused: BTreeSet<&str> = site.exceptions.keys().map(String::as_str).collect();
    let requests = site.requests.iter().chain(&site.exact);
    for (request, has_type) in requests
        .map(|request| (request, false))
        .chain(site.types.iter().map(|request| (request, true)))
    {
        let ask = |address: &str| {
            let answer = ask(address, &site.host(), request);
            match has_type {
                true => answer,
                false => Answer {
                    media_type: String::new(),
                    ..answer
                },
            }
        };
        let ours = ask(&surus.address);
        // Apache runs PHP by type or by handler; `.htaccess` files can switch off either.
        let theirs = [&apache.by_type, &apache.by_handler].map(|address| ask(address));
        let exception = site.exceptions.get(request.as_str());
        let declared = exception.is_some_and(|exception| {
            theirs
                .iter()
                .any(|answer| answer.to_string() == exception.apache)
                && ours.to_string() == exception.surus
        });
        let both_run = theirs.iter().all(Answer::is_run);
        let same = theirs.contains(&ours) && (!ours.is_run() || both_run);
        if declared && !same {
            unused.remove(request.as_str());
            continue;
        }
        let is_general = |answer| {
            !site.exact.contains(request) && general_exception(request, answer, &ours).is_some()
        };
        if same || theirs.iter().any(is_general) && !ours.is_run() {
            continue;
        }
        differences.push(format!(
            "{}: {request}\n    \
             Apache by type:    {}\n    \
             Apache by handler: {}\n    \
             Surus:             {ours}",
            site.name, theirs[0], theirs[1],
        ));
    }
    for request in unused {
        differences.push(format!(
            "{}: {request} is listed as an exception, but does not differ as listed",
            site.name
        ));
    }
    differences
}
