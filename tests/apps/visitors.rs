//! Runs Laravel and Symfony applications that could mix up two clients, on every engine that boots
//! a script. Each client must get the responses of `classic`, where nothing outlives a request.

use super::client::{Answer, Client};
use super::site::{Site, fixture};
use crate::common::Surus;

/// A request of one client.
pub enum Step {
    Get(usize, &'static str),
    Post(usize, &'static str, &'static [(&'static str, &'static str)]),
}

/// The number of clients in a conversation.
const VISITORS: usize = 3;

/// Sends the requests in turn, and returns the response to each step. Forms are posted with the
/// client's own token. Tokens are removed from the responses, so that two runs can be compared.
pub fn talk(surus: &Surus, steps: &[Step], token: (&str, &str)) -> Vec<String> {
    let visitors: Vec<Client> = (0..VISITORS).map(|_| Client::new(&surus.url)).collect();
    let (form, field) = token;
    steps
        .iter()
        .map(|step| match step {
            Step::Get(who, path) => said(surus, *who, path, &visitors[*who].get(path), field),
            Step::Post(who, path, fields) => {
                let token = visitors[*who].get(form).input(field);
                let fields = [fields, &[(field, token.as_str())][..]].concat();
                said(
                    surus,
                    *who,
                    path,
                    &visitors[*who].post(path, &fields),
                    field,
                )
            }
        })
        .collect()
}

fn said(surus: &Surus, who: usize, path: &str, answer: &Answer, field: &str) -> String {
    let text = answer.text();
    // Replaces the token of a form, whatever its length.
    let text = match text.split_once(&format!(r#"name="{field}""#)) {
        Some((before, after)) => {
            let after = after.split_once('>').map_or(after, |(_, after)| after);
            format!("{before}{after}")
        }
        None => text,
    };
    let headers: Vec<String> = ["location", "content-type"]
        .iter()
        .filter_map(|name| Some(format!("{:?}", answer.headers.get(*name)?)))
        .collect();
    format!(
        "visitor {who}, {path}: {} {} {headers:?}\n{text}",
        answer.status, answer.url
    )
    .replace(&surus.url, "")
    .replace(&surus.address, "")
}

/// Compares step by step, so that a failure shows the first difference.
#[track_caller]
pub fn same(classic: &[String], booted: &[String], what: &str) {
    for (classic, booted) in classic.iter().zip(booted) {
        assert_eq!(booted, classic, "{what}");
    }
    assert_eq!(classic.len(), booted.len());
}

/// Asserts that the application works: everything occurs in some response, and only the page that
/// throws fails.
#[track_caller]
pub fn sound(classic: &[String], everything: &[&str]) {
    for text in everything {
        assert!(
            classic.iter().any(|answer| answer.contains(text)),
            "{text:?} is in no response: {}",
            classic.join("\n")
        );
    }
    let failed: Vec<&String> = (classic.iter())
        .filter(|answer| answer.lines().next().unwrap_or("").contains(": 500 "))
        .collect();
    assert!(
        matches!(&failed[..], [one] if one.contains("/throws")),
        "{failed:?}"
    );
}

/// Adds the test application of a framework to its example.
pub fn overlay(site: Site, framework: &str) -> Site {
    site.copy(&fixture(framework), ".")
}
