//! The applications that are measured, and how Surus runs them as functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use surus::emulator::{Function, Initialization, Runtime};
use surus::engines::Entry;
use tempfile::TempDir;

pub struct Apps {
    dir: TempDir,
}

/// An application with one page.
#[derive(Clone, Copy, PartialEq)]
pub struct App {
    pub name: &'static str,
    pub path: &'static str,
    warmup: &'static str,
}

pub const PLAIN: App = App {
    name: "plain",
    path: "/hello.php",
    warmup: "",
};
pub const SYMFONY: App = App {
    name: "symfony",
    path: "/api/hello",
    warmup: "/api/hello",
};

impl Apps {
    pub fn make() -> Apps {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let plain = dir.path().join("plain");
        std::fs::create_dir(&plain).unwrap();
        let hello = "header('Content-Type: application/json'); echo json_encode(['message' => \
            'Hello World!']);";
        std::fs::write(plain.join("hello.php"), format!("<?php {hello}")).unwrap();
        std::fs::write(
            plain.join("worker.php"),
            format!("<?php surus_serve(function () {{ {hello} }});"),
        )
        .unwrap();
        let queue = dir.path().join("queue");
        std::fs::create_dir(&queue).unwrap();
        std::fs::write(
            queue.join("hello.php"),
            "<?php return fn (array $event) => print 'Hello World!';",
        )
        .unwrap();
        let wait =
            "<?php return function (array $event) { usleep(20000 * count($event['Records'])); };";
        std::fs::write(queue.join("wait.php"), wait).unwrap();
        let apps = Apps { dir };
        apps.make_symfony();
        apps
    }

    fn make_symfony(&self) {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let example = repository.join("examples/symfony");
        let symfony = self.directory("symfony");
        std::fs::create_dir(&symfony).unwrap();
        for part in ["public", "src", "templates", "composer.json", "worker.php"] {
            done(
                Command::new("cp")
                    .arg("-r")
                    .arg(example.join(part))
                    .arg(&symfony),
            );
        }
        done(
            Command::new("php8.2")
                .arg(repository.join("examples/vendor.php"))
                .arg(&symfony),
        );
        std::fs::create_dir(symfony.join("var")).unwrap();
        std::fs::set_permissions(
            symfony.join("var"),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
    }

    pub fn directory(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The application as a function whose initialization is over when it starts.
    pub fn function(&self, app: App, engine: &Entry) -> Function {
        let mut function = self.surus(app.name);
        let mut set = |name: &str, value: &str| {
            function.variables.insert(name.into(), value.into());
        };
        set("SURUS_ENGINE_NAME", engine.name);
        if engine.boots_script {
            set("SURUS_ENGINE_SCRIPT", "worker.php");
            set("SURUS_ENGINE_WARMUP", app.warmup);
        }
        set("SURUS_ENV_APP_ENV", "prod");
        function
    }

    /// `surus lambda` in a directory.
    pub fn surus(&self, directory: &str) -> Function {
        let mut function = Function::new(Runtime::Command {
            program: env!("CARGO_BIN_EXE_surus").into(),
            arguments: vec!["lambda".into()],
            directory: self.directory(directory),
        });
        function.initialization = Initialization::Provisioned;
        function.keeps_log = false;
        function.memory = 1769;
        function.timeout = Duration::from_secs(30);
        function
            .variables
            .insert("SURUS_LOG_LEVEL".into(), "warn".into());
        function
    }
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// What a function URL sends for a GET of this path.
pub fn get(path: &str) -> String {
    serde_json::json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {
            "host": "abc.lambda-url.eu-west-1.on.aws",
            "accept": "application/json",
            "user-agent": "benchmark",
            "x-forwarded-for": "192.0.2.1",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
        },
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "abc",
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "domainPrefix": "abc",
            "http": {
                "method": "GET",
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "benchmark",
            },
            "requestId": "e1506fd5-9e7b-434f-bd42-4f8fa224b599",
            "routeKey": "$default",
            "stage": "$default",
            "time": "12/Mar/2026:19:03:58 +0000",
            "timeEpoch": 1_773_342_238_390_u64,
        },
        "isBase64Encoded": false,
    })
    .to_string()
}
