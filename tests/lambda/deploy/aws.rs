//! AWS as moto plays it, one process for all tests. Each test has a region of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

pub const ROLE: &str = "arn:aws:iam::123456789012:role/shop";
pub const SECRET: &str = "the-secret-access-key";
pub const TOKEN: &str = "the-session-token";

/// The port of moto, and the pipe that keeps it running.
static MOTO: OnceLock<Option<(u16, ChildStdin)>> = OnceLock::new();

// moto exits when this process does, because its stdin ends.
#[allow(clippy::zombie_processes)]
fn port() -> Option<u16> {
    let started = MOTO.get_or_init(|| {
        let surus = Path::new(env!("CARGO_BIN_EXE_surus"));
        let target = surus.parent().unwrap().parent().unwrap();
        let python = target.join("tools/moto/bin/python3");
        if !python.is_file() {
            let text = format!(
                "there is no {}; make test-deploy installs it",
                python.display()
            );
            assert!(std::env::var_os("CI").is_none(), "{text}");
            eprintln!("skipped: {text}");
            return None;
        }
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/lambda/deploy/serve_moto.py"
        );
        let mut child = Command::new(python)
            .arg(script)
            .env("AWS_ACCESS_KEY_ID", "moto")
            .env("AWS_SECRET_ACCESS_KEY", "moto")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        let aws = Aws {
            port,
            region: "us-east-1",
        };
        // Invocations return what the tests have put into a queue.
        let config = json!({"lambda": {"use_docker": false}});
        aws.post("moto-api/config", "moto", &[], &config.to_string());
        let trust =
            "Version=2010-05-08&Action=CreateRole&RoleName=shop&AssumeRolePolicyDocument=%7B%7D";
        aws.query("iam", trust);
        Some((port, child.stdin.take().unwrap()))
    });
    started.as_ref().map(|(port, _)| *port)
}

#[derive(Clone, Copy)]
pub struct Aws {
    port: u16,
    pub region: &'static str,
}

impl Aws {
    /// None if moto is not installed.
    pub fn start(region: &'static str) -> Option<Aws> {
        port().map(|port| Aws { port, region })
    }

    fn authorization(&self, service: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=moto/20260101/{}/{service}/aws4_request, \
             SignedHeaders=host, Signature=none",
            self.region
        )
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn post(&self, path: &str, service: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut request = ureq::post(format!("{}/{path}", self.url()));
        request = request.header("authorization", self.authorization(service));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).unwrap();
        response.body_mut().read_to_string().unwrap()
    }

    /// An action of a service with the query protocol.
    pub fn query(&self, service: &str, body: &str) -> String {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        self.post("", service, &form, body)
    }

    /// An action of CloudWatch Logs.
    pub fn logs(&self, action: &str, body: &Value) {
        let target = format!("Logs_20140328.{action}");
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-target", target.as_str()),
        ];
        self.post("", "logs", &headers, &body.to_string());
    }

    pub fn create_bucket(&self, name: &str) {
        let region = self.region;
        let body = format!(
            "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint>\
             </CreateBucketConfiguration>"
        );
        let request = ureq::put(format!("{}/{name}", self.url()));
        let request = request.header("authorization", self.authorization("s3"));
        request.send(body.as_str()).unwrap();
    }

    /// What the next invocation returns.
    pub fn answer(&self, answer: &Value) {
        let body = json!({"results": [answer.to_string()], "region": self.region});
        self.post(
            "moto-api/static/lambda-simple/response",
            "moto",
            &[],
            &body.to_string(),
        );
    }

    /// A resource below /2015-03-31. None if it does not exist.
    pub fn lambda(&self, path: &str) -> Option<Value> {
        let request = ureq::get(format!("{}/2015-03-31/{path}", self.url()));
        let request = request.header("authorization", self.authorization("lambda"));
        match request.call() {
            Ok(mut response) => Some(response.body_mut().read_json().unwrap()),
            Err(ureq::Error::StatusCode(404)) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The version that the alias `live` calls.
    pub fn live(&self, name: &str) -> Option<String> {
        let alias = self.lambda(&format!("functions/{name}/aliases/live"))?;
        Some(alias["FunctionVersion"].as_str().unwrap().to_string())
    }

    /// Sends shares of the traffic of the alias `live` to other versions.
    pub fn divide(&self, name: &str, weights: &Value) {
        let path = format!("2015-03-31/functions/{name}/aliases/live");
        let request = ureq::put(format!("{}/{path}", self.url()));
        let request = request.header("authorization", self.authorization("lambda"));
        let body = json!({"RoutingConfig": {"AdditionalVersionWeights": weights}});
        request.send(body.to_string()).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command
            .env("AWS_ENDPOINT_URL", self.url())
            .env("AWS_REGION", self.region)
            .env("AWS_ACCESS_KEY_ID", "AKIATESTS")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_SESSION_TOKEN", TOKEN);
        command
    }

    pub fn surus(&self, args: &[&str]) -> Said {
        Said::new(self.command(args).output().unwrap())
    }
}

/// `surus` without anything of AWS, but with the most talkative log.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"] {
        command.env_remove(name);
    }
    command
        .args(args)
        .env("HOME", "/nonexistent")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("SURUS_LOG_LEVEL", "trace")
        .env("RUST_LOG", "trace");
    command
}

pub fn follow(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

/// What a command has printed. It never contains credentials.
pub struct Said {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn new(output: Output) -> Said {
        let said = Said {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        for secret in [SECRET, TOKEN, "AKIATESTS", "Signature="] {
            let all = [&*said.out, &*said.err].concat();
            assert!(!all.contains(secret), "credentials are printed: {all}");
        }
        said
    }

    #[track_caller]
    pub fn succeeded(self) -> Said {
        assert_eq!(self.status, Some(0), "{}{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn failed_with(self, parts: &[&str]) -> Said {
        assert_eq!(self.status, Some(1), "{}{}", self.out, self.err);
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {}", self.err);
        }
        self
    }
}

/// The `e_machine` of ELF files.
pub const X86_64: u8 = 62;
pub const ARM64: u8 = 183;
pub const RISCV: u8 = 243;

/// A project with a zip like that of `surus lambda package`.
pub struct Project {
    dir: TempDir,
    zip: String,
}

impl Project {
    pub fn new(configuration: &str) -> Project {
        let dir = tempfile::tempdir().unwrap();
        let zip = dir.path().join("function.zip").display().to_string();
        let project = Project { dir, zip };
        std::fs::write(project.path().join("surus.toml"), configuration).unwrap();
        project.package(X86_64, b"<?php echo 1;");
        project
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the zip again.
    pub fn package(&self, machine: u8, content: &[u8]) {
        let mut bootstrap = [0; 64];
        bootstrap[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bootstrap[18] = machine;
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&self.zip).unwrap());
        let stored =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, content) in [("bootstrap", &bootstrap[..]), ("index.php", content)] {
            zip.start_file(name, stored).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap();
    }

    /// `surus lambda deploy` of this project.
    pub fn deploy(&self, aws: &Aws, args: &[&str]) -> Said {
        aws.surus(&self.words(args))
    }

    pub fn words<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["lambda", "deploy", self.path().to_str().unwrap()];
        if !args.contains(&"--zip") {
            words.extend(["--zip", &self.zip]);
        }
        words.extend(args);
        words
    }
}
