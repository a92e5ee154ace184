//! The address of a queue, and the requests to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::aws::{AwsClient, EnvironmentVariables, Error, Provider, Service};

const SQS: Service = Service {
    name: "sqs",
    target: "AmazonSQS",
    json: "1.0",
    endpoint: "AWS_ENDPOINT_URL_SQS",
};

/// What the names of FIFO queues end with.
const FIFO: &str = ".fifo";

const TIMEOUT: Duration = Duration::from_secs(10);

/// How a queue is reached, as the configuration or the application says.
#[derive(Default, Clone)]
pub struct Access {
    /// The URLs of queues without their names. Empty: those of the account and region.
    pub base: String,
    /// Scheme and host of the service, if they are not those of the URL.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// None: those of the environment.
    pub credentials: Option<Arc<Provider>>,
}

/// A queue's URL and the client for it. Queues of one server share a client.
#[derive(Clone)]
pub struct QueueAddress {
    pub url: String,
    client: Arc<AwsClient>,
}

impl QueueAddress {
    /// Finds a queue by its name or its URL.
    pub async fn find(name: &str, access: Access) -> anyhow::Result<QueueAddress> {
        let variables = EnvironmentVariables::of_process();
        let base = access.base.trim_end_matches('/');
        let is_url = name.starts_with("http://") || name.starts_with("https://");
        let url = match (is_url, base) {
            (true, _) => Some(name.to_string()),
            (false, "") => None,
            // A URL with the name, as AWS's console shows it.
            (false, base) if base.ends_with(&format!("/{name}")) => Some(base.to_string()),
            (false, base) => Some(format!("{base}/{name}")),
        };
        let of_url = url.as_deref().and_then(region_of);
        let region = match of_url.or(access.region) {
            Some(region) => region,
            None => match variables.region()? {
                Some(region) => region,
                // A stand-in for SQS has no regions.
                None if url.as_deref().is_some_and(|url| !is_of_aws(url)) => "us-east-1".into(),
                None => bail!("no AWS region: set AWS_REGION"),
            },
        };
        let address = match (access.endpoint, &url) {
            (Some(endpoint), _) => endpoint,
            (None, Some(url)) => origin(url).context("its URL has no host")?,
            (None, None) => SQS.address(&region, &variables),
        };
        let credentials = access.credentials;
        let credentials = credentials.unwrap_or_else(|| Provider::of_environment(variables));
        let client = Arc::new(AwsClient::new(SQS, &address, &region, credentials)?);
        let url = match url {
            Some(url) => url,
            None => {
                let parameters = json!({ "QueueName": name });
                let found = client.ask("GetQueueUrl", &parameters, TIMEOUT).await?;
                let url = found["QueueUrl"].as_str();
                url.context("the response has no URL")?.into()
            }
        };
        Ok(QueueAddress { url, client })
    }

    /// Another queue of the same account and region, by its ARN.
    pub fn of_arn(&self, arn: &str) -> Option<QueueAddress> {
        let (_, name) = arn.rsplit_once(':')?;
        let (base, _) = self.url.rsplit_once('/')?;
        Some(QueueAddress {
            url: format!("{base}/{name}"),
            client: self.client.clone(),
        })
    }

    /// The queue's name in SQS.
    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    pub fn is_fifo(&self) -> bool {
        self.url.ends_with(FIFO)
    }

    /// Makes a call, whose arguments need not have the queue's URL.
    pub async fn ask(
        &self,
        action: &str,
        mut parameters: Value,
        timeout: Duration,
    ) -> Result<Value, Error> {
        parameters["QueueUrl"] = self.url.as_str().into();
        self.client.ask(action, &parameters, timeout).await
    }
}

/// The name of a queue in an application whose names end with a suffix, as
/// `Illuminate\Queue\SqsQueue` makes it.
pub fn with_suffix(name: &str, suffix: &str) -> String {
    if name.contains("://") {
        return name.into();
    }
    let (stem, kind) = match name.strip_suffix(FIFO) {
        Some(stem) => (stem, FIFO),
        None => (name, ""),
    };
    let suffix = if stem.ends_with(suffix) { "" } else { suffix };
    format!("{stem}{suffix}{kind}")
}

/// Scheme and host of a URL.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}"))
}

fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split(['/', ':']).next()
}

fn is_of_aws(url: &str) -> bool {
    let host = host(url).unwrap_or_default();
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

/// The region in `sqs.REGION.amazonaws.com` or `….sqs.REGION.vpce.amazonaws.com`.
fn region_of(url: &str) -> Option<String> {
    if !is_of_aws(url) {
        return None;
    }
    let mut labels = host(url)?
        .split('.')
        .skip_while(|label| !label.starts_with("sqs"));
    labels
        .nth(1)
        .filter(|label| *label != "amazonaws")
        .map(str::to_string)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn region_is_read_from_the_hosts_of_aws() {
        for (url, region) in [
            (
                "https://sqs.eu-west-1.amazonaws.com/1/jobs",
                Some("eu-west-1"),
            ),
            (
                "https://sqs-fips.us-east-1.amazonaws.com/1",
                Some("us-east-1"),
            ),
            (
                "https://sqs.cn-north-1.amazonaws.com.cn/1",
                Some("cn-north-1"),
            ),
            (
                "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com/1",
                Some("eu-west-1"),
            ),
            ("http://127.0.0.1:9324/000000000000", None),
            ("https://queue.amazonaws.com/1", None),
            ("https://sqs.eu-west-1.example.org/1", None),
        ] {
            assert_eq!(region_of(url).as_deref(), region, "{url}");
        }
    }

    #[test]
    fn suffix_is_added_as_laravel_does() {
        for (name, suffix, whole) in [
            ("jobs", "", "jobs"),
            ("jobs", "-staging", "jobs-staging"),
            ("jobs-staging", "-staging", "jobs-staging"),
            ("jobs.fifo", "-staging", "jobs-staging.fifo"),
            ("https://h/0/jobs", "-staging", "https://h/0/jobs"),
        ] {
            assert_eq!(with_suffix(name, suffix), whole);
        }
    }

    #[tokio::test]
    async fn name_follows_the_base_unless_either_is_the_whole_url() {
        for (base, name, url) in [
            ("http://h:1/0", "jobs", "http://h:1/0/jobs"),
            ("http://h:1/0/", "jobs", "http://h:1/0/jobs"),
            ("http://h:1/0/jobs", "jobs", "http://h:1/0/jobs"),
            (
                "http://h:1/0",
                "https://other/0/jobs",
                "https://other/0/jobs",
            ),
        ] {
            let access = Access {
                base: base.into(),
                ..Access::default()
            };
            let queue = QueueAddress::find(name, access).await.unwrap();
            assert_eq!((queue.url.as_str(), queue.name()), (url, "jobs"));
            let dead = queue.of_arn("arn:aws:sqs:eu-west-1:0:dead").unwrap();
            assert_eq!(dead.url, url.replace("jobs", "dead"));
        }
    }
}
