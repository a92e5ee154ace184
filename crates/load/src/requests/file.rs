//! Reads files of requests: one per line, as JSON, as a curl-like line, or as a bare URL.

use bytes::Bytes;
use serde_json::Value;

use super::{Mix, Request, weighted};
use crate::target::{Origin, Url};

/// How browsers and curl send a body of text.
const FORM: &str = "application/x-www-form-urlencoded";

/// Parses a file of requests. Empty lines and lines that begin with `#` are skipped. Paths without
/// a host belong to `base`. The error names the line.
pub fn parse(text: &str, base: Option<&Origin>) -> Result<Vec<Request>, String> {
    let mut requests = Vec::new();
    // Editors of Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request = match line.chars().next() {
            Some('{') => json(line, base),
            Some('[') => Err("a JSON line must be an object".into()),
            _ => words(line).and_then(|words| curl(&words, base)),
        };
        let request = request.and_then(|request| {
            // Wrong methods and headers, of which the run would not know the line.
            Mix::new(std::slice::from_ref(&request), true)?;
            Ok(request)
        });
        requests.push(request.map_err(|error| format!("line {}: {error}", index + 1))?);
    }
    match requests.is_empty() {
        true => Err("no line is a request; write a path, a URL or JSON, one per line".into()),
        false => Ok(requests),
    }
}

fn url(text: &str, base: Option<&Origin>) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| error.to_string())?;
    if text.starts_with('/') {
        let base = base.ok_or_else(|| format!("{text} has no host, and no URL was given"))?;
        url.origin = base.clone();
    }
    Ok(url)
}

/// `{"method": "POST", "url": "/login", "headers": {"Accept": "*/*"}, "body": "a=b", "weight": 2}`
fn json(line: &str, base: Option<&Origin>) -> Result<Request, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        // The line is known better here.
        let text = error.to_string().replace("at line 1 column", "in column");
        format!("no valid JSON: {text}")
    })?;
    let mut request = None;
    let entries = value.as_object().into_iter().flatten();
    if let Some(text) = value.get("url").and_then(Value::as_str) {
        request = Some(Request::get(url(text, base)?));
    }
    let mut request = request.ok_or("`url` is missing")?;
    if value.get("body").is_some() {
        request.method = "POST".into();
    }
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("url", _) => {}
            ("method", Value::String(method)) => request.method.clone_from(method),
            ("headers", Value::Object(headers)) => {
                for (name, value) in headers {
                    let value = value.as_str().ok_or(format!("header {name} is no text"))?;
                    request.headers.push((name.clone(), value.to_string()));
                }
            }
            ("body", Value::String(body)) => request.body = Bytes::from(body.clone()),
            // Other values are sent as the JSON that they are.
            ("body", body) => request.body = Bytes::from(body.to_string()),
            ("weight", Value::Number(weight)) => {
                let weight = weight
                    .as_u64()
                    .and_then(|weight| u32::try_from(weight).ok());
                request.weight = weight
                    .filter(|weight| *weight > 0)
                    .ok_or("invalid `weight`")?;
            }
            (key, _) => return Err(format!("unknown key or wrong type: `{key}`")),
        }
    }
    match value.get("body") {
        Some(Value::String(_)) => request.declare(FORM),
        Some(_) => request.declare("application/json"),
        None => {}
    }
    Ok(request)
}

/// `curl -X POST -H 'Accept: */*' -d a=b URL`, with or without `curl`, or nothing but `URL@3`.
fn curl(words: &[String], base: Option<&Origin>) -> Result<Request, String> {
    // In a line that is copied from elsewhere, an @ belongs to the URL.
    let may_have_weight = words.len() == 1;
    let mut words = words.iter().map(String::as_str).peekable();
    words.next_if_eq(&"curl");
    let (mut target, mut method, mut headers, mut data) = (None, None, Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word {
            "-X" | "--request" => method = Some(value()?.to_string()),
            "-H" | "--header" => {
                let header = value()?;
                let (name, value) = header
                    .split_once(':')
                    .ok_or_else(|| format!("-H {header}: `:` is missing"))?;
                if value.trim().is_empty() {
                    return Err(format!(
                        "-H {header} has no value, so curl would not send it; leave it out"
                    ));
                }
                headers.push((name.trim().to_string(), value.trim().to_string()));
            }
            "-d" | "--data" | "--data-ascii" | "--data-binary" => {
                let part = value()?;
                // curl sends the contents of that file.
                if part.starts_with('@') {
                    return Err(format!(
                        "{word} @FILE is not supported; write the body itself, or use a line of \
                         JSON"
                    ));
                }
                data.push(part);
            }
            "--data-raw" => data.push(value()?),
            "-I" | "--head" => method = Some("HEAD".into()),
            option if option.starts_with('-') => {
                return Err(format!(
                    "unknown option {option}; -X, -H, -d, --data-raw and -I are known"
                ));
            }
            text if target.is_none() => {
                let (address, weight) = match may_have_weight {
                    true => weighted(text)?,
                    false => (text, 1),
                };
                target = Some((url(address, base)?, weight));
            }
            text => {
                let first = target.map_or_else(String::new, |it: (Url, u32)| it.0.to_string());
                return Err(format!(
                    "two URLs, {first} and {text}; a method is written -X METHOD"
                ));
            }
        }
    }
    let (url, weight) = target.ok_or("the URL is missing")?;
    let mut request = Request::get(url);
    request.weight = weight;
    request.headers = headers;
    if !data.is_empty() {
        request.method = "POST".into();
        request.declare(FORM);
        request.body = Bytes::from(data.join("&"));
    }
    if let Some(method) = method {
        request.method = method;
    }
    Ok(request)
}

/// Splits a line as a shell does: quotes and backslashes, and nothing else.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let rest = characters.as_str();
        match (character, quote) {
            (character, Some(open)) if character == open => quote = None,
            // Within double quotes, a shell keeps the backslash of `\n`.
            ('\\', Some('"')) if !rest.starts_with(['$', '`', '"', '\\']) => {
                word.get_or_insert_default().push('\\');
            }
            // With escapes of its own.
            ('$', None) if rest.starts_with(['\'', '"']) => {
                return Err(
                    "`$` before a quote is not supported; write the request as JSON".into(),
                );
            }
            ('\\', None | Some('"')) => {
                let next = characters.next().ok_or("`\\` at the end")?;
                word.get_or_insert_default().push(next);
            }
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (character, None) if character.is_whitespace() => words.extend(word.take()),
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}
