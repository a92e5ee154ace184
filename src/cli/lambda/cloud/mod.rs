//! Commands for a function on AWS: `surus lambda deploy`, `logs` and `console`.

pub mod console;
pub mod deploy;
mod failure;
mod function;
pub mod logs;
mod plan;
mod rollback;
mod smoke;
mod state;
mod traffic;
mod wanted;

use std::path::Path;

use anyhow::{Context, anyhow};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_lambda::config::ProvideCredentials;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use super::cloud_options::Target;
use super::template::name_of;
use crate::config::Config;
use crate::observe::log;

impl Target {
    /// The configuration. Logs of AWS's SDK below warnings could contain credentials.
    fn load(&self) -> anyhow::Result<Config> {
        let config = self.project.load()?.config;
        log::start(&log::Settings {
            level: "warn".into(),
            ..config.log.clone()
        })?;
        Ok(config)
    }

    fn function_name(&self, project: &Path, config: &Config) -> String {
        let named = self.name.clone().or_else(|| config.deploy.name.clone());
        named.unwrap_or_else(|| name_of(project))
    }

    /// Finds region and credentials, by the SDK's own chain.
    async fn connect(&self, config: &Config) -> anyhow::Result<SdkConfig> {
        let client = Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(client);
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(region) = self.region.as_ref().or(config.deploy.region.as_ref()) {
            loader = loader.region(Region::new(region.clone()));
        }
        let found = loader.load().await;
        if found
            .region()
            .is_none_or(|region| region.to_string().is_empty())
        {
            return Err(anyhow!(
                "no AWS region; name it with --region, in surus.toml ([deploy] region = \"…\"), \
                 or in AWS_REGION, or choose a profile that has one (--profile)"
            ));
        }
        let provider = found.credentials_provider();
        let provider = provider.context("the SDK has no source of credentials")?;
        provider
            .provide_credentials()
            .await
            .map_err(|error| anyhow!(failure::chain(&error)))
            .context(
                "no AWS credentials; choose a profile with --profile, log in with aws sso login, \
                 or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )?;
        Ok(found)
    }
}
