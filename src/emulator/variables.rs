//! The environment variables that Lambda gives a runtime.

use std::path::Path;

use super::function::{EmulatedFunction, Initialization};
use super::identifier;

/// The path that a restored function gets its credentials from.
pub const CREDENTIALS: &str = "/2021-04-23/credentials";

/// All variables; the function's own override Lambda's.
pub fn build(
    function: &EmulatedFunction,
    address: &str,
    directory: &Path,
    token: &str,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut set = |name: &str, value: &str| all.push((name.to_string(), value.to_string()));
    let task_root = directory.display().to_string();
    set("AWS_LAMBDA_RUNTIME_API", address);
    set("_HANDLER", &function.handler);
    set("LAMBDA_TASK_ROOT", &task_root);
    set("LAMBDA_RUNTIME_DIR", "/var/runtime");
    set("AWS_LAMBDA_FUNCTION_NAME", &function.name);
    set("AWS_LAMBDA_FUNCTION_VERSION", &function.version);
    set(
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        &function.memory.to_string(),
    );
    set(
        "AWS_LAMBDA_LOG_GROUP_NAME",
        &format!("/aws/lambda/{}", function.name),
    );
    set("AWS_LAMBDA_LOG_STREAM_NAME", &stream(function));
    set("AWS_LAMBDA_LOG_FORMAT", function.log_format.name());
    set(
        "AWS_LAMBDA_INITIALIZATION_TYPE",
        function.initialization.name(),
    );
    if let Initialization::ManagedInstances { concurrency } = function.initialization {
        set("AWS_LAMBDA_MAX_CONCURRENCY", &concurrency.to_string());
    }
    set("AWS_REGION", &function.region);
    set("AWS_DEFAULT_REGION", &function.region);
    if function.initialization == Initialization::SnapStart {
        let uri = format!("http://{address}{CREDENTIALS}");
        set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &uri);
        set("AWS_CONTAINER_AUTHORIZATION_TOKEN", token);
    } else {
        set("AWS_ACCESS_KEY_ID", "emulator");
        set("AWS_SECRET_ACCESS_KEY", "emulator");
        set("AWS_SESSION_TOKEN", "emulator");
    }
    set("AWS_EXECUTION_ENV", "AWS_Lambda_provided.al2023");
    set("LANG", "en_US.UTF-8");
    set("TZ", ":UTC");
    set("PATH", "/usr/local/bin:/usr/bin/:/bin:/opt/bin");
    set(
        "LD_LIBRARY_PATH",
        &format!(
            "/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:{task_root}:{task_root}/lib:/opt/lib"
        ),
    );
    all.extend(
        function
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    all
}

/// `2026/11/21/[$LATEST]0f3c…`
fn stream(function: &EmulatedFunction) -> String {
    let (year, month, day, ..) = identifier::civil(identifier::since_epoch());
    format!(
        "{year:04}/{month:02}/{day:02}/[{}]{:016x}{:016x}",
        function.version,
        identifier::random(),
        identifier::random()
    )
}
