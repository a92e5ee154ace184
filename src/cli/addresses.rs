//! The addresses of an application, bound before anything gives up root.

use std::net::UdpSocket;

use anyhow::{Context, bail};

use super::inherited::InheritedSockets;
use crate::cli::stdout;
use crate::config::Config;
use crate::config::sites::SiteConfig;
use crate::engines;
use crate::fronts::address::Address;
use crate::fronts::http::{Admission, Bound, Listener, SocketFile, SocketMode, udp_error};

/// Sockets in one of two states: [`Bound`], and [`Listener`] in the runtime.
pub(super) struct Addresses<T> {
    pub http: Vec<T>,
    pub https: Vec<T>,
    /// Those of HTTP/3, at the ports of `https`.
    pub quic: Vec<UdpSocket>,
}

/// Checks settings about addresses, without binding any.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let (listen, tls) = (&config.http.listen, &config.tls);
    if listen.is_empty() && tls.listen.is_empty() {
        bail!("http.listen is empty; the application would be unreachable");
    }
    if tls.listen.is_empty() && !tls.certificate.is_empty() {
        bail!("tls.certificate is set but tls.listen is empty; set tls.listen = \":443\"");
    }
    let has_own = |site: &&SiteConfig| !site.config.tls.certificate.is_empty();
    if tls.listen.is_empty()
        && let Some(site) = config.sites.iter().find(has_own)
    {
        bail!(
            "site {} has tls.certificate but tls.listen is empty; set tls.listen = \":443\" at the \
             top level",
            site.name
        );
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
    let http = listen.iter().map(|address| ("http.listen", address));
    let https = tls.listen.iter().map(|address| ("tls.listen", address));
    let admin = config.admin.listen.iter();
    let admin = admin.map(|address| ("admin.listen", address));
    let all: Vec<_> = http.chain(https).chain(admin).collect();
    for (number, (setting, address)) in all.iter().enumerate() {
        let mut earlier = all[..number].iter();
        let Some((other_setting, other)) = earlier.find(|(_, other)| overlap(address, other))
        else {
            continue;
        };
        let (place, other) = (place(address), place(other));
        match setting == other_setting {
            true => bail!("{setting} has both {other} and {place}; remove one of them"),
            false => bail!(
                "{other_setting} is {other} and {setting} is {place}, which both need the same \
                 address; give {setting} another one"
            ),
        }
    }
    Ok(())
}

fn place(address: &Address) -> String {
    let name = address.to_string();
    name.trim_start_matches("http://").to_owned()
}

/// Whether only one of two sockets could listen.
fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => {
            let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
            let is_alike = one.is_ipv4() == other.is_ipv4();
            one.port() != 0
                && one.port() == other.port()
                && (one.ip() == other.ip() || is_any && is_alike)
        }
        (one, other) => one == other,
    }
}

/// Binds the addresses of the application, except for those of inherited sockets.
pub(super) fn bind(
    config: &Config,
    mut inherited: InheritedSockets,
) -> anyhow::Result<Addresses<Bound>> {
    check(config)?;
    let (listen, tls) = (&config.http.listen, &config.tls);
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let mut admission = Admission::default();
    if listen.iter().any(is_unix) {
        admission.group = engines::user(&config.engine)?.map(|user| user.gid);
        let default = admission.group.map(|_| SocketMode(0o660));
        admission.mode = config.http.socket_mode.or(default);
    }
    let mut bind = |addresses: &[Address], setting| -> anyhow::Result<Vec<Bound>> {
        let bind = |address| match inherited.stream(address) {
            Some(bound) => Ok(bound),
            None => Bound::bind(address, setting, admission),
        };
        addresses.iter().map(bind).collect()
    };
    let http = bind(listen, "--listen or http.listen")?;
    if !config.http.h3 {
        let https = bind(&tls.listen, "tls.listen")?;
        inherited.check_used()?;
        let quic = Vec::new();
        return Ok(Addresses { http, https, quic });
    }
    let pairs: anyhow::Result<Vec<_>> = (tls.listen.iter())
        .map(|address| bind_with_udp(address, &mut inherited))
        .collect();
    let (https, quic) = pairs?.into_iter().unzip();
    inherited.check_used()?;
    Ok(Addresses { http, https, quic })
}

/// The sockets of TCP and UDP of an address, of which both, one or none is inherited.
fn bind_with_udp(
    address: &Address,
    inherited: &mut InheritedSockets,
) -> anyhow::Result<(Bound, UdpSocket)> {
    const SETTING: &str = "tls.listen";
    let udp = match address {
        Address::Tcp(address) => inherited.udp(*address),
        Address::Unix(_) => None,
    };
    let stream = inherited.stream(address);
    if udp.is_none() && stream.is_none() {
        return Bound::bind_with_udp(address, SETTING);
    }
    let stream = match stream {
        Some(stream) => stream,
        None => Bound::bind(address, SETTING, Admission::default())?,
    };
    let local = stream.tcp_address();
    let local = local.with_context(|| format!("{address} is not a TCP address ({SETTING})"))?;
    let udp = match udp {
        Some(udp) => Bound::prepare_udp(udp),
        None => Bound::bind_udp(local),
    };
    Ok((
        stream,
        udp.map_err(|error| udp_error(error, local, SETTING))?,
    ))
}

impl Addresses<Bound> {
    /// As [`Bound::close`].
    pub fn close(self) -> Vec<SocketFile> {
        let all = self.http.into_iter().chain(self.https);
        all.filter_map(Bound::close).collect()
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
    pub fn names(&self) -> Vec<String> {
        let https = self.https.iter().map(|listener| {
            let name = listener.name();
            name.replacen("http://", "https://", 1)
        });
        self.http.iter().map(Listener::name).chain(https).collect()
    }
}

/// Says where the application is. A reader of JSON lines on stdout cannot parse another line.
pub(super) fn announce(names: Vec<String>, config: &Config) {
    let of_sites = config.sites.iter().map(|site| &site.config.access_log);
    let mut on_stdout = of_sites
        .chain([&config.access_log])
        .filter(|log| log.file.is_none());
    let is_json = on_stdout.any(|log| log.format.is_json()) || config.access_log.file.is_some();
    for address in names {
        match is_json {
            true => tracing::info!(address, "listening"),
            false => stdout::announce(format_args!("listening on {address}")),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_need_the_same_socket_are_rejected_by_setting() {
        let trouble = |http: &[&str], admin: &str| {
            let mut config = Config::default();
            config.http.listen = http.iter().map(|text| text.parse().unwrap()).collect();
            config.admin.listen = Some(admin.parse().unwrap());
            check(&config).err().map(|error| error.to_string())
        };
        for (http, admin, words) in [
            (
                &["127.0.0.1:8080"][..],
                "127.0.0.1:8080",
                "http.listen is 127.0.0.1:8080 and admin",
            ),
            (
                &[":8080"],
                "127.0.0.1:8080",
                "http.listen is 0.0.0.0:8080 and admin.listen is 127",
            ),
            (
                &["unix:/a"],
                "unix:/a",
                "which both need the same address; give admin.listen",
            ),
            (
                &["8080", ":8080"],
                "9000",
                "http.listen has both 127.0.0.1:8080 and 0.0.0.0:8080",
            ),
        ] {
            let message = trouble(http, admin).unwrap_or_default();
            assert!(message.contains(words), "{http:?} {admin}: {message}");
        }
        for (http, admin) in [
            (&["127.0.0.1:8080"][..], "127.0.0.1:8081"),
            (
                &["127.0.0.1:8080", "127.0.0.2:8080", "[::]:8080"],
                "127.0.0.3:8080",
            ),
            (&["127.0.0.1:0", "127.0.0.1:0"], "127.0.0.1:0"),
            (&["unix:/a"], "unix:/b"),
        ] {
            assert_eq!(trouble(http, admin), None);
        }
    }
}
