//! The addresses of an application, bound before anything gives up root.

use anyhow::bail;

use crate::cli::stdout;
use crate::config::Config;
use crate::engines;
use crate::fronts::http::{Address, Admission, Bound, Listener, Mode};

/// Sockets in one of two states: [`Bound`], and [`Listener`] in the runtime.
pub(super) struct Addresses<T> {
    pub http: Vec<T>,
    pub https: Vec<T>,
}

/// Binds the addresses of the application.
pub(super) fn bind(config: &Config) -> anyhow::Result<Addresses<Bound>> {
    let (listen, tls) = (&config.http.listen, &config.tls);
    if listen.is_empty() && tls.listen.is_empty() {
        bail!("http.listen is empty; the application would be unreachable");
    }
    if tls.listen.is_empty() && !tls.certificate.is_empty() {
        bail!("tls.certificate is set but tls.listen is empty; set tls.listen = \":443\"");
    }
    if config.http.proxy_protocol && config.http.trusted_proxies.is_empty() {
        bail!(
            "http.proxy_protocol is on but http.trusted_proxies is empty, so no client could \
             connect; name the proxies there"
        );
    }
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let mut admission = Admission::default();
    if listen.iter().any(is_unix) {
        admission.group = engines::user(&config.engine)?.map(|user| user.gid);
        let default = admission.group.map(|_| Mode(0o660));
        admission.mode = config.http.socket_mode.or(default);
    }
    let bind = |addresses: &[Address], setting| -> anyhow::Result<Vec<Bound>> {
        let bind = |address| Bound::bind(address, setting, admission);
        addresses.iter().map(bind).collect()
    };
    Ok(Addresses {
        http: bind(listen, "--listen or http.listen")?,
        https: bind(&tls.listen, "tls.listen")?,
    })
}

impl Addresses<Bound> {
    /// Leaves the removal of socket files to another process.
    pub fn leave_files(&mut self) {
        self.http.iter_mut().for_each(Bound::leave_file);
    }

    /// Accepts connections in the caller's runtime.
    pub fn listen(self) -> anyhow::Result<Addresses<Listener>> {
        let listen = |all: Vec<Bound>| -> anyhow::Result<Vec<Listener>> {
            all.into_iter().map(Bound::listen).collect()
        };
        Ok(Addresses {
            http: listen(self.http)?,
            https: listen(self.https)?,
        })
    }
}

impl Addresses<Listener> {
    /// The addresses as URLs.
    fn names(&self) -> impl Iterator<Item = String> {
        let https = self.https.iter().map(|listener| {
            let name = listener.name();
            name.replacen("http://", "https://", 1)
        });
        self.http.iter().map(Listener::name).chain(https)
    }

    /// Says where the application is. A reader of JSON lines on stdout cannot parse another line.
    pub fn announce(&self, is_json: bool) {
        for address in self.names() {
            match is_json {
                true => tracing::info!(address, "listening"),
                false => stdout::announce(format_args!("listening on {address}")),
            }
        }
    }
}

/// The configured addresses as URLs.
pub(super) fn configured(config: &Config) -> String {
    let https = |address: &Address| address.to_string().replacen("http://", "https://", 1);
    let http = config.http.listen.iter().map(ToString::to_string);
    let all: Vec<String> = http.chain(config.tls.listen.iter().map(https)).collect();
    all.join(", ")
}
