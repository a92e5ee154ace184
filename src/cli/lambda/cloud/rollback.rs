//! Undoes a deployment that has failed or was interrupted, as far as it changed what is live.

use std::fmt::Write;

use aws_sdk_lambda::Client;

use super::state::{Alias, State, reports_failures};
use super::traffic;
use super::wanted::Wanted;

/// What the deployment may have changed: it has asked AWS to.
#[derive(Default)]
pub struct BegunDeployment {
    pub alias: bool,
    pub url: bool,
    pub mapping: bool,
}

pub struct Rollback<'a> {
    pub lambda: &'a Client,
    pub wanted: &'a Wanted,
    pub state: &'a State,
    pub begun: &'a BegunDeployment,
    /// The version that the deployment has published.
    pub version: Option<&'a str>,
}

impl Rollback<'_> {
    /// Returns what is live now.
    pub async fn run(&self) -> String {
        let Some(before) = &self.state.alias else {
            return "no version was live before; deploy again when the cause is removed".into();
        };
        let mut message = self.alias(before).await;
        if let Err(error) = self.url().await {
            let _ = write!(message, "; the URL could not be changed back ({error:#})");
        }
        if let Err(error) = self.mapping().await {
            let _ = write!(message, "; the queue could not be changed back ({error:#})");
        }
        message
    }

    async fn alias(&self, before: &Alias) -> String {
        let name = &self.wanted.alias;
        let old = &before.version;
        let stays = format!("version {old} stays live (alias {name})");
        if !self.begun.alias {
            return stays;
        }
        // The response may have been lost, and another deployment may have moved the alias.
        let (now, revision) = match traffic::current(self.lambda, self.wanted).await {
            Ok(current) => current,
            Err(error) => return self.unknown(old, &error),
        };
        match now.as_deref() {
            Some(now) if Some(now) != self.version && now != old => {
                format!("version {now} is live (alias {name}), by another deployment")
            }
            Some(now) if now == old && Some(now) != self.version => stays,
            _ => {
                let (weights, revision) = (before.weights.clone(), revision.as_deref());
                let back = traffic::move_alias(self.lambda, self.wanted, old, weights, revision);
                match back.await {
                    Ok(()) => format!("rolled back: version {old} is live again (alias {name})"),
                    Err(error) => self.unknown(old, &error),
                }
            }
        }
    }

    fn unknown(&self, old: &str, error: &anyhow::Error) -> String {
        let (function, alias) = (&self.wanted.name, &self.wanted.alias);
        format!(
            "the alias {alias} could not be moved back to version {old} either ({error:#}); move \
             it with aws lambda update-alias --function-name {function} --name {alias} \
             --function-version {old}"
        )
    }

    /// The old version needs the mode that the URL had.
    async fn url(&self) -> anyhow::Result<()> {
        match &self.state.url {
            Some(url) if self.begun.url => {
                traffic::update_url(self.lambda, self.wanted, &url.invoke_mode).await
            }
            _ => Ok(()),
        }
    }

    /// The old version may report failures. Without this setting, Lambda deletes those messages.
    async fn mapping(&self) -> anyhow::Result<()> {
        match &self.state.mapping {
            Some(mapping) if self.begun.mapping && reports_failures(mapping) => {
                traffic::update_mapping(self.lambda, mapping, None, true).await
            }
            _ => Ok(()),
        }
    }
}
