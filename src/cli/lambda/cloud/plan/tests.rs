//! Tests of the order and choice of a deployment's steps.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_lambda::types::{
    Architecture, EnvironmentResponse, EventSourceMappingConfiguration, FunctionResponseType,
    Runtime,
};

use super::super::state::{Alias, Url};
use super::super::wanted::Zip;
use super::*;

fn wanted() -> Wanted {
    Wanted {
        name: "shop".into(),
        handler: "bootstrap".into(),
        memory: 1024,
        timeout: 60,
        role: None,
        environment: BTreeMap::from([("APP_ENV".into(), "prod".into())]),
        alias: "live".into(),
        url: false,
        streams: false,
        queue: None,
        reports_failures: true,
        smoke: Some("/".into()),
        zip: Zip {
            path: "function.zip".into(),
            size: 1,
            sha256: "new".into(),
            architecture: "arm64",
        },
        bucket: None,
    }
}

fn function(sha256: &str) -> GetFunctionConfigurationOutput {
    let variables = EnvironmentResponse::builder()
        .variables("APP_ENV", "prod")
        .variables("OTHER", "stays");
    GetFunctionConfigurationOutput::builder()
        .architectures(Architecture::Arm64)
        .code_sha256(sha256)
        .environment(variables.build())
        .handler("bootstrap")
        .memory_size(1024)
        .runtime(Runtime::from(RUNTIME))
        .timeout(60)
        .build()
}

/// The alias calls version 3 with the code that `$LATEST` has.
fn deployed(sha256: &str) -> State {
    State {
        latest: Some(function(sha256)),
        alias: Some(Alias {
            version: "3".into(),
            revision: None,
            weights: HashMap::new(),
            configuration: function(sha256),
        }),
        ..State::default()
    }
}

fn mapping(function: &str, reports: bool) -> EventSourceMappingConfiguration {
    let types = reports.then(|| vec![FunctionResponseType::ReportBatchItemFailures]);
    EventSourceMappingConfiguration::builder()
        .function_arn(format!("arn:aws:lambda:eu-west-1:1:function:{function}"))
        .set_function_response_types(types)
        .build()
}

const SWITCH: [Step; 3] = [Step::Publish, Step::Smoke, Step::Point];

#[test]
fn same_code_and_configuration_need_no_step() {
    assert_eq!(steps(&wanted(), &deployed("new")), []);
}

#[test]
fn divided_traffic_is_moved_to_the_new_version() {
    let mut state = deployed("new");
    if let Some(alias) = &mut state.alias {
        alias.weights.insert("2".into(), 0.1);
    }
    assert_eq!(steps(&wanted(), &state), SWITCH);
}

#[test]
fn version_that_was_not_published_is_published() {
    let mut state = deployed("old");
    state.latest = Some(function("new"));
    assert_eq!(steps(&wanted(), &state), SWITCH);
}

#[test]
fn private_url_gets_no_permissions() {
    let mut wanted = wanted();
    wanted.url = true;
    let mut state = deployed("new");
    let url = |is_public| Url {
        address: "https://a.example/".into(),
        invoke_mode: "BUFFERED".into(),
        is_public,
    };
    state.url = Some(url(false));
    assert_eq!(steps(&wanted, &state), []);
    state.url = Some(url(true));
    let permissions = [
        Step::Permit(Permission::Url),
        Step::Permit(Permission::Function),
    ];
    assert_eq!(steps(&wanted, &state), permissions);
}

#[test]
fn queue_keeps_reported_messages_before_the_version_that_reports_them() {
    let mut wanted = wanted();
    wanted.queue = Some("arn:aws:sqs:eu-west-1:1:jobs".into());
    let mut state = deployed("old");
    state.mapping = Some(mapping("shop:live", false));
    let taken = steps(&wanted, &state);
    assert_eq!(taken[..2], [Step::ReportFailures, Step::UpdateCode]);
    assert_eq!(taken[2..], SWITCH);
    // Alone, it needs no version.
    let mut state = deployed("new");
    state.mapping = Some(mapping("shop:live", false));
    assert_eq!(steps(&wanted, &state), [Step::ReportFailures]);
    state.mapping = Some(mapping("shop:live", true));
    assert_eq!(steps(&wanted, &state), []);
}

#[test]
fn queue_of_a_version_that_does_not_report_changes_after_the_switch() {
    let mut wanted = wanted();
    wanted.queue = Some("arn:aws:sqs:eu-west-1:1:jobs".into());
    wanted.reports_failures = false;
    let mut state = deployed("old");
    state.mapping = Some(mapping("shop:live", true));
    let taken = steps(&wanted, &state);
    assert_eq!(taken.last(), Some(&Step::UpdateMapping));
    assert_eq!(taken[taken.len() - 2], Step::Point);
    let mut state = deployed("new");
    state.mapping = Some(mapping("shop", false));
    assert_eq!(steps(&wanted, &state), [Step::UpdateMapping]);
}

#[test]
fn changes_never_contain_the_values_of_variables() {
    let mut wanted = wanted();
    let secrets = [("APP_ENV", "secret-1"), ("DSN", "secret-2")];
    let secrets = secrets.map(|(name, value)| (name.into(), value.into()));
    wanted.environment = BTreeMap::from(secrets);
    let state = deployed("new");
    let taken = steps(&wanted, &state);
    let text = Described(&taken[0], &wanted, &state).to_string();
    assert_eq!(
        text,
        "update the configuration: another value of APP_ENV, variable DSN"
    );
}
