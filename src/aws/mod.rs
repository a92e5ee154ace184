//! AWS's JSON services: credentials, and signed requests.

mod client;
mod connection;
mod credentials;
mod metadata;
mod profile;

pub use client::{AwsClient, Error, Service};
pub use credentials::Provider;

use std::collections::HashMap;

use aws_credential_types::Credentials;

/// Environment variables.
#[derive(Clone, Default)]
pub struct EnvironmentVariables(HashMap<String, String>);

impl EnvironmentVariables {
    pub fn of_process() -> EnvironmentVariables {
        let all = std::env::vars_os();
        let text =
            all.filter_map(|(name, value)| Some((name.to_str()?.into(), value.to_str()?.into())));
        EnvironmentVariables(text.collect())
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The region, from the variables or from the profile that they name.
    pub fn region(&self) -> anyhow::Result<Option<String>> {
        let named = self
            .get("AWS_REGION")
            .or_else(|| self.get("AWS_DEFAULT_REGION"));
        match named {
            Some(region) => Ok(Some(region.into())),
            None => Ok(profile::read(self)?.region),
        }
    }
}

fn keys(key: &str, secret: &str, token: Option<String>) -> Credentials {
    Credentials::new(key, secret, token, None, "surus")
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for EnvironmentVariables {
    fn from(pairs: [(&str, &str); N]) -> EnvironmentVariables {
        let owned = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
        EnvironmentVariables(owned.into())
    }
}
