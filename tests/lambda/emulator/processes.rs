//! Runtimes as processes: environment variables, exits, descendants, resource limits.

use std::time::{Duration, Instant};

use surus::emulator::{EmulatedFunction, Emulator, EventStatus, Initialization, Resources};

use super::fake::{LONG, error};
use super::runtimes::{function, written};

fn text(invocation: surus::emulator::Invocation) -> String {
    String::from_utf8(invocation.result.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn runtime_has_only_the_variables_of_lambda_and_the_function() {
    let mut function = function("echo");
    function.name = "named".into();
    function.memory = 1024;
    function
        .variables
        .insert("MINE".into(), "of the function".into());
    let emulator = Emulator::start(function).await.unwrap();
    let answer = text(emulator.invoke(r#"{"variables":true}"#).await);
    let variables: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let address = emulator.address().unwrap().to_string();
    for (name, value) in [
        ("AWS_LAMBDA_RUNTIME_API", address.as_str()),
        ("AWS_LAMBDA_FUNCTION_NAME", "named"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
        ("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/named"),
        ("AWS_REGION", "us-east-1"),
        ("_HANDLER", "index.php"),
        ("TZ", ":UTC"),
        ("MINE", "of the function"),
    ] {
        assert_eq!(variables[name], value, "{name}");
    }
    assert!(variables.get("HOME").is_none());
    assert!(variables.get("AWS_LAMBDA_MAX_CONCURRENCY").is_none());
    emulator.stop().await;
}

#[tokio::test]
async fn exit_fails_the_event_and_the_next_gets_a_new_runtime() {
    let emulator = Emulator::start(function("echo")).await.unwrap();
    for (status, said) in [
        (3, "Runtime exited with error: exit status 3"),
        (0, "Runtime exited without providing a reason"),
    ] {
        let failed = emulator.invoke(format!(r#"{{"exit":{status}}}"#)).await;
        assert_eq!(
            error(&failed),
            format!("Runtime.ExitError: RequestId: ID Error: {said}")
        );
        let last = failed.log.last().unwrap();
        assert!(
            last.ends_with("Status: error\tError Type: Runtime.ExitError"),
            "{last}"
        );
        let line = format!(
            "RequestId: {} Error: {said}\nRuntime.ExitError",
            failed.request_id
        );
        assert!(failed.log.contains(&line), "{:?}", failed.log);
    }
    let next = emulator.invoke("{}").await;
    assert!(next.result.is_ok());
    assert!(
        next.report.init.is_none(),
        "suppressed: it is part of the duration"
    );
    emulator.stop().await;
}

#[tokio::test]
async fn runtime_that_fails_to_boot_is_started_twice() {
    let emulator = Emulator::start(function("exit-at-once")).await.unwrap();
    let failed = emulator.invoke("{}").await;
    assert_eq!(
        error(&failed),
        "Runtime.ExitError: RequestId: ID Error: Runtime exited with error: exit status 3"
    );
    let log = failed.log.join("\n");
    let tail = "Status: error\tError Type: Runtime.ExitError";
    assert!(log.contains(&format!("Phase: init\t{tail}")), "{log}");
    assert!(log.contains(&format!("Phase: invoke\t{tail}")), "{log}");
    emulator.stop().await;
}

#[tokio::test]
async fn missing_command_is_named() {
    let emulator = Emulator::start(EmulatedFunction::command("/no/such/bootstrap", [""; 0]))
        .await
        .unwrap();
    let failed = error(&emulator.invoke("{}").await);
    assert!(
        failed.starts_with("Runtime.InvalidEntrypoint: "),
        "{failed}"
    );
    assert!(failed.contains("/no/such/bootstrap"), "{failed}");
}

#[tokio::test]
async fn timeout_kills_all_processes_of_the_runtime() {
    let mut function = function("with-worker");
    function.timeout = Duration::from_secs(3);
    function.init_limit = LONG;
    let emulator = Emulator::start(function).await.unwrap();
    // On a busy machine, the time may be too short for this event.
    while emulator.invoke("{}").await.report.status == EventStatus::Timeout {}
    let mark = format!("AWS_LAMBDA_RUNTIME_API={}", emulator.address().unwrap());
    assert_eq!(marked(&mark), 2);
    let failed = emulator.invoke(r#"{"sleep":600000}"#).await;
    assert_eq!(failed.report.status, EventStatus::Timeout);
    assert_eq!(marked(&mark), 0);
}

/// The number of processes with this environment variable.
fn marked(variable: &str) -> usize {
    processes(variable).len()
}

/// Their directories in `/proc`.
fn processes(variable: &str) -> Vec<std::path::PathBuf> {
    let is_marked = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environ
            .split(|byte| *byte == 0)
            .any(|v| v == variable.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().map(Result::unwrap);
    let marked = entries.filter(is_marked);
    marked.map(|entry| entry.path()).collect()
}

#[tokio::test]
async fn dropped_emulator_leaves_no_process() {
    let emulator = Emulator::start(function("with-worker")).await.unwrap();
    emulator.invoke("{}").await.result.unwrap();
    let mark = format!("AWS_LAMBDA_RUNTIME_API={}", emulator.address().unwrap());
    assert_eq!(marked(&mark), 2);
    drop(emulator);
    let limit = Instant::now() + LONG;
    while marked(&mark) > 0 {
        assert!(Instant::now() < limit, "processes remain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn runtime_gets_sigterm_only_with_a_registered_extension() {
    for (behaviour, comes) in [("with-sigterm", true), ("echo", false)] {
        let mut function = function(behaviour);
        let (sender, receiver) = std::sync::mpsc::channel();
        function.sink = Some(std::sync::Arc::new(move |line: &str| {
            let _ = sender.send(line.to_string());
        }));
        let emulator = Emulator::start(function).await.unwrap();
        emulator.invoke("{}").await.result.unwrap();
        emulator.stop().await;
        let lines: Vec<String> = receiver.try_iter().collect();
        let came = lines.iter().any(|line| line == "SIGTERM has come");
        assert_eq!(came, comes, "{:?}", written(&lines));
    }
}

#[tokio::test]
async fn environments_initialize_on_demand() {
    let mut function = function("echo");
    function.environments = 2;
    let emulator = Emulator::start(function).await.unwrap();
    let slow = emulator.begin(r#"{"sleep":1500}"#).await;
    let quick = emulator.invoke("{}").await;
    assert!(quick.report.init.is_some(), "another environment");
    let slow = slow.end().await;
    assert!(slow.report.init.is_some());
    let third = emulator.invoke("{}").await;
    assert!(third.report.init.is_none());
    emulator.stop().await;
}

#[tokio::test]
async fn provisioned_environment_is_ready_before_the_first_event() {
    let mut function = function("echo");
    function.initialization = Initialization::Provisioned;
    let emulator = Emulator::start(function).await.unwrap();
    let first = emulator
        .invoke(r#"{"variable":"AWS_LAMBDA_INITIALIZATION_TYPE"}"#)
        .await;
    assert!(first.report.init.is_none());
    assert_eq!(text(first), r#""provisioned-concurrency""#);
    emulator.stop().await;
    let mut broken = super::runtimes::function("exit-at-once");
    broken.initialization = Initialization::Provisioned;
    let error = Emulator::start(broken).await.err().unwrap().to_string();
    assert!(error.contains("Runtime.ExitError"), "{error}");
}

#[tokio::test]
async fn restored_runtime_gets_its_credentials() {
    let mut function = function("echo");
    function.initialization = Initialization::SnapStart;
    let emulator = Emulator::start(function).await.unwrap();
    let answer = text(emulator.invoke(r#"{"variables":true}"#).await);
    let variables: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert!(variables.get("AWS_SECRET_ACCESS_KEY").is_none());
    let uri = variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        .as_str()
        .unwrap();
    let token = variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
        .as_str()
        .unwrap();
    let (uri, token) = (uri.to_string(), token.to_string());
    let asked = tokio::task::spawn_blocking(move || {
        let mut asked = ureq::get(&uri)
            .header("Authorization", token)
            .call()
            .unwrap();
        asked.body_mut().read_json::<serde_json::Value>().unwrap()
    });
    assert_eq!(asked.await.unwrap()["AccessKeyId"], "emulator");
    emulator.stop().await;
}

/// Whether this machine allows control groups; prints a note if not.
fn may_limit(function: &EmulatedFunction) -> bool {
    match surus::emulator::cgroup::Cgroup::try_out(function.memory) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("not tested: {error:#}");
            false
        }
    }
}

#[tokio::test]
async fn memory_size_determines_the_cpu_share() {
    let mut function = function("echo");
    // A tenth of a CPU.
    function.memory = 177;
    function.resources = Resources::Limited;
    if !may_limit(&function) {
        return;
    }
    let emulator = Emulator::start(function).await.unwrap();
    let invocation = emulator.invoke(r#"{"burn":100}"#).await;
    invocation.result.unwrap();
    // 100 ms of CPU take about a second. Even on a busy machine they cannot take less than this.
    assert!(
        invocation.report.duration > Duration::from_millis(700),
        "{:?}",
        invocation.report
    );
    emulator.stop().await;
}

#[tokio::test]
async fn child_processes_share_the_runtimes_limits() {
    let mut function = function("with-worker");
    function.resources = Resources::Limited;
    if !may_limit(&function) {
        return;
    }
    let emulator = Emulator::start(function).await.unwrap();
    emulator.invoke("{}").await.result.unwrap();
    let mark = format!("AWS_LAMBDA_RUNTIME_API={}", emulator.address().unwrap());
    let groups: Vec<bool> = processes(&mark)
        .iter()
        .map(|path| {
            std::fs::read_to_string(path.join("cgroup"))
                .unwrap()
                .contains("/surus-lambda-")
        })
        .collect();
    assert_eq!(groups, [true, true]);
    emulator.stop().await;
}

/// The control group of the environment with this Runtime API.
fn group_of(address: std::net::SocketAddr) -> std::path::PathBuf {
    let process = &processes(&format!("AWS_LAMBDA_RUNTIME_API={address}"))[0];
    let groups = std::fs::read_to_string(process.join("cgroup")).unwrap();
    let line = groups.lines().find(|line| line.contains("/surus-lambda-"));
    let mut parts = line.unwrap().splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next().unwrap(), parts.next().unwrap());
    let root = std::path::Path::new("/sys/fs/cgroup").join(controllers);
    root.join(path.trim_start_matches('/'))
}

#[tokio::test]
async fn exceeding_the_memory_limit_kills_the_function() {
    let mut function = function("echo");
    function.resources = Resources::Limited;
    if !may_limit(&function) {
        return;
    }
    let emulator = Emulator::start(function).await.unwrap();
    let invocation = emulator.invoke(r#"{"allocate":40}"#).await;
    invocation.result.unwrap();
    let used = invocation.report.max_memory;
    assert!((40..=128).contains(&used), "{used} MB");
    let failed = emulator.invoke(r#"{"allocate":300}"#).await;
    assert_eq!(
        error(&failed),
        "Runtime.ExitError: RequestId: ID Error: Runtime exited with error: signal: killed"
    );
    assert_eq!(
        failed.report.status,
        EventStatus::Error("Runtime.OutOfMemory".into())
    );
    assert_eq!(failed.report.max_memory, failed.report.memory_size);
    emulator.invoke("{}").await.result.unwrap();
    let group = group_of(emulator.address().unwrap());
    assert!(group.is_dir(), "{}", group.display());
    emulator.stop().await;
    assert!(!group.exists(), "{} still exists", group.display());
}
