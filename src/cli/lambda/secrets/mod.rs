//! Replaces `ssm:` and `secretsmanager:` values of environment variables by the parameters and
//! secrets they name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::aws::{self, AwsClient, EnvironmentVariables, Provider, Service};
use crate::config::Config;
use crate::fronts::queue::backoff;

const SSM: &str = "ssm:";
const SECRETS_MANAGER: &str = "secretsmanager:";

/// What AWS stores; several variables may name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SecretSource {
    /// A parameter of Systems Manager's Parameter Store.
    Parameter(String),
    /// A secret of Secrets Manager.
    Secret(String),
}

impl SecretSource {
    /// The source that a variable's value names, and the member of its JSON if the value names one.
    fn parse(value: &str) -> Option<(SecretSource, Option<String>)> {
        if let Some(name) = value.strip_prefix(SSM) {
            return Some((SecretSource::Parameter(name.into()), None));
        }
        let name = value.strip_prefix(SECRETS_MANAGER)?;
        Some(match name.split_once('#') {
            Some((id, key)) => (SecretSource::Secret(id.into()), Some(key.into())),
            None => (SecretSource::Secret(name.into()), None),
        })
    }

    async fn get(&self, account: &Account) -> anyhow::Result<String> {
        match self {
            SecretSource::Parameter(name) => {
                let parameters = json!({"Name": name, "WithDecryption": true});
                let answer = account
                    .ask(SYSTEMS_MANAGER, "GetParameter", &parameters)
                    .await?;
                text(&answer["Parameter"]["Value"]).context("the response has no value")
            }
            SecretSource::Secret(id) => {
                let parameters = json!({"SecretId": id});
                let answer = account.ask(SECRETS, "GetSecretValue", &parameters).await?;
                text(&answer["SecretString"]).context("the secret is binary; store it as a string")
            }
        }
    }

    /// Advice if AWS denies access.
    fn remedy(&self) -> &'static str {
        match self {
            SecretSource::Parameter(_) => {
                "the function's role needs ssm:GetParameter, and kms:Decrypt for a key of your own"
            }
            SecretSource::Secret(_) => {
                "the function's role needs secretsmanager:GetSecretValue, and kms:Decrypt for a \
                 key of your own"
            }
        }
    }
}

/// The variables that name a source, with the member of its JSON that each wants.
type NamedVariables = Vec<(String, Option<String>)>;

/// Reads a source once, and gives each variable its value.
async fn values(
    account: &Account,
    source: SecretSource,
    variables: NamedVariables,
) -> anyhow::Result<Vec<(String, String)>> {
    let failed = |names: &str| {
        let remedy = source.remedy();
        format!("cannot get the value of the environment variable {names} ({remedy})")
    };
    let names = || variables.iter().map(|(name, _)| &**name);
    let all = source.get(account).await;
    let all = all.with_context(|| failed(&names().collect::<Vec<_>>().join(", ")))?;
    let each = variables.iter().map(|(name, key)| {
        let value = match key {
            None => all.clone(),
            Some(key) => member(&all, key).with_context(|| failed(name))?,
        };
        anyhow::Ok((name.clone(), value))
    });
    each.collect()
}

const SYSTEMS_MANAGER: Service = Service {
    name: "ssm",
    target: "AmazonSSM",
    json: "1.1",
    endpoint: "AWS_ENDPOINT_URL_SSM",
};
const SECRETS: Service = Service {
    name: "secretsmanager",
    target: "secretsmanager",
    json: "1.1",
    endpoint: "AWS_ENDPOINT_URL_SECRETS_MANAGER",
};

/// Half of the ten seconds that a start may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How often a request is sent at most: AWS throttles functions of which many start together.
const ATTEMPTS: u32 = 3;

/// The least time for a retry. A shorter one would hide AWS's error behind a timeout.
const MIN_RETRY: Duration = Duration::from_secs(1);

/// Whether a request that has failed this often is sent again.
fn is_retried(error: &aws::Error, attempts: u32, left: Duration) -> bool {
    attempts < ATTEMPTS && error.is_temporary() && left >= MIN_RETRY
}

/// Credentials and region of the function.
struct Account {
    credentials: Arc<Provider>,
    region: String,
    variables: EnvironmentVariables,
}

impl Account {
    fn from_env() -> anyhow::Result<Account> {
        let variables = EnvironmentVariables::of_process();
        let region = variables.region()?.context(
            "environment variable AWS_REGION is not set; Lambda sets it for every function",
        )?;
        Ok(Account {
            credentials: Provider::of_environment(variables.clone()),
            region,
            variables,
        })
    }

    async fn ask(
        &self,
        service: Service,
        action: &str,
        parameters: &Value,
    ) -> anyhow::Result<Value> {
        let address = service.address(&self.region, &self.variables);
        let client = AwsClient::new(service, &address, &self.region, self.credentials.clone())?;
        let began = Instant::now();
        let mut left = TIMEOUT;
        let mut attempts = 1;
        loop {
            let error = match client.ask(action, parameters, left).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // 200 to 400 ms, then twice as long.
            let pause = backoff::pause(attempts + 2);
            left = TIMEOUT.saturating_sub(began.elapsed() + pause);
            if !is_retried(&error, attempts, left) {
                return Err(error.into());
            }
            tokio::time::sleep(pause).await;
            attempts += 1;
        }
    }
}

/// A member of a secret's JSON. The error never quotes the secret.
fn member(secret: &str, key: &str) -> anyhow::Result<String> {
    let Ok(Value::Object(members)) = serde_json::from_str(secret) else {
        bail!("the secret is not a JSON object and has no keys; remove #{key}");
    };
    match members.get(key) {
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(value) => {
            text(value).with_context(|| format!("key {key} of the secret is not a string"))
        }
        None => bail!("the secret has no key {key}"),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_string)
}

/// Puts the values into `[env]`, from which PHP gets them. `[env]` overrides the environment.
pub async fn resolve(
    config: &mut Config,
    environment: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<()> {
    let mut wanted: BTreeMap<String, (SecretSource, Option<String>)> = environment
        // These configure Surus; `SURUS_ENV_…` is in `[env]` already.
        .filter(|(name, _)| !name.starts_with("SURUS_") && !config.env.contains_key(name))
        .filter_map(|(name, value)| Some((name, SecretSource::parse(&value)?)))
        .collect();
    let of_config = config.env.iter();
    wanted.extend(
        of_config.filter_map(|(name, value)| Some((name.clone(), SecretSource::parse(value)?))),
    );
    if wanted.is_empty() {
        return Ok(());
    }
    let account = Account::from_env().context("cannot resolve secrets in environment variables")?;
    let mut sources: BTreeMap<SecretSource, NamedVariables> = BTreeMap::new();
    for (name, (source, key)) in wanted {
        sources.entry(source).or_default().push((name, key));
    }
    let all = sources.into_iter();
    let all = all.map(|(source, variables)| values(&account, source, variables));
    let all = futures_util::future::try_join_all(all).await?;
    config.env.extend(all.into_iter().flatten());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_refers_to_a_parameter_a_secret_or_neither() {
        let secret = |id: &str, key: Option<&str>| {
            Some((SecretSource::Secret(id.into()), key.map(str::to_string)))
        };
        let parameter = Some((SecretSource::Parameter("/shop/key".into()), None));
        assert_eq!(SecretSource::parse("ssm:/shop/key"), parameter);
        assert_eq!(SecretSource::parse("secretsmanager:db"), secret("db", None));
        assert_eq!(
            SecretSource::parse("secretsmanager:db#a#b"),
            secret("db", Some("a#b"))
        );
        assert_eq!(SecretSource::parse("mysql://ssm:x@host"), None);
    }

    #[test]
    fn temporary_failure_is_retried_while_a_second_is_left() {
        let lost = || aws::Error::Unreachable(anyhow::anyhow!("lost"));
        let failed = aws::Error::Failed(anyhow::anyhow!("no credentials"));
        let short = MIN_RETRY - Duration::from_millis(1);
        for (error, attempts, left, expected) in [
            (lost(), 2, MIN_RETRY, true),
            (lost(), 3, TIMEOUT, false),
            (lost(), 1, short, false),
            (failed, 1, TIMEOUT, false),
        ] {
            let case = format!("{error:?} {attempts} {left:?}");
            assert_eq!(is_retried(&error, attempts, left), expected, "{case}");
        }
    }

    #[test]
    fn key_of_a_secret_is_a_member_of_its_json() {
        let secret = r#"{"password":"p","port":5432,"list":[]}"#;
        assert_eq!(member(secret, "password").ok().as_deref(), Some("p"));
        assert_eq!(member(secret, "port").ok().as_deref(), Some("5432"));
        for (secret, key) in [(secret, "gone"), (secret, "list"), ("hush", "a")] {
            let error = member(secret, key).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains(key) && !error.contains("hush"), "{error}");
        }
    }
}
