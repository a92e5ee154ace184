//! The variables of a TLS connection for PHP, named as by Apache's mod_ssl.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, ServerConnection};

use super::x509;
use crate::fronts::http::transport::tls_session::TlsVariables;

/// What a handshake has agreed on.
pub struct Agreed<'a> {
    pub version: &'static str,
    /// None with HTTP/3: quinn does not say.
    pub suite: Option<CipherSuite>,
    /// None with HTTP/3, too.
    pub is_resumed: Option<bool>,
    pub server_name: Option<&'a str>,
    pub certificate: Option<&'a CertificateDer<'a>>,
}

/// The variables of a connection after its handshake.
pub fn from_connection(connection: &ServerConnection, asks_for_certificate: bool) -> TlsVariables {
    let agreed = Agreed {
        version: version(connection.protocol_version()),
        suite: connection.negotiated_cipher_suite().map(|it| it.suite()),
        is_resumed: Some(connection.handshake_kind() == Some(HandshakeKind::Resumed)),
        server_name: connection.server_name(),
        certificate: connection.peer_certificates().and_then(<[_]>::first),
    };
    from_agreed(&agreed, asks_for_certificate)
}

pub fn from_agreed(agreed: &Agreed<'_>, asks_for_certificate: bool) -> TlsVariables {
    let mut all: Vec<(Cow<'static, str>, String)> = Vec::with_capacity(6);
    let mut put = |name, value: String| all.push((Cow::Borrowed(name), value));
    put("SSL_PROTOCOL", agreed.version.into());
    if let Some(suite) = agreed.suite {
        let (name, bits) = cipher(suite);
        put("SSL_CIPHER", name);
        put("SSL_CIPHER_USEKEYSIZE", bits.into());
        put("SSL_CIPHER_ALGKEYSIZE", bits.into());
    }
    if let Some(is_resumed) = agreed.is_resumed {
        let resumed = if is_resumed { "Resumed" } else { "Initial" };
        put("SSL_SESSION_RESUMED", resumed.into());
    }
    if let Some(name) = agreed.server_name {
        put("SSL_TLS_SNI", name.into());
    }
    if asks_for_certificate {
        let certificate = agreed.certificate;
        put(
            "SSL_CLIENT_VERIFY",
            if certificate.is_some() {
                "SUCCESS"
            } else {
                "NONE"
            }
            .into(),
        );
        if let Some(certificate) = certificate {
            if let Some(about) = x509::parse(certificate) {
                put("SSL_CLIENT_S_DN", about.subject);
                put("SSL_CLIENT_I_DN", about.issuer);
                put("SSL_CLIENT_M_SERIAL", about.serial);
                put("SSL_CLIENT_V_START", date(about.not_before));
                put("SSL_CLIENT_V_END", date(about.not_after));
            }
            put("SSL_CLIENT_CERT", pem(certificate));
        }
    }
    all.into()
}

/// `TLSv1.3`
pub fn version(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    }
}

/// The name that OpenSSL gives a cipher suite, and the bits of its key.
fn cipher(suite: CipherSuite) -> (String, &'static str) {
    let name = format!("{suite:?}");
    let bits = if name.contains("AES_128") {
        "128"
    } else {
        "256"
    };
    let name = match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => {
            let (exchange, rest) = name
                .strip_prefix("TLS_")
                .and_then(|name| name.split_once("_WITH_"))
                .unwrap_or(("", &name));
            let rest = match rest {
                "CHACHA20_POLY1305_SHA256" => "CHACHA20-POLY1305".to_string(),
                other => other.replace("AES_", "AES").replace('_', "-"),
            };
            format!("{}-{rest}", exchange.replace('_', "-"))
        }
    };
    (name, bits)
}

/// As OpenSSL prints a time: `Feb  5 12:34:56 2124 GMT`.
fn date(seconds: i64) -> String {
    let since = u64::try_from(seconds).unwrap_or(0);
    let http = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(since));
    // `Sat, 05 Feb 2124 12:34:56 GMT`
    let parts: Vec<&str> = http.split_whitespace().collect();
    let [_, day, month, year, time, zone] = parts[..] else {
        return http;
    };
    format!(
        "{month} {:>2} {time} {year} {zone}",
        day.trim_start_matches('0')
    )
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(certificate);
    // Base64 is ASCII.
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_have_the_names_of_openssl() {
        use CipherSuite as Suite;
        for (suite, name, bits) in [
            (
                Suite::TLS13_AES_256_GCM_SHA384,
                "TLS_AES_256_GCM_SHA384",
                "256",
            ),
            (
                Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                "ECDHE-RSA-AES128-GCM-SHA256",
                "128",
            ),
            (
                Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                "256",
            ),
        ] {
            assert_eq!(cipher(suite), (name.to_string(), bits));
        }
    }

    #[test]
    fn dates_are_printed_as_by_openssl() {
        assert_eq!(date(4_862_810_096), "Feb  5 12:34:56 2124 GMT");
        assert_eq!(date(1_709_210_096), "Feb 29 12:34:56 2024 GMT");
    }
}
