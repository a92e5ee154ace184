//! Credentials of the role of a container (ECS, EKS Pod Identity) or of a machine (EC2, IMDSv2).

use std::time::Duration;

use anyhow::{Context, bail};
use aws_credential_types::Credentials;
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::Full;
use serde::Deserialize;

use super::{EnvironmentVariables, connection};

/// The services are on this machine or next to it.
const TIMEOUT: Duration = Duration::from_secs(3);
const OF_CONTAINERS: &str = "http://169.254.170.2";
const OF_MACHINES: &str = "http://169.254.169.254";
/// Where a container's service may be without TLS: ECS, and EKS.
const ALLOWED: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// The metadata service of a container.
pub struct Container {
    uri: String,
    authorization: Option<String>,
}

impl Container {
    /// The service that the variables name. None if they name none.
    pub fn of(variables: &EnvironmentVariables) -> anyhow::Result<Option<Container>> {
        let relative = variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let uri = match (relative, full) {
            (Some(path), _) => format!("{OF_CONTAINERS}{path}"),
            (None, Some(uri)) => checked(uri)?,
            (None, None) => return Ok(None),
        };
        let file = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let authorization = match file {
            Some(file) => {
                let token = std::fs::read_to_string(file);
                Some(token.with_context(|| format!("cannot read {file}"))?)
            }
            None => variables
                .get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
                .map(str::to_string),
        };
        let authorization = authorization.map(|token| token.trim().to_string());
        Ok(Some(Container { uri, authorization }))
    }

    pub async fn credentials(&self) -> anyhow::Result<Credentials> {
        let token = self.authorization.as_deref();
        let headers: Vec<_> = token
            .map(|it| (header::AUTHORIZATION.as_str(), it))
            .into_iter()
            .collect();
        let found = ask(Method::GET, &self.uri, &headers).await;
        read(&found.context("the container's metadata service")?)
    }
}

/// As AWS's SDKs do, lets no variable send the token to any host in the clear.
fn checked(uri: &str) -> anyhow::Result<String> {
    let parsed: Uri = uri
        .parse()
        .context("AWS_CONTAINER_CREDENTIALS_FULL_URI is not a URL")?;
    let host = parsed.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if parsed.scheme_str() != Some("https") && !is_local && !ALLOWED.contains(&host) {
        bail!(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI names the host {host:?}; without https it can be \
             this machine or the metadata service of ECS or EKS"
        );
    }
    Ok(uri.into())
}

/// The credentials of the machine's role.
pub async fn of_machine(variables: &EnvironmentVariables) -> anyhow::Result<Credentials> {
    let endpoint = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let base = format!(
        "{}/latest",
        endpoint.unwrap_or(OF_MACHINES).trim_end_matches('/')
    );
    let found = async {
        let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", "300")];
        let token = ask(Method::PUT, &format!("{base}/api/token"), &lifetime).await?;
        let token = [("x-aws-ec2-metadata-token", text(&token)?)];
        let roles = format!("{base}/meta-data/iam/security-credentials/");
        let role = ask(Method::GET, &roles, &token).await?;
        let role = text(&role)?
            .lines()
            .next()
            .context("the machine has no role")?;
        let keys = ask(Method::GET, &format!("{roles}{role}"), &token).await?;
        read(&keys)
    };
    found.await.context("the machine's metadata service")
}

async fn ask(method: Method, uri: &str, headers: &[(&str, &str)]) -> anyhow::Result<Bytes> {
    let uri: Uri = uri.parse()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(method).uri(path);
    let host = uri.authority().context("the URL has no host")?;
    request = request.header(header::HOST, host.as_str());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default())?;
    let response = async {
        let mut connection = connection::open(&uri).await?;
        connection::exchange(&mut connection, request).await
    };
    let response = tokio::time::timeout(TIMEOUT, response).await;
    let (status, body) = response.with_context(|| format!("no response within {TIMEOUT:?}"))??;
    if !status.is_success() {
        bail!("it responded with {status} to {}", uri.path());
    }
    Ok(body)
}

fn text(body: &Bytes) -> anyhow::Result<&str> {
    Ok(std::str::from_utf8(body)
        .context("the response is not UTF-8")?
        .trim())
}

/// The error of a wrong response does not quote it.
fn read(body: &[u8]) -> anyhow::Result<Credentials> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Keys {
        access_key_id: String,
        secret_access_key: String,
        token: Option<String>,
    }
    let keys = serde_json::from_slice::<Keys>(body).ok();
    let keys = keys.context("the response has no credentials")?;
    Ok(super::keys(
        &keys.access_key_id,
        &keys.secret_access_key,
        keys.token,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    const KEYS: &str = r#"{"Code": "Success", "AccessKeyId": "A", "SecretAccessKey": "S",
        "Token": "T", "Expiration": "2030-01-01T00:00:00Z"}"#;

    /// Answers each request by its method and path. Returns the address and the requests it gets.
    pub fn service(
        answer: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut request = String::new();
                while !request.ends_with("\r\n\r\n") {
                    assert!(stream.read_line(&mut request).unwrap() > 0);
                }
                let line = request.split(" HTTP/").next().unwrap();
                let answer = answer(line);
                let status = if answer.is_some() { 200 } else { 404 };
                let body = answer.unwrap_or_default();
                seen.lock().unwrap().push(request);
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        (address, requests)
    }

    /// Answers as a machine whose role has these keys.
    pub fn machine(request: &str, keys: &str) -> Option<String> {
        const ROLES: &str = "GET /latest/meta-data/iam/security-credentials/";
        match request.strip_prefix(ROLES) {
            Some("") => Some("worker\n".into()),
            Some("worker") => Some(keys.into()),
            _ => (request == "PUT /latest/api/token").then(|| "the-session".into()),
        }
    }

    fn assert_found(found: &Credentials) {
        let keys = (
            found.access_key_id(),
            found.secret_access_key(),
            found.session_token(),
        );
        assert_eq!(keys, ("A", "S", Some("T")));
    }

    #[tokio::test]
    async fn machine_is_asked_with_a_session_token() {
        let (address, requests) = service(|request| machine(request, KEYS));
        let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", address.as_str())].into();
        assert_found(&of_machine(&variables).await.unwrap());
        let requests = requests.lock().unwrap();
        assert!(requests[0].contains("x-aws-ec2-metadata-token-ttl-seconds: "));
        for request in &requests[1..] {
            assert!(
                request.contains("x-aws-ec2-metadata-token: the-session"),
                "{request}"
            );
        }
    }

    #[tokio::test]
    async fn container_is_asked_with_the_token_of_its_file() {
        let (address, requests) =
            service(|request| (request == "GET /keys?a=b").then(|| KEYS.into()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the-token\n").unwrap();
        let uri = format!("{address}/keys?a=b");
        let variables = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
            (
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                file.path().to_str().unwrap(),
            ),
        ];
        let container = Container::of(&variables.into()).unwrap().unwrap();
        assert_found(&container.credentials().await.unwrap());
        assert!(requests.lock().unwrap()[0].contains("authorization: the-token\r\n"));
    }

    #[tokio::test]
    async fn machine_without_a_role_is_an_error_with_its_status() {
        let (address, _) = service(|request| {
            let is_token = request == "PUT /latest/api/token";
            is_token.then(|| "session".into())
        });
        let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", address.as_str())].into();
        let error = format!("{:#}", of_machine(&variables).await.unwrap_err());
        assert!(error.contains("404"), "{error}");
    }

    #[test]
    fn token_is_not_sent_in_the_clear_to_any_host() {
        for (uri, is_allowed) in [
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1", true),
            ("http://127.0.0.1:8080/", true),
            ("http://localhost/", true),
            ("https://example.org/", true),
            ("http://example.org/", false),
            ("http://127.0.0.1.example.org/", false),
        ] {
            assert_eq!(checked(uri).is_ok(), is_allowed, "{uri}");
        }
    }
}
