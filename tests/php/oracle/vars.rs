//! The CGI variables of a request: nginx's `fastcgi_params`, its PHP example, and its rules for
//! headers.

use std::path::Path;

use super::request::Request;

/// Name and value, in nginx's order.
pub type Vars = Vec<(String, Vec<u8>)>;

/// The file that a URL path refers to.
struct Target {
    /// Decoded, without dot segments and repeated slashes, with the index file: `$document_uri`.
    uri: Vec<u8>,
    script_name: Vec<u8>,
    path_info: Vec<u8>,
}

/// `root` is absolute; `server` is the local `address:port` of the request.
pub fn cgi_variables(request: &Request, root: &Path, server: &str) -> Vars {
    // A target may be a complete URL (RFC 9112, 3.2.2); nginx uses its path.
    let uri = match request.target.strip_prefix("http://") {
        Some(rest) => &rest[rest.find('/').unwrap_or(rest.len())..],
        None => &request.target,
    };
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let target = resolve(path, root);
    let root = root.to_str().unwrap();
    let (address, port) = server.rsplit_once(':').unwrap();
    let host = request.all("host").next().unwrap_or_default();
    let mut vars: Vars = Vec::new();
    let mut set = |name: &str, value: &[u8]| vars.push((name.to_string(), value.to_vec()));

    set("QUERY_STRING", query.as_bytes());
    set("REQUEST_METHOD", request.method.as_bytes());
    if let Some(content_type) = request.all("content-type").next() {
        set("CONTENT_TYPE", content_type.as_bytes());
    }
    if let Some(length) = request.content_length() {
        set("CONTENT_LENGTH", length.as_bytes());
    }
    set(
        "SCRIPT_FILENAME",
        &[root.as_bytes(), &target.script_name].concat(),
    );
    set("SCRIPT_NAME", &target.script_name);
    // nginx's example sends this variable even if it is empty.
    set("PATH_INFO", &target.path_info);
    if !target.path_info.is_empty() {
        set(
            "PATH_TRANSLATED",
            &[root.as_bytes(), &target.path_info].concat(),
        );
    }
    set("REQUEST_URI", uri.as_bytes());
    set("DOCUMENT_URI", &target.uri);
    set("DOCUMENT_ROOT", root.as_bytes());
    set("SERVER_PROTOCOL", request.protocol.as_bytes());
    set("REQUEST_SCHEME", b"http");
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set("SERVER_SOFTWARE", b"oracle");
    set("REMOTE_ADDR", b"127.0.0.1");
    set("REMOTE_PORT", b"40000");
    set("SERVER_ADDR", address.as_bytes());
    set("SERVER_PORT", port.as_bytes());
    set("SERVER_NAME", host_name(host).as_bytes());
    // Required by php-cgi (cgi.force_redirect), not part of nginx's.
    set("REDIRECT_STATUS", b"200");

    let mut seen: Vec<String> = Vec::new();
    for (name, _) in &request.headers {
        let name = name.to_ascii_lowercase();
        // `Proxy` would become HTTP_PROXY, which HTTP clients use (httpoxy). nginx drops names with
        // other characters than letters, digits and hyphens, because `X_A` could pass for `X-A`.
        // The CONTENT_ variables replace their headers (RFC 3875, 4.1.18).
        let hidden = ["proxy", "content-type", "content-length"].contains(&name.as_str())
            || name
                .bytes()
                .any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-');
        if hidden || seen.contains(&name) {
            continue;
        }
        let separator = if name == "cookie" { "; " } else { ", " };
        let value = request.all(&name).collect::<Vec<_>>().join(separator);
        set(
            &format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")),
            value.as_bytes(),
        );
        seen.push(name);
    }
    vars
}

/// The host of a `Host` header, which may have a port or be a bracketed IPv6 address.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn resolve(path: &str, root: &Path) -> Target {
    let decoded = decode(path.as_bytes());
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut uri = Vec::new();
    for segment in &segments {
        uri.push(b'/');
        uri.extend_from_slice(segment);
    }
    if decoded.ends_with(b"/") {
        uri.push(b'/');
    }
    let directory = uri.ends_with(b"/") && root.join(as_path(&uri[1..])).is_dir();
    if directory {
        uri.extend_from_slice(b"index.php");
    }
    // fastcgi_split_path_info ^(.+?\.php)(/.*)$;
    let split = (0..uri.len())
        .find(|&at| {
            uri[..at].ends_with(b".php")
                && uri[at] == b'/'
                && root.join(as_path(&uri[1..at])).is_file()
        })
        .unwrap_or(uri.len());
    Target {
        script_name: uri[..split].to_vec(),
        path_info: uri[split..].to_vec(),
        uri,
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let hex = text
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if text[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(text[at]);
                at += 1;
            }
        }
    }
    decoded
}
