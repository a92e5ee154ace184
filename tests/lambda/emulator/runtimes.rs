//! Runtime processes for the tests: this test program itself, with a selectable behaviour.

use std::io::Read;
use std::time::Duration;

use lambda_runtime::streaming::{Body, Response};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use surus::emulator::EmulatedFunction;

const BEHAVIOUR: &str = "EMULATED_RUNTIME";

/// A function that runs this program with this behaviour.
pub fn function(behaviour: &str) -> EmulatedFunction {
    let program = std::env::current_exe().unwrap();
    let mut function = EmulatedFunction::command(
        program,
        [
            "--exact",
            "emulator::runtimes::program_acts_as_a_runtime_if_the_variable_is_set",
            "--nocapture",
        ],
    );
    function
        .variables
        .insert(BEHAVIOUR.into(), behaviour.into());
    function.timeout = super::fake::LONG;
    function
}

/// Removes the test harness's own output from the log.
pub fn written(log: &[String]) -> Vec<&str> {
    let of_harness = |line: &str| line.is_empty() || line.starts_with("running 1 test");
    let lines = log.iter().map(String::as_str);
    lines
        .map(|line| {
            line.trim_start_matches(
                "test emulator::runtimes::program_acts_as_a_runtime_if_the_variable_is_set ... ",
            )
        })
        .filter(|line| !of_harness(line))
        .collect()
}

#[test]
fn program_acts_as_a_runtime_if_the_variable_is_set() {
    let Ok(behaviour) = std::env::var(BEHAVIOUR) else {
        assert!(std::env::var("AWS_LAMBDA_RUNTIME_API").is_err());
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ended = match behaviour.as_str() {
        "stream" => runtime.block_on(lambda_runtime::run(service_fn(stream))),
        "exit-at-once" => std::process::exit(3),
        "with-worker" => {
            let mut worker = std::process::Command::new("sleep")
                .arg("600")
                .spawn()
                .unwrap();
            runtime.spawn_blocking(move || {
                let status = worker.wait().unwrap();
                println!("the worker ended: {status}");
            });
            runtime.block_on(lambda_runtime::run(service_fn(handle)))
        }
        "with-sigterm" => runtime.block_on(async {
            register_as_extension().await;
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
            tokio::spawn(async move {
                terminate.recv().await;
                println!("SIGTERM has come");
                std::process::exit(0);
            });
            lambda_runtime::run(service_fn(handle)).await
        }),
        _ => runtime.block_on(lambda_runtime::run(service_fn(handle))),
    };
    ended.unwrap();
}

/// Does what the event says and answers with it.
async fn handle(event: LambdaEvent<Value>) -> Result<Value, Error> {
    let what = event.payload;
    if let Some(text) = what["print"].as_str() {
        println!("{text}");
    }
    if let Some(text) = what["print_error"].as_str() {
        eprint!("{text}");
    }
    if let Some(millis) = what["sleep"].as_u64() {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    if let Some(status) = what["exit"].as_i64() {
        std::process::exit(status as i32);
    }
    if let Some(megabytes) = what["allocate"].as_u64() {
        let mut memory = vec![0u8; (megabytes as usize) << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        return Ok(json!(
            memory.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        ));
    }
    if let Some(millis) = what["burn"].as_u64() {
        // CPU time, so that a CPU share makes it take longer.
        let mut spent = 0u64;
        let began = cpu_time();
        while cpu_time() - began < Duration::from_millis(millis) {
            spent = spent.wrapping_add(1);
        }
        return Ok(json!(spent));
    }
    if let Some(message) = what["fail"].as_str() {
        return Err(message.to_string().into());
    }
    if let Some(path) = what["write"].as_str() {
        let written = std::fs::write(path, "x");
        return Ok(json!(
            written.map_err(|error| error.kind().to_string()).err()
        ));
    }
    if let Some(name) = what["variable"].as_str() {
        return Ok(json!(std::env::var(name).ok()));
    }
    if what["variables"] == true {
        let all: std::collections::BTreeMap<_, _> = std::env::vars().collect();
        return Ok(json!(all));
    }
    Ok(json!({
        "payload": what,
        "request_id": event.context.request_id,
        "arn": event.context.invoked_function_arn,
        "deadline": event.context.deadline,
    }))
}

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

async fn stream(event: LambdaEvent<Value>) -> Result<Response<Body>, Error> {
    let (mut sender, body) = Body::channel();
    tokio::spawn(async move {
        for number in 0..3 {
            let piece = format!("piece {number} of {}\n", event.payload);
            sender.send_data(piece.into()).await.unwrap();
        }
    });
    Ok(Response::from(body))
}

/// Registers as an internal extension without events, because Lambda then sends SIGTERM.
async fn register_as_extension() {
    let address = std::env::var("AWS_LAMBDA_RUNTIME_API").unwrap();
    tokio::task::spawn_blocking(move || {
        let url = format!("http://{address}/2020-01-01/extension/");
        let registered = ureq::post(&format!("{url}register"))
            .header("Lambda-Extension-Name", "for-sigterm")
            .send(r#"{"events":[]}"#)
            .unwrap();
        let id = registered.headers()["lambda-extension-identifier"].clone();
        std::thread::spawn(move || {
            let waiting = ureq::get(&format!("{url}event/next"))
                .header("Lambda-Extension-Identifier", id)
                .call();
            if let Ok(waiting) = waiting {
                let _ = waiting.into_body().into_reader().read(&mut [0]);
            }
        });
    })
    .await
    .unwrap();
}
