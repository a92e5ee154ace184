//! An application as a function: the emulator runs `surus lambda` behind its services.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use surus::emulator::http::{Gateway, HttpService};
use surus::emulator::{EmulatedFunction, Emulator, Initialization, Invocation, Runtime};
use tokio::net::TcpListener;

/// The running function; dropping it ends the function.
pub struct Behind {
    emulator: Emulator,
    log: Arc<Mutex<String>>,
    runtime: tokio::runtime::Runtime,
}

impl Behind {
    /// Returns once the application has booted.
    pub fn start(dir: &Path, env: &[(&str, &str)]) -> Behind {
        Behind::start_as(dir, env, |_| {})
    }

    /// The same with another configuration of the function.
    pub fn start_as(
        dir: &Path,
        env: &[(&str, &str)],
        configure: impl FnOnce(&mut EmulatedFunction),
    ) -> Behind {
        let log = Arc::new(Mutex::new(String::new()));
        let sink = log.clone();
        let mut function = EmulatedFunction::new(Runtime::Command {
            program: env!("CARGO_BIN_EXE_surus").into(),
            arguments: vec!["lambda".into(), dir.to_str().unwrap().into()],
            directory: dir.into(),
        });
        function.timeout = Duration::from_secs(60);
        function.initialization = Initialization::Provisioned;
        function.keeps_log = false;
        function.sink = Some(Arc::new(move |line: &str| {
            let mut log = sink.lock().unwrap();
            log.push_str(line);
            log.push('\n');
        }));
        let types = ("SURUS_LAMBDA_BINARY_MEDIA_TYPES", "*/*");
        for (name, value) in env.iter().chain([&types]) {
            function.variables.insert((*name).into(), (*value).into());
        }
        configure(&mut function);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let emulator = runtime.block_on(Emulator::start(function));
        let emulator = emulator.unwrap_or_else(|error| {
            panic!("{error:#}\n{}", log.lock().unwrap());
        });
        Behind {
            emulator,
            log,
            runtime,
        }
    }

    /// Starts a service and returns its `127.0.0.1:PORT`.
    pub fn service(&self, service: HttpService) -> String {
        self.serve(service, false)
    }

    /// The same for a service that streams; `lambda.mode` must be `stream`.
    pub fn streaming_service(&self, service: HttpService) -> String {
        self.serve(service, true)
    }

    fn serve(&self, service: HttpService, is_streamed: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0");
        let listener = self.runtime.block_on(listener).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut gateway = Gateway::new(self.emulator.clone(), service, is_streamed);
        gateway.binary_media_types = "*/*".parse().unwrap();
        self.runtime.spawn(gateway.serve(listener));
        address
    }

    /// The result of an event.
    pub fn invoke(&self, event: &str) -> serde_json::Value {
        let invocation = self.invocation(event);
        let result = invocation.result.unwrap_or_else(|error| {
            panic!("{}\n{}", String::from_utf8_lossy(&error.body), self.log())
        });
        serde_json::from_slice(&result).unwrap()
    }

    /// The invocation of an event, which may fail.
    pub fn invocation(&self, event: &str) -> Invocation {
        let invoking = self.emulator.invoke(event.to_string());
        self.runtime.block_on(invoking)
    }

    /// The function's log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.runtime.block_on(self.emulator.stop());
    }
}
