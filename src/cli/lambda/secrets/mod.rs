//! Replaces `ssm:` and `secretsmanager:` values of environment variables by the parameters and
//! secrets they name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::aws::{AwsClient, EnvironmentVariables, Provider, Service};
use crate::config::Config;

const SSM: &str = "ssm:";
const SECRETS_MANAGER: &str = "secretsmanager:";

/// The location of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretSource {
    /// A parameter of Systems Manager's Parameter Store.
    Parameter(String),
    /// A secret of Secrets Manager, or one member of its JSON.
    Secret { id: String, key: Option<String> },
}

impl SecretSource {
    fn parse(value: &str) -> Option<SecretSource> {
        if let Some(name) = value.strip_prefix(SSM) {
            return Some(SecretSource::Parameter(name.into()));
        }
        let name = value.strip_prefix(SECRETS_MANAGER)?;
        let (id, key) = match name.split_once('#') {
            Some((id, key)) => (id, Some(key.to_string())),
            None => (name, None),
        };
        let id = id.into();
        Some(SecretSource::Secret { id, key })
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
            SecretSource::Secret { id, key } => {
                let parameters = json!({"SecretId": id});
                let answer = account.ask(SECRETS, "GetSecretValue", &parameters).await?;
                let secret = text(&answer["SecretString"])
                    .context("the secret is binary; store it as a string")?;
                match key {
                    None => Ok(secret),
                    Some(key) => member(&secret, key),
                }
            }
        }
    }

    /// Advice if AWS denies access.
    fn remedy(&self) -> &'static str {
        match self {
            SecretSource::Parameter(_) => {
                "the function's role needs ssm:GetParameter, and kms:Decrypt for a key of your own"
            }
            SecretSource::Secret { .. } => {
                "the function's role needs secretsmanager:GetSecretValue, and kms:Decrypt for a \
                 key of your own"
            }
        }
    }
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

/// Credentials and region of the function.
struct Account {
    credentials: Arc<Provider>,
    region: String,
    variables: EnvironmentVariables,
}

impl Account {
    fn from_env() -> anyhow::Result<Account> {
        let variables = EnvironmentVariables::of_process();
        let needed = |name: &str| {
            variables.get(name).with_context(|| {
                format!("environment variable {name} is not set; Lambda sets it for every function")
            })
        };
        needed("AWS_ACCESS_KEY_ID")?;
        needed("AWS_SECRET_ACCESS_KEY")?;
        let region = variables.get("AWS_REGION");
        let region = region
            .map_or_else(|| needed("AWS_DEFAULT_REGION"), Ok)?
            .into();
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
        Ok(client.ask(action, parameters, TIMEOUT).await?)
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
    let mut wanted: BTreeMap<String, SecretSource> = environment
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
    let all = wanted.into_iter().map(|(name, source)| {
        let account = &account;
        async move {
            let value = source.get(account).await.with_context(|| {
                let remedy = source.remedy();
                format!("cannot get the value of the environment variable {name} ({remedy})")
            })?;
            anyhow::Ok((name, value))
        }
    });
    let values = futures_util::future::try_join_all(all).await?;
    config.env.extend(values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_refers_to_a_parameter_a_secret_or_neither() {
        let secret = |id: &str, key: Option<&str>| {
            let (id, key) = (id.into(), key.map(str::to_string));
            Some(SecretSource::Secret { id, key })
        };
        let parameter = Some(SecretSource::Parameter("/shop/key".into()));
        assert_eq!(SecretSource::parse("ssm:/shop/key"), parameter);
        assert_eq!(SecretSource::parse("secretsmanager:db"), secret("db", None));
        assert_eq!(
            SecretSource::parse("secretsmanager:db#a#b"),
            secret("db", Some("a#b"))
        );
        assert_eq!(SecretSource::parse("mysql://ssm:x@host"), None);
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
