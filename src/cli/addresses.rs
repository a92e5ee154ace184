//! The addresses of an application, bound before anything gives up root.

use std::net::UdpSocket;

use anyhow::bail;

use crate::cli::stdout;
use crate::config::Config;
use crate::engines;
use crate::fronts::http::{Address, Admission, Bound, Listener, Mode};

/// Sockets in one of two states: [`Bound`], and [`Listener`] in the runtime.
pub(super) struct Addresses<T> {
    pub http: Vec<T>,
    pub https: Vec<T>,
    /// Those of HTTP/3, at the ports of `https`.
    pub quic: Vec<UdpSocket>,
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
    if config.http.h3 && tls.listen.is_empty() {
        bail!("http.h3 is on but HTTP/3 needs TLS; set tls.listen = \":443\"");
    }
    if config.http.h3 && config.http.proxy_protocol {
        bail!(
            "http.h3 and http.proxy_protocol are on, but proxies cannot pass QUIC on with a PROXY \
             header; turn one of them off"
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
    let http = bind(listen, "--listen or http.listen")?;
    if !config.http.h3 {
        let https = bind(&tls.listen, "tls.listen")?;
        let quic = Vec::new();
        return Ok(Addresses { http, https, quic });
    }
    let pairs: anyhow::Result<Vec<_>> = (tls.listen.iter())
        .map(|address| Bound::bind_with_udp(address, "tls.listen"))
        .collect();
    let (https, quic) = pairs?.into_iter().unzip();
    Ok(Addresses { http, https, quic })
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
            quic: self.quic,
        })
    }
}

impl Addresses<Listener> {
    /// The ports of HTTP/3.
    pub fn quic_ports(&self) -> Vec<u16> {
        let ports = self
            .quic
            .iter()
            .filter_map(|socket| socket.local_addr().ok());
        ports.map(|address| address.port()).collect()
    }

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
