//! Signed requests to one of AWS's JSON services.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Full;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::InvalidDnsNameError;

use super::connection::{self, AwsConnection};
use super::{EnvironmentVariables, Provider};

/// One of AWS's services.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    pub name: &'static str,
    /// What `X-Amz-Target` has in front of the action.
    pub target: &'static str,
    /// The version of its JSON protocol.
    pub json: &'static str,
    /// The variable that overrides the endpoint, as in AWS's SDKs.
    pub endpoint: &'static str,
}

impl Service {
    /// Where the service is, if nothing else names it.
    pub fn address(&self, region: &str, variables: &EnvironmentVariables) -> String {
        let configured = variables.get(self.endpoint);
        let configured = configured.or_else(|| variables.get("AWS_ENDPOINT_URL"));
        configured.map_or_else(
            || {
                let china = if region.starts_with("cn-") { ".cn" } else { "" };
                format!("https://{}.{region}.amazonaws.com{china}", self.name)
            },
            str::to_string,
        )
    }
}

/// Sends requests to a service, over connections that it keeps.
pub struct AwsClient {
    service: Service,
    /// For error messages.
    address: String,
    uri: Uri,
    region: String,
    credentials: Arc<Provider>,
    idle: Mutex<Vec<AwsConnection>>,
}

/// Why a request has failed. Its text has neither the body of the request nor that of the response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// AWS answered with an error status.
    #[error("{address} responded with {status}: {code} {message}")]
    Refused {
        address: String,
        status: StatusCode,
        code: String,
        message: String,
    },
    /// No response has arrived.
    #[error("{0:#}")]
    Unreachable(anyhow::Error),
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

impl Error {
    /// Whether the same request may succeed after a pause.
    pub fn is_temporary(&self) -> bool {
        match self {
            Error::Refused { status, code, .. } => {
                status.is_server_error()
                    || *status == StatusCode::TOO_MANY_REQUESTS
                    || ["ThrottlingException", "TooManyRequestsException"].contains(&&**code)
            }
            Error::Unreachable(_) => true,
            Error::Failed(_) => false,
        }
    }
}

/// How many idle connections a client keeps.
const KEPT: usize = 8;

impl AwsClient {
    pub fn new(
        service: Service,
        address: &str,
        region: &str,
        credentials: Arc<Provider>,
    ) -> anyhow::Result<AwsClient> {
        let address = address.trim_end_matches('/');
        Ok(AwsClient {
            service,
            address: address.into(),
            uri: format!("{address}/")
                .parse()
                .context("the endpoint is not a URL")?,
            region: region.into(),
            credentials,
            idle: Mutex::default(),
        })
    }

    /// Sends a request and returns the response.
    pub async fn ask(
        &self,
        action: &str,
        parameters: &Value,
        timeout: Duration,
    ) -> Result<Value, Error> {
        let body = Bytes::from(parameters.to_string());
        let credentials = self.credentials.get().await.map_err(Error::Failed)?;
        let answer = self.attempt(action, &body, &credentials, timeout).await;
        match answer {
            Err(Error::Refused { code, .. })
                if is_expired(&code) && self.credentials.refused(&credentials).await =>
            {
                let credentials = self.credentials.get().await.map_err(Error::Failed)?;
                self.attempt(action, &body, &credentials, timeout).await
            }
            answer => answer,
        }
    }

    async fn attempt(
        &self,
        action: &str,
        body: &Bytes,
        credentials: &Credentials,
        timeout: Duration,
    ) -> Result<Value, Error> {
        let address = &self.address;
        let request = self.signed(action, body, credentials);
        let sent = self.send(request.map_err(Error::Failed)?);
        let sent = tokio::time::timeout(timeout, sent);
        let (status, answer) = sent
            .await
            .map_err(|_| {
                anyhow!(
                    "no response within {timeout:?}; a VPC needs an endpoint of the service or a \
                     NAT gateway"
                )
            })
            .and_then(|sent| sent)
            .with_context(|| format!("cannot reach {address}"))
            .map_err(|error| match error.is::<InvalidDnsNameError>() {
                true => Error::Failed(error),
                false => Error::Unreachable(error),
            })?;
        if !status.is_success() {
            return Err(refusal(address, status, &answer));
        }
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        let read = serde_json::from_slice(&answer);
        read.map_err(|_| Error::Failed(anyhow!("the response of {address} is not JSON")))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
        let kept = self.idle().pop();
        if let Some(mut connection) = kept {
            // If the service has closed it, a new one is opened.
            if let Ok(answer) = connection::exchange(&mut connection, request.clone()).await {
                self.keep(connection);
                return Ok(answer);
            }
        }
        let mut connection = connection::open(&self.uri).await?;
        let answer = connection::exchange(&mut connection, request).await?;
        self.keep(connection);
        Ok(answer)
    }

    fn keep(&self, connection: AwsConnection) {
        let mut idle = self.idle();
        if !connection.is_closed() && idle.len() < KEPT {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<AwsConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signed(
        &self,
        action: &str,
        body: &Bytes,
        credentials: &Credentials,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let host = self.uri.authority().context("the endpoint has no host")?;
        let kind = format!("application/x-amz-json-{}", self.service.json);
        let target = format!("{}.{action}", self.service.target);
        let headers = [
            ("host", host.as_str()),
            ("content-type", kind.as_str()),
            ("x-amz-target", target.as_str()),
        ];
        let identity = credentials.clone().into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service.name)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()?
            .into();
        let signable = SignableRequest::new(
            "POST",
            self.uri.to_string(),
            headers.into_iter(),
            SignableBody::Bytes(body),
        )?;
        let (instructions, _) = sign(signable, &parameters)?.into_parts();
        let mut request = Request::post(self.uri.path()).header(header::ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(Full::new(body.clone()))?;
        instructions.apply_to_request_http1x(&mut request);
        // The signature covers the whole URI; the request line has only the path.
        *request.uri_mut() = self.uri.path().parse()?;
        Ok(request)
    }
}

/// AWS's own message, of which the lines after the first may quote the request with its token.
fn refusal(address: &str, status: StatusCode, body: &[u8]) -> Error {
    let error: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = |name: &str| error[name].as_str().unwrap_or_default();
    let kind = word("__type");
    let message = [word("message"), word("Message")].concat();
    Error::Refused {
        address: address.into(),
        status,
        code: kind.rsplit('#').next().unwrap_or_default().into(),
        message: message.lines().next().unwrap_or_default().into(),
    }
}

/// Whether other credentials may be accepted.
fn is_expired(code: &str) -> bool {
    [
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
    ]
    .contains(&code)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_code_and_repeats_no_token() {
        let body = br#"{"__type": "com.amazon.coral.service#InvalidSignatureException",
            "message": "The signature does not match.\n\nThe Canonical String is\nhidden"}"#;
        let error = refusal("https://aws", StatusCode::FORBIDDEN, body).to_string();
        assert_eq!(
            error,
            "https://aws responded with 403 Forbidden: InvalidSignatureException The signature \
             does not match."
        );
    }

    #[test]
    fn throttling_failures_of_the_service_and_lost_connections_are_temporary() {
        let refused = |status: StatusCode, code: &str| {
            refusal(
                "aws",
                status,
                format!(r#"{{"__type": "{code}"}}"#).as_bytes(),
            )
        };
        for (error, is_temporary) in [
            (
                refused(StatusCode::BAD_REQUEST, "a#ThrottlingException"),
                true,
            ),
            (
                refused(StatusCode::BAD_REQUEST, "TooManyRequestsException"),
                true,
            ),
            (refused(StatusCode::TOO_MANY_REQUESTS, ""), true),
            (refused(StatusCode::SERVICE_UNAVAILABLE, ""), true),
            (
                refused(StatusCode::BAD_REQUEST, "AccessDeniedException"),
                false,
            ),
            (Error::Unreachable(anyhow!("refused")), true),
            (Error::Failed(anyhow!("no credentials")), false),
        ] {
            assert_eq!(error.is_temporary(), is_temporary, "{error:?}");
        }
    }

    #[tokio::test]
    async fn endpoint_without_a_valid_host_is_not_a_temporary_failure() {
        for address in ["", "https://a..b"] {
            let service = Service {
                name: "ssm",
                target: "AmazonSSM",
                json: "1.1",
                endpoint: "AWS_ENDPOINT_URL_SSM",
            };
            let credentials = Provider::fixed("key", "secret", None);
            let client = AwsClient::new(service, address, "eu-west-1", credentials).unwrap();
            let parameters = Value::Null;
            let answer = client.ask("GetParameter", &parameters, Duration::MAX).await;
            let error = answer.unwrap_err();
            assert!(matches!(error, Error::Failed(_)), "{address}: {error:?}");
        }
    }

    #[test]
    fn endpoint_is_that_of_the_region_or_of_the_variables() {
        let service = Service {
            name: "sqs",
            target: "AmazonSQS",
            json: "1.0",
            endpoint: "AWS_ENDPOINT_URL_SQS",
        };
        for (region, variables, address) in [
            (
                "eu-west-1",
                EnvironmentVariables::default(),
                "https://sqs.eu-west-1.amazonaws.com",
            ),
            (
                "cn-north-1",
                EnvironmentVariables::default(),
                "https://sqs.cn-north-1.amazonaws.com.cn",
            ),
            (
                "eu-west-1",
                [
                    ("AWS_ENDPOINT_URL_SQS", ""),
                    ("AWS_ENDPOINT_URL", "http://all"),
                ]
                .into(),
                "http://all",
            ),
            (
                "eu-west-1",
                [
                    ("AWS_ENDPOINT_URL_SQS", "http://own"),
                    ("AWS_ENDPOINT_URL", "http://all"),
                ]
                .into(),
                "http://own",
            ),
        ] {
            assert_eq!(service.address(region, &variables), address);
        }
    }
}
