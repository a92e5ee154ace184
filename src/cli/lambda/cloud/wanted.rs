//! The function as it should be: from surus.toml, the options and the zip.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::super::cloud_options::Deploy;
use super::super::deployed::start_of;
use super::super::template::handler_of;
use crate::config::Config;
use crate::deploy::{Function, Http, TriggerQueue};
use crate::fronts::lambda::ResponseMode;
use crate::fronts::lambda::batch::ReportBatchItemFailures;
use crate::package::{elf, sizes};

pub struct Wanted {
    pub name: String,
    pub handler: String,
    /// In MB.
    pub memory: i32,
    /// In seconds.
    pub timeout: i32,
    pub role: Option<String>,
    /// Variables that must have these values. Others stay.
    pub environment: BTreeMap<String, String>,
    pub alias: String,
    pub url: bool,
    /// The function streams its responses.
    pub streams: bool,
    pub queue: Option<String>,
    /// The function reports which messages of a batch have failed.
    pub reports_failures: bool,
    pub smoke: Option<String>,
    pub zip: Zip,
    /// The bucket for the zip, if that is too large for a direct upload.
    pub bucket: Option<String>,
}

/// The zip that `surus lambda package` has built.
pub struct Zip {
    pub path: PathBuf,
    pub size: u64,
    /// SHA-256 in base64, as Lambda states it.
    pub sha256: String,
    /// Lambda's name.
    pub architecture: &'static str,
}

impl Zip {
    fn read(path: &Path) -> anyhow::Result<Zip> {
        let shown = path.display();
        if !path.is_file() {
            bail!("{shown} does not exist; build it with surus lambda package, or name it (--zip)");
        }
        let start = start_of(path, "bootstrap")?;
        let start = start.with_context(|| {
            format!("{shown} contains no bootstrap; build it with surus lambda package")
        })?;
        let architecture = elf::machine(&start).with_context(|| {
            format!(
                "the bootstrap in {shown} is for neither of Lambda's architectures; build Surus \
                 with make musl on x86_64 or arm64, and the zip with surus lambda package"
            )
        })?;
        let content = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
        Ok(Zip {
            path: path.into(),
            size: content.len() as u64,
            sha256: STANDARD.encode(Sha256::digest(&content)),
            architecture,
        })
    }

    /// The content that [`Zip::read`] has hashed; an error if the file has changed.
    pub fn content(&self) -> anyhow::Result<Vec<u8>> {
        let shown = self.path.display();
        let content = std::fs::read(&self.path).with_context(|| format!("cannot read {shown}"))?;
        if STANDARD.encode(Sha256::digest(&content)) != self.sha256 {
            bail!("{shown} has changed since the deployment began; deploy again");
        }
        Ok(content)
    }
}

impl Wanted {
    pub fn new(args: &Deploy, name: String, config: &Config) -> anyhow::Result<Wanted> {
        let settings = &config.deploy;
        let mut environment = settings.env.clone();
        for entry in &args.environment {
            let (name, value) = entry
                .split_once('=')
                .with_context(|| format!("--env {entry}: expected NAME=VALUE"))?;
            environment.insert(name.into(), value.into());
        }
        let queue = args.queue.clone().or_else(|| settings.queue.clone());
        if let Some(queue) = &queue
            && !(queue.starts_with("arn:") && queue.contains(":sqs:"))
        {
            bail!(
                "--queue {queue}: expected the ARN of a queue in SQS, such as \
                 arn:aws:sqs:eu-central-1:123456789012:jobs (deploy.queue)"
            );
        }
        let role = args.role.clone().or_else(|| settings.role.clone());
        if let Some(role) = &role
            && !(role.starts_with("arn:") && role.contains(":role/"))
        {
            bail!(
                "--role {role}: expected the ARN of a role, such as \
                 arn:aws:iam::123456789012:role/{name} (deploy.role)"
            );
        }
        let timeout = args.timeout.unwrap_or(settings.timeout).0;
        let memory = args.memory.unwrap_or(settings.memory);
        let handler = handler_of(config)?;
        let seconds = timeout.as_secs_f64().ceil() as u32;
        let zip = Zip::read(&args.zip)?;
        let checked = Function {
            name,
            handler,
            architecture: zip.architecture.into(),
            memory,
            timeout: seconds,
            // Something else may call it, such as `surus lambda console`.
            http: Http::Url,
            queue: queue.as_ref().map(|arn| match arn.ends_with(".fifo") {
                true => TriggerQueue::Fifo,
                false => TriggerQueue::Standard,
            }),
            streams: config.lambda.mode == ResponseMode::Stream,
            environment,
            zip: zip.path.display().to_string(),
        };
        checked.check()?;
        let url = !args.no_url && settings.url.unwrap_or(queue.is_none());
        let smoke = args.smoke.as_ref().unwrap_or(&settings.smoke);
        if !smoke.is_empty() && !smoke.starts_with('/') {
            bail!("--smoke {smoke}: expected a path that begins with / (deploy.smoke)");
        }
        let bucket = args.bucket.clone().or_else(|| settings.bucket.clone());
        let is_large = zip.size > sizes::UPLOADED;
        if is_large && bucket.is_none() {
            bail!(
                "{} has {}, and Lambda accepts zips above 50 MiB only from S3; name a bucket of \
                 the function's region with --bucket (deploy.bucket), and create it with \
                 aws s3 mb s3://NAME",
                zip.path.display(),
                sizes::mebibytes(zip.size).trim()
            );
        }
        Ok(Wanted {
            handler: checked.handler,
            memory: memory as i32,
            timeout: seconds as i32,
            role,
            alias: args.alias.as_ref().unwrap_or(&settings.alias).clone(),
            url,
            streams: checked.streams,
            queue,
            reports_failures: config.lambda.report_batch_item_failures
                == ReportBatchItemFailures::On,
            smoke: (url && !args.no_smoke && !smoke.is_empty()).then(|| smoke.clone()),
            bucket: bucket.filter(|_| is_large),
            environment: checked.environment,
            name: checked.name,
            zip,
        })
    }

    /// The name of the object in the bucket. Another content has another name.
    pub fn key(&self) -> String {
        let plain = self.zip.sha256.replace(['/', '+', '='], "-");
        format!("surus/{}/{plain}.zip", self.name)
    }

    pub fn invoke_mode(&self) -> &'static str {
        match self.streams {
            true => "RESPONSE_STREAM",
            false => "BUFFERED",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn zip_that_changes_during_the_deployment_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("function.zip");
        std::fs::write(&path, "before").unwrap();
        let zip = Zip {
            sha256: STANDARD.encode(Sha256::digest("before")),
            path: path.clone(),
            size: 6,
            architecture: "arm64",
        };
        assert_eq!(zip.content().unwrap(), b"before");
        std::fs::write(&path, "after").unwrap();
        let error = zip.content().unwrap_err().to_string();
        assert!(error.contains("has changed"), "{error}");
    }
}
