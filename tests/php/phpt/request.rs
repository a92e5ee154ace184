//! Builds the HTTP request from a test's sections.

use super::sections::Phpt;

/// The bytes to send and the method. An error says why the request is impossible.
pub fn request(test: &Phpt) -> Result<(Vec<u8>, String), String> {
    let mut env: Vec<(String, String)> = Vec::new();
    for line in test.text("ENV").unwrap_or_default().lines() {
        if let Some((name, value)) = line.split_once('=') {
            env.push((name.trim().into(), value.trim().into()));
        }
    }
    let mut take = |name: &str| {
        let at = env.iter().position(|(other, _)| other == name)?;
        Some(env.remove(at).1)
    };
    let script = format!("/{}", test.script());
    // A test without it requests its own name.
    let path = take("SCRIPT_NAME").unwrap_or_else(|| script.clone());
    let info = take("PATH_INFO").unwrap_or_default();
    let mut target =
        take("REQUEST_URI").unwrap_or_else(|| format!("{}{info}", encode(path.as_bytes())));
    if path != script {
        return Err("claims another SCRIPT_NAME than its own".into());
    }
    let query = take("QUERY_STRING").map(String::into_bytes);
    let query = query.or_else(|| test.get("GET").map(|query| query.trim_ascii().to_vec()));
    if let Some(query) = query.filter(|query| !query.is_empty() && !target.contains('?')) {
        target = format!("{target}?{}", encode(&query));
    }
    let mut kind = take("CONTENT_TYPE");
    let mut method = take("REQUEST_METHOD");
    let mut body = None;
    for (section, default) in [("POST_RAW", "POST"), ("PUT", "PUT")] {
        if let Some(raw) = test.get(section) {
            let mut lines = Vec::new();
            for line in raw.trim_ascii().split(|byte| *byte == b'\n') {
                match content_type(line).filter(|_| kind.is_none()) {
                    Some(value) => kind = Some(value),
                    None => lines.push(line),
                }
            }
            body = Some(lines.join(&b'\n'));
            method = method.or(Some(default.into()));
        }
    }
    if let Some(form) = test
        .get("POST")
        .filter(|form| !form.trim_ascii().is_empty())
    {
        body = Some(form.trim_ascii().to_vec());
        kind = kind.or(Some("application/x-www-form-urlencoded".into()));
        method = method.or(Some("POST".into()));
    }
    if test.get("GZIP_POST").or(test.get("DEFLATE_POST")).is_some() {
        return Err("a compressed request body, which is PHP's own runner's to make".into());
    }
    let method = method.unwrap_or_else(|| "GET".into());
    let mut head =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if let Some(kind) = kind {
        head += &format!("Content-Type: {kind}\r\n");
    }
    for (name, value) in env {
        let Some(name) = name.strip_prefix("HTTP_") else {
            return Err(format!("sets the environment variable {name}"));
        };
        head += &format!("{}: {value}\r\n", name.replace('_', "-"));
    }
    if let Some(body) = &body {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let mut bytes = head.into_bytes();
    // Bytes, because some tests contain invalid text.
    let cookie = test.get("COOKIE").map(|cookie| cookie.trim_ascii());
    if let Some(cookie) = cookie.filter(|cookie| !cookie.is_empty()) {
        // Several lines in the file form one header.
        let cookie = cookie.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let cookie = cookie.collect::<Vec<_>>().join(&b' ');
        bytes.extend([b"Cookie: ", &cookie[..], b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body.unwrap_or_default());
    Ok((bytes, method))
}

fn content_type(line: &[u8]) -> Option<String> {
    let (name, value) = line.split_at_checked("content-type:".len())?;
    let named = name.eq_ignore_ascii_case(b"content-type:");
    named.then(|| String::from_utf8_lossy(value).trim().to_string())
}

/// Encodes characters that a client cannot send literally.
fn encode(text: &[u8]) -> String {
    let encode = |byte: u8| match byte {
        b'!'..=b'~' if !b"\"#<>\\^`{|}".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.iter().copied().map(encode).collect()
}
