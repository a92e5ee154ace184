//! Finds AWS's credentials: in the environment, in a profile, or at the container's or the
//! machine's metadata service.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use aws_credential_types::Credentials;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::metadata::{self, Container};
use super::{EnvironmentVariables, keys, profile};

/// How long credentials are used before they are refreshed. Metadata services have new ones
/// at least five minutes before the old ones expire.
const FRESH: Duration = Duration::from_secs(240);
/// How long after a search the next one may begin because AWS refuses what was found.
const MIN_SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// Provides credentials, and renews them. No message contains them.
pub struct Provider {
    origin: CredentialsOrigin,
    found: Mutex<Option<FoundCredentials>>,
}

enum CredentialsOrigin {
    Fixed(Credentials),
    Environment(EnvironmentVariables),
}

struct FoundCredentials {
    credentials: Credentials,
    at: Instant,
}

impl Provider {
    /// Credentials that do not change.
    pub fn fixed(key: &str, secret: &str, token: Option<String>) -> Arc<Provider> {
        Provider::new(CredentialsOrigin::Fixed(keys(key, secret, token)))
    }

    /// The credentials that AWS's own tools would find.
    pub fn of_environment(variables: EnvironmentVariables) -> Arc<Provider> {
        Provider::new(CredentialsOrigin::Environment(variables))
    }

    fn new(origin: CredentialsOrigin) -> Arc<Provider> {
        Arc::new(Provider {
            origin,
            found: Mutex::default(),
        })
    }

    pub async fn get(&self) -> anyhow::Result<Credentials> {
        let variables = match &self.origin {
            CredentialsOrigin::Fixed(credentials) => return Ok(credentials.clone()),
            CredentialsOrigin::Environment(variables) => variables,
        };
        // One search at a time.
        let mut found = self.found.lock().await;
        if let Some(found) = &*found
            && found.at.elapsed() < FRESH
        {
            return Ok(found.credentials.clone());
        }
        let credentials = match (find(variables).await, &*found) {
            (Ok(credentials), _) => credentials,
            (Err(error), Some(old)) => {
                warn!(
                    error = format!("{error:#}"),
                    "cannot refresh the AWS credentials; using the old ones"
                );
                old.credentials.clone()
            }
            (Err(error), None) => return Err(error),
        };
        let at = Instant::now();
        *found = Some(FoundCredentials {
            credentials: credentials.clone(),
            at,
        });
        Ok(credentials)
    }

    /// Forgets credentials that AWS has refused. Returns whether another search may find others.
    pub async fn refused(&self, credentials: &Credentials) -> bool {
        let mut found = self.found.lock().await;
        let Some(known) = &*found else {
            return matches!(self.origin, CredentialsOrigin::Environment(_));
        };
        if known.credentials != *credentials {
            return true;
        }
        let may_search = known.at.elapsed() >= MIN_SEARCH_INTERVAL;
        if may_search {
            *found = None;
        }
        may_search
    }
}

async fn find(variables: &EnvironmentVariables) -> anyhow::Result<Credentials> {
    if let Some(key) = variables.get("AWS_ACCESS_KEY_ID") {
        let secret = variables.get("AWS_SECRET_ACCESS_KEY");
        let secret = secret.context("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY")?;
        let token = variables.get("AWS_SESSION_TOKEN").map(str::to_string);
        return Ok(keys(key, secret, token));
    }
    if let Some(found) = profile::read(variables)?.credentials {
        return Ok(found);
    }
    if variables.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() {
        bail!(
            "AWS_WEB_IDENTITY_TOKEN_FILE is set, and surus cannot take roles by web identity; use \
             EKS Pod Identity instead of IAM roles for service accounts"
        );
    }
    if let Some(container) = Container::of(variables)? {
        return container.credentials().await;
    }
    if variables.get("AWS_EC2_METADATA_DISABLED") == Some("true") {
        bail!("no AWS credentials: {WHERE}");
    }
    let found = metadata::of_machine(variables).await;
    found.with_context(|| format!("no AWS credentials: {WHERE}"))
}

const WHERE: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile in \
                     AWS_PROFILE, or give the machine or the container a role";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::metadata::tests::{machine, service};
    use super::*;

    #[tokio::test]
    async fn variables_come_first_and_no_message_has_a_secret() {
        let provider = Provider::of_environment(
            [
                ("AWS_ACCESS_KEY_ID", "key"),
                ("AWS_SECRET_ACCESS_KEY", "hidden"),
                ("AWS_SESSION_TOKEN", "token"),
                ("AWS_PROFILE", "missing"),
            ]
            .into(),
        );
        let found = provider.get().await.unwrap();
        assert_eq!(
            (
                found.access_key_id(),
                found.secret_access_key(),
                found.session_token()
            ),
            ("key", "hidden", Some("token"))
        );
        assert!(!format!("{found:?}").contains("hidden"));
        for (variables, part) in [
            (
                [("AWS_ACCESS_KEY_ID", "key"), ("HOME", "")],
                "AWS_SECRET_ACCESS_KEY",
            ),
            (
                [("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "")],
                "AWS_PROFILE",
            ),
            (
                [("AWS_WEB_IDENTITY_TOKEN_FILE", "/x"), ("HOME", "")],
                "Pod Identity",
            ),
        ] {
            let error = Provider::of_environment(variables.into()).get().await;
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    /// Lets time pass, which must not stand still while a test uses the network.
    async fn pass(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn credentials_of_a_role_are_renewed_and_kept_while_there_are_no_others() {
        let searches = AtomicUsize::new(0);
        let (address, _) = service(move |request| {
            if request.starts_with("PUT ") {
                searches.fetch_add(1, Ordering::Relaxed);
            }
            let search = searches.load(Ordering::Relaxed);
            let keys = format!(r#"{{"AccessKeyId": "A{search}", "SecretAccessKey": "S"}}"#);
            (search < 3).then(|| machine(request, &keys)).flatten()
        });
        let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", address.as_str())];
        let provider = Provider::of_environment(variables.into());
        let mut seen = Vec::new();
        for wait in [0, FRESH.as_secs() / 2, FRESH.as_secs(), FRESH.as_secs()] {
            pass(Duration::from_secs(wait)).await;
            let found = provider.get().await.unwrap();
            seen.push(found.access_key_id().to_string());
        }
        assert_eq!(seen, ["A1", "A1", "A2", "A2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_looked_for_again_after_a_rest() {
        let variables = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let provider = Provider::of_environment(variables.into());
        let found = provider.get().await.unwrap();
        assert!(!provider.refused(&found).await, "just found");
        tokio::time::advance(MIN_SEARCH_INTERVAL).await;
        assert!(provider.refused(&found).await);
        let fixed = Provider::fixed("k", "s", None);
        let found = fixed.get().await.unwrap();
        assert!(!fixed.refused(&found).await);
    }
}
