//! Helpers for tests of events: read an event, and show what PHP would see.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use surus::engines::cgi::server_vars;
use surus::engines::cgi::server_vars::Variables;
use surus::event::{Body, Event, Script};
use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{self, EventFormat, HttpEvent};

/// Reads an event that must be a request.
pub fn read(event: &str) -> HttpEvent {
    read_with(event, &Settings::default())
}

pub fn read_with(event: &str, settings: &Settings) -> HttpEvent {
    http_event::read(event.as_bytes(), settings)
        .unwrap_or_else(|malformed| panic!("{malformed}\n{event}"))
        .unwrap_or_else(|| panic!("not taken for HTTP: {event}"))
}

/// The error of an event that must not be a request.
pub fn malformed(event: &str) -> String {
    match http_event::read(event.as_bytes(), &Settings::default()) {
        Err(malformed) => malformed.to_string(),
        Ok(read) => panic!("{event} is {read:?}"),
    }
}

/// Settings as in `surus.toml`.
pub fn settings(toml: &str) -> Settings {
    toml::from_str(toml).unwrap()
}

pub fn target(event: &HttpEvent) -> &str {
    event.request.uri().path_and_query().unwrap().as_str()
}

pub fn body(event: &HttpEvent) -> &[u8] {
    match event.request.body() {
        Body::Empty => b"",
        Body::Memory(bytes) => bytes,
        Body::Spooled { .. } | Body::Streamed { .. } => panic!("not in memory"),
    }
}

/// `$_SERVER`, with a front controller as the script.
pub fn server(event: HttpEvent) -> BTreeMap<String, String> {
    let event = Event {
        id: 1,
        request: event.request,
        script: Script {
            root: "/app/public".into(),
            filename: Path::new("/app/public/index.php").into(),
            name: "/index.php".into(),
            path_info: "".into(),
            query: None,
            rewritten: None,
        },
        origin: event.origin,
        variables: Vec::new(),
        deadline: Instant::now(),
        idle_timeout: None,
        spool: None,
        completion_token: None,
        early_hints: None,
    };
    let mut server = Server(BTreeMap::new());
    server_vars::each(&event, &mut server);
    server.0
}

/// The entries of `$_SERVER` that depend on the event.
pub fn show(event: HttpEvent) -> String {
    const OURS: [&str; 9] = [
        "DOCUMENT_ROOT",
        "DOCUMENT_URI",
        "FCGI_ROLE",
        "GATEWAY_INTERFACE",
        "PATH_INFO",
        "REDIRECT_STATUS",
        "SCRIPT_FILENAME",
        "SCRIPT_NAME",
        "SERVER_SOFTWARE",
    ];
    let format = event.format;
    let content = String::from_utf8_lossy(body(&event)).into_owned();
    let mut shown = format!("{format}\n");
    for (name, value) in server(event) {
        if !OURS.contains(&&*name) {
            writeln!(shown, "{name}={value}").unwrap();
        }
    }
    writeln!(shown, "\n{content:?}").unwrap();
    shown
}

/// A response's header as from an engine.
pub fn head(status: u16, headers: &[(&str, &[u8])]) -> http::response::Parts {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

pub const FORMATS: [EventFormat; 9] = [
    EventFormat::Rest,
    EventFormat::HttpApiV1,
    EventFormat::HttpApiV2,
    EventFormat::FunctionUrl,
    EventFormat::Alb { multi_value: false },
    EventFormat::Alb { multi_value: true },
    EventFormat::LatticeV1,
    EventFormat::LatticeV2,
    EventFormat::WebSocket,
];

struct Server(BTreeMap<String, String>);

impl Variables for Server {
    fn put(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name).into_owned();
        let value = String::from_utf8_lossy(value).into_owned();
        assert!(self.0.insert(name.clone(), value).is_none(), "{name} twice");
    }
}
