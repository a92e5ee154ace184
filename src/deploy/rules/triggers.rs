//! Rules about the triggers that send HTTP requests to a function.

use crate::deploy::API_SECONDS;
use crate::deploy::finding::{Finding, certain, perhaps};
use crate::deploy::run_settings::RunSettings;
use crate::deploy::stack::{HttpTrigger, Stack, StackFunction, TriggerKind};

/// Adds findings to `found`.
pub fn find(
    function: &StackFunction,
    trigger: &HttpTrigger,
    stack: &Stack,
    runs: &RunSettings,
    found: &mut Vec<Finding>,
) {
    let name = &function.name;
    let too_long = |limit: u64| {
        function
            .timeout
            .as_ref()
            .filter(|timeout| timeout.value > limit)
    };
    match &trigger.kind {
        TriggerKind::Url {
            streams,
            is_public,
            by_sam,
        } => {
            match (runs.streams, streams) {
                (true, false) => certain(
                    found,
                    trigger.line,
                    format!(
                        "{name} streams responses ([lambda] mode), but its URL does not, so \
                         clients would see the stream's prelude; set InvokeMode: RESPONSE_STREAM, \
                         or mode = \"buffered\""
                    ),
                ),
                (false, true) => perhaps(
                    found,
                    trigger.line,
                    format!(
                        "the URL of {name} can stream, but its responses are buffered and limited \
                         to 6 MB; set [lambda] mode = \"stream\", or remove InvokeMode"
                    ),
                ),
                _ => {}
            }
            let may = |action: &str| {
                stack
                    .permissions
                    .iter()
                    .any(|(of, what)| of == name && what == action)
            };
            for action in ["lambda:InvokeFunctionUrl", "lambda:InvokeFunction"] {
                if *is_public && !by_sam && !may(action) {
                    certain(
                        found,
                        trigger.line,
                        format!(
                            "the URL of {name} has AuthType NONE, but without a permission for \
                             {action} it answers 403 (since October 2025 it needs two); add an \
                             AWS::Lambda::Permission with Action: {action}, Principal: \"*\" and \
                             {}",
                            if action.ends_with("Url") {
                                "FunctionUrlAuthType: NONE"
                            } else {
                                "InvokedViaFunctionUrl: true"
                            }
                        ),
                    );
                }
            }
        }
        TriggerKind::HttpApi => {
            if runs.streams {
                certain(
                    found,
                    trigger.line,
                    format!(
                        "{name} streams responses ([lambda] mode), but an HTTP API does not, so \
                         clients would see the stream's prelude; set mode = \"buffered\", or use a \
                         function URL"
                    ),
                );
            }
            if let Some(timeout) = too_long(u64::from(API_SECONDS)) {
                perhaps(
                    found,
                    timeout.line,
                    format!(
                        "{name} has Timeout {}, but its HTTP API answers 503 after {API_SECONDS} s \
                         while the function continues; lower Timeout to {}, or use a function URL",
                        timeout.value,
                        API_SECONDS - 2
                    ),
                );
            }
        }
        TriggerKind::RestApi {
            takes_bytes,
            streams,
        } => {
            if runs.streams && !streams {
                perhaps(
                    found,
                    trigger.line,
                    format!(
                        "{name} streams responses ([lambda] mode), but its REST API streams only \
                         with responseTransferMode: STREAM in the integration; elsewhere clients \
                         see the stream's prelude; set that, or mode = \"buffered\""
                    ),
                );
            }
            if let Some(timeout) = too_long(29) {
                perhaps(
                    found,
                    timeout.line,
                    format!(
                        "{name} has Timeout {}, but its REST API answers 504 after 29 s, unless \
                         its limit is raised, while the function continues; lower Timeout to 28",
                        timeout.value
                    ),
                );
            }
            match (takes_bytes, runs.sends_base64) {
                (false, false) => perhaps(
                    found,
                    trigger.line,
                    format!(
                        "the REST API of {name} treats all bodies as text, which damages uploads \
                         and images; set its BinaryMediaTypes: [\"*/*\"], and for Surus [lambda] \
                         binary_media_types = [\"*/*\"]"
                    ),
                ),
                (false, true) => certain(
                    found,
                    trigger.line,
                    format!(
                        "{name} sends compressed pages ([lambda] binary_media_types), but its REST \
                         API would pass them on as base64; set its BinaryMediaTypes: [\"*/*\"]"
                    ),
                ),
                (true, false) if !runs.streams => perhaps(
                    found,
                    trigger.line,
                    format!(
                        "the REST API of {name} has BinaryMediaTypes, but Surus is not told, so \
                         pages are not compressed; set [lambda] binary_media_types, or \
                         SURUS_LAMBDA_BINARY_MEDIA_TYPES: '*/*' in the function's Environment"
                    ),
                ),
                _ => {}
            }
        }
        TriggerKind::Alb { multi_value } => {
            if !multi_value {
                perhaps(
                    found,
                    trigger.line,
                    format!(
                        "the load balancer of {name} passes on one value per header and query \
                         parameter: of several cookies or equal names only the last is sure to \
                         arrive; write TargetGroupAttributes: \
                         [{{Key: lambda.multi_value_headers.enabled, Value: \"true\"}}]"
                    ),
                );
            }
            let may = |(of, what): &(String, String)| of == name && what == "lambda:InvokeFunction";
            if !stack.permissions.iter().any(may) {
                perhaps(
                    found,
                    trigger.line,
                    format!(
                        "a load balancer needs a permission before {name} can be in its target \
                         group; add an AWS::Lambda::Permission with Action: lambda:InvokeFunction \
                         and Principal: elasticloadbalancing.amazonaws.com, and DependsOn it"
                    ),
                );
            }
            if runs.streams {
                certain(
                    found,
                    trigger.line,
                    format!(
                        "{name} streams responses ([lambda] mode), but a load balancer does not; \
                         set mode = \"buffered\""
                    ),
                );
            }
        }
    }
}
