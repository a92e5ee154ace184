//! Sends the requests of a flow, and writes the answers as text that can be compared.

use regex::Regex;

use super::script::{Request, Script, Step, Token};
use crate::client::{Answer, Client, Upload, urlencoded};

/// Headers that name the time, the connection or the server.
const IGNORED: [&str; 6] = [
    "date",
    "expires",
    "connection",
    "content-length",
    "transfer-encoding",
    "server",
];

/// Sends the requests one after the other, each with the cookies of its visitor, and returns the
/// answers.
pub fn play(url: &str, script: &Script, flow: &[Request]) -> Vec<String> {
    let visitors: Vec<Client> = (script.users.iter()).map(|_| Client::new(url)).collect();
    let token = script.token.as_ref();
    let masks = Masks::new(token.map(|token| token.field.as_str()));
    (flow.iter().zip(1..))
        .map(|(request, number)| {
            let (method, path) = request.step.target();
            let user = &script.users[request.visitor];
            let answer = send(&visitors[request.visitor], &request.step, token);
            let text = masks.text(&answer);
            format!("{number}. {user}, {method} {path}: {text}")
                .replace(url, "")
                .replace(url.trim_start_matches("http://"), "")
        })
        .collect()
}

fn send(client: &Client, step: &Step, token: Option<&Token>) -> Answer {
    let (method, path) = step.target();
    let mut headers: Vec<(&str, &str)> = (step.headers.iter())
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    if let Some(json) = &step.json {
        headers.push(("content-type", "application/json"));
        return client.send_as(method, path, &headers, json.clone().into_bytes());
    }
    let Some(form) = &step.form else {
        return client.send_as(method, path, &headers, Vec::new());
    };
    let mut fields: Vec<(&str, &str)> = (form.iter())
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let token = token.filter(|token| !form.contains_key(&token.field));
    let valid = token.map(|token| client.get(&token.page).ok().input(&token.field));
    if let (Some(token), Some(valid)) = (token, &valid) {
        fields.push((&token.field, valid));
    }
    if step.file {
        let file = Upload {
            field: "file",
            name: "elephant.png",
            mime: "image/png",
            bytes: include_bytes!("../elephant.png"),
        };
        return client.upload(path, &fields, &file);
    }
    headers.push(("content-type", "application/x-www-form-urlencoded"));
    client.send_as(method, path, &headers, urlencoded(&fields).into_bytes())
}

/// Finds what differs in each answer: tokens, times of comments, and what cookies contain.
struct Masks {
    token: Regex,
    cookie: Regex,
}

/// WordPress's tokens and times.
const WORDPRESS: &str = concat!(
    r"_wpnonce=\w+|moderation-hash=\w+|[?&]key=\w+|",
    r#""nonce":"\w+"|name="_wp\w*nonce"[^>]*>|"#,
    r"\w+ \d+, 20\d\d at \d+:\d\d [ap]m|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
);

impl Masks {
    fn new(field: Option<&str>) -> Masks {
        let token = match field {
            Some(field) => format!(r#"name="{}"[^>]*>"#, regex::escape(field)),
            None => WORDPRESS.to_string(),
        };
        Masks {
            token: Regex::new(&token).unwrap(),
            cookie: Regex::new("^([^=]+)=[^;]*|(?i)(expires|max-age)=[^;]*").unwrap(),
        }
    }

    /// Status, URL after redirects, headers and body.
    fn text(&self, answer: &Answer) -> String {
        let mut headers: Vec<String> = (answer.headers.iter())
            .filter(|(name, _)| !IGNORED.contains(&name.as_str()))
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes());
                let value = match name.as_str() {
                    "set-cookie" => self.cookie.replace_all(&value, "$1$2="),
                    _ => value,
                };
                format!("{name}: {value}\n")
            })
            .collect();
        headers.sort();
        let body = answer.text();
        let body = self.token.replace_all(&body, "TOKEN");
        let url = self.token.replace_all(&answer.url, "TOKEN");
        format!("{} {url}\n{}\n{body}", answer.status, headers.concat())
    }
}
