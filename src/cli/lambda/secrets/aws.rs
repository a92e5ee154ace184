//! Signed requests to AWS's JSON services, with the credentials of the environment.

use std::env;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// A service and its action.
pub struct Service {
    pub name: &'static str,
    /// `X-Amz-Target`.
    pub action: &'static str,
    /// The variable that overrides the endpoint, as in AWS's SDKs.
    pub endpoint: &'static str,
}

/// Credentials and region.
pub struct Account {
    credentials: Credentials,
    region: String,
}

/// Half of the ten seconds that a start may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of a response. A secret has at most 64 KiB.
const LARGEST: usize = 1 << 20;

impl Account {
    pub fn of_environment() -> anyhow::Result<Account> {
        let needed = |name: &str| {
            text(name).with_context(|| {
                format!("environment variable {name} is not set; Lambda sets it for every function")
            })
        };
        let credentials = Credentials::new(
            needed("AWS_ACCESS_KEY_ID")?,
            needed("AWS_SECRET_ACCESS_KEY")?,
            text("AWS_SESSION_TOKEN"),
            None,
            "environment",
        );
        let region = match text("AWS_REGION") {
            Some(region) => region,
            None => needed("AWS_DEFAULT_REGION")?,
        };
        Ok(Account {
            credentials,
            region,
        })
    }

    /// Sends a request and returns the response. Errors contain only AWS's own message, never the
    /// body.
    pub async fn ask(&self, service: &Service, asked: &Value) -> anyhow::Result<Value> {
        let address = self.address(service);
        let asking = self.send(service, &address, asked);
        let (status, body) = tokio::time::timeout(TIMEOUT, asking)
            .await
            .map_err(|_| {
                anyhow!(
                    "no response within {TIMEOUT:?}; a function in a VPC needs an endpoint or a \
                     NAT gateway"
                )
            })
            .and_then(|sent| sent)
            .with_context(|| format!("cannot reach {address}"))?;
        if !status.is_success() {
            let error: Value = serde_json::from_slice(&body).unwrap_or_default();
            let word = |name: &str| error[name].as_str().unwrap_or_default().to_string();
            let kind = word("__type");
            let kind = kind.rsplit('#').next().unwrap_or_default();
            bail!(
                "{address} responded with {status}: {kind} {}{}",
                word("message"),
                word("Message")
            );
        }
        serde_json::from_slice(&body).map_err(|_| anyhow!("the response of {address} is not JSON"))
    }

    fn address(&self, service: &Service) -> String {
        let configured = text(service.endpoint).or_else(|| text("AWS_ENDPOINT_URL"));
        configured.unwrap_or_else(|| {
            let (name, region) = (service.name, &self.region);
            let china = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://{name}.{region}.amazonaws.com{china}")
        })
    }

    async fn send(
        &self,
        service: &Service,
        address: &str,
        asked: &Value,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let uri: Uri = format!("{}/", address.trim_end_matches('/')).parse()?;
        let request = self.signed(service, &uri, asked.to_string())?;
        let host = uri.host().context("the endpoint has no host")?.to_string();
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        if !is_https {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host)?;
        exchange(tls()?.connect(name, stream).await?, request).await
    }

    fn signed(
        &self,
        service: &Service,
        uri: &Uri,
        body: String,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let host = uri
            .authority()
            .context("the endpoint has no host")?
            .as_str();
        let headers = [
            ("host", host),
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-target", service.action),
        ];
        let identity = self.credentials.clone().into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(service.name)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()?
            .into();
        let signable = SignableRequest::new(
            "POST",
            uri.to_string(),
            headers.into_iter(),
            SignableBody::Bytes(body.as_bytes()),
        )?;
        let (instructions, _) = sign(signable, &parameters)?.into_parts();
        let mut request = Request::post(uri.path()).header(header::ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Full::new(Bytes::from(body)))?;
        instructions.apply_to_request_http1x(&mut request);
        // The signature covers the whole URI; the request line has only the path.
        *request.uri_mut() = uri.path().parse()?;
        Ok(request)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST);
    let body = body.collect().await.map_err(|error| anyhow!(error))?;
    driven.abort();
    Ok((status, body.to_bytes()))
}

/// Trusts the authorities that browsers trust, which include AWS's.
fn tls() -> anyhow::Result<TlsConnector> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// An environment variable that is not empty.
fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}
