//! The steps of a deployment, in order: what differs between the function that is wanted and the
//! one on AWS.

use std::fmt::{self, Display, Formatter};

use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;

use super::state::{State, reports_failures, variables};
use super::wanted::Wanted;
use crate::package::sizes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes the mapping ready for a version that reports failures. Before that version gets
    /// messages: without it, Lambda deletes those that it reports.
    ReportFailures,
    Upload,
    Create,
    UpdateCode,
    /// With what changes.
    UpdateConfiguration(Vec<String>),
    Publish,
    Smoke,
    /// Creates or moves the alias.
    Point,
    CreateUrl,
    UpdateUrl,
    Permit(Permission),
    CreateMapping,
    UpdateMapping,
}

/// What a public URL needs since October 2025.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Url,
    Function,
}

impl Permission {
    /// The id of the statement in the function's policy.
    pub fn id(self) -> &'static str {
        match self {
            Permission::Url => "SurusFunctionUrl",
            Permission::Function => "SurusFunctionUrlInvoke",
        }
    }

    pub fn action(self) -> &'static str {
        match self {
            Permission::Url => "lambda:InvokeFunctionUrl",
            Permission::Function => "lambda:InvokeFunction",
        }
    }
}

/// The name of the only runtime for a zip with `bootstrap`.
pub const RUNTIME: &str = "provided.al2023";

/// Empty if the function is as wanted.
pub fn steps(wanted: &Wanted, state: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(mapping) = &state.mapping
        && wanted.reports_failures
        && !reports_failures(mapping)
    {
        steps.push(Step::ReportFailures);
    }
    let others = steps.len();
    let has_code = |it: &GetFunctionConfigurationOutput| !code_differs(wanted, it);
    if wanted.bucket.is_some() && !state.latest.as_ref().is_some_and(has_code) {
        steps.push(Step::Upload);
    }
    match &state.latest {
        None => steps.push(Step::Create),
        Some(latest) => {
            if code_differs(wanted, latest) {
                steps.push(Step::UpdateCode);
            }
            let changes = changes(wanted, latest);
            if !changes.is_empty() {
                steps.push(Step::UpdateConfiguration(changes));
            }
        }
    }
    let is_live = state.alias.as_ref().is_some_and(|alias| {
        has_code(&alias.configuration)
            && changes(wanted, &alias.configuration).is_empty()
            && alias.weights.is_empty()
    });
    if steps.len() > others || !is_live {
        steps.push(Step::Publish);
        if wanted.smoke.is_some() {
            steps.push(Step::Smoke);
        }
        steps.push(Step::Point);
    }
    if wanted.url {
        match &state.url {
            None => steps.push(Step::CreateUrl),
            Some(url) if url.invoke_mode != wanted.invoke_mode() => steps.push(Step::UpdateUrl),
            Some(_) => {}
        }
        // A URL that someone has made private stays private.
        if state.url.as_ref().is_none_or(|url| url.is_public) {
            let needed = [Permission::Url, Permission::Function].into_iter();
            let missing = needed.filter(|it| !state.permissions.iter().any(|id| id == it.id()));
            steps.extend(missing.map(Step::Permit));
        }
    }
    if wanted.queue.is_some() {
        match &state.mapping {
            None => steps.push(Step::CreateMapping),
            Some(mapping) => {
                let arn = mapping.function_arn().unwrap_or_default();
                if !arn.ends_with(&format!(":{}", wanted.alias))
                    || reports_failures(mapping) && !wanted.reports_failures
                {
                    steps.push(Step::UpdateMapping);
                }
            }
        }
    }
    steps
}

fn code_differs(wanted: &Wanted, function: &GetFunctionConfigurationOutput) -> bool {
    let architecture = function.architectures().first();
    function.code_sha256() != Some(&wanted.zip.sha256)
        || architecture.map(|it| it.as_str()) != Some(wanted.zip.architecture)
}

/// What differs, without values of variables, which may be secrets.
fn changes(wanted: &Wanted, function: &GetFunctionConfigurationOutput) -> Vec<String> {
    let mut changes = Vec::new();
    let mut compare = |what: &str, before: String, after: String| {
        if before != after {
            changes.push(format!("{what} {before} → {after}"));
        }
    };
    let text = |value: Option<&str>| value.unwrap_or("none").to_string();
    let runtime = function.runtime().map(|it| it.as_str());
    compare("runtime", text(runtime), RUNTIME.into());
    compare("handler", text(function.handler()), wanted.handler.clone());
    let (memory, timeout) = (function.memory_size(), function.timeout());
    let mebibytes = |value: i32| format!("{value} MB");
    compare(
        "memory",
        mebibytes(memory.unwrap_or(128)),
        mebibytes(wanted.memory),
    );
    let seconds = |value: i32| format!("{value} s");
    compare(
        "timeout",
        seconds(timeout.unwrap_or(3)),
        seconds(wanted.timeout),
    );
    if let Some(role) = &wanted.role {
        compare("role", text(function.role()), role.clone());
    }
    let there = variables(function);
    for (name, value) in &wanted.environment {
        match there.get(name) {
            Some(before) if before == value => {}
            Some(_) => changes.push(format!("another value of {name}")),
            None => changes.push(format!("variable {name}")),
        }
    }
    changes
}

/// A step with the words for people.
pub struct Described<'a>(pub &'a Step, pub &'a Wanted, pub &'a State);

impl Display for Described<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Described(step, wanted, state) = self;
        let name = &wanted.name;
        let zip = || {
            let size = sizes::mebibytes(wanted.zip.size);
            format!("{}, {}", size.trim(), wanted.zip.architecture)
        };
        let queue = wanted.queue.as_deref().unwrap_or_default();
        match step {
            Step::ReportFailures => write!(to, "let {queue} keep messages that are reported"),
            Step::Upload => {
                let bucket = wanted.bucket.as_deref().unwrap_or_default();
                write!(to, "upload the zip to s3://{bucket}/{}", wanted.key())
            }
            Step::Create => write!(
                to,
                "create the function {name} ({}, {} MB, {} s)",
                zip(),
                wanted.memory,
                wanted.timeout
            ),
            Step::UpdateCode => write!(to, "update the code of {name} ({})", zip()),
            Step::UpdateConfiguration(changes) => {
                write!(to, "update the configuration: {}", changes.join(", "))
            }
            Step::Publish => write!(to, "publish a version"),
            Step::Smoke => {
                let path = wanted.smoke.as_deref().unwrap_or_default();
                write!(to, "request {path} of the new version")
            }
            Step::Point => match &state.alias {
                Some(alias) => write!(
                    to,
                    "move the alias {} to the new version (now {})",
                    wanted.alias, alias.version
                ),
                None => write!(to, "create the alias {}", wanted.alias),
            },
            Step::CreateUrl => write!(
                to,
                "create a public function URL ({})",
                wanted.invoke_mode()
            ),
            Step::UpdateUrl => {
                write!(to, "change the function URL to {}", wanted.invoke_mode())
            }
            Step::Permit(permission) => {
                write!(to, "allow {} through the URL", permission.action())
            }
            Step::CreateMapping => write!(to, "take messages of {queue}"),
            Step::UpdateMapping => write!(
                to,
                "change the event source mapping of {queue}: alias {}, {} reports of failed \
                 messages",
                wanted.alias,
                if wanted.reports_failures {
                    "with"
                } else {
                    "without"
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests;
