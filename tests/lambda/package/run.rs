//! Packages that run: in an empty root, as Lambda starts them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Project, text};
use crate::common::empty_root::{can_chroot, static_surus};
use crate::runtime::api::{Api, Call, Event};

/// Unpacks the zip at `/var/task`, in a root with three more empty directories.
pub(super) fn unpack(zip: &Path) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["proc", "dev", "tmp", "var/task"] {
        fs::create_dir_all(root.path().join(name)).unwrap();
    }
    let mut archive = zip::ZipArchive::new(File::open(zip).unwrap()).unwrap();
    archive.extract(root.path().join("var/task")).unwrap();
    root
}

/// The function as Lambda starts it, with only /proc and /dev of this machine, as an unknown user.
pub(super) struct Function {
    api: Api,
    process: Child,
}

impl Function {
    pub(super) fn start(root: &Path, environment: &str) -> Function {
        let api = Api::start();
        let (root, address) = (root.display(), &api.address);
        // The new root has no program that could set variables, so the script sets them outside.
        let script = format!(
            r"mount --bind /proc {root}/proc &&
                mount --bind /dev {root}/dev &&
                mount -t tmpfs tmp {root}/tmp || exit 1
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
                AWS_LAMBDA_RUNTIME_API={address} LAMBDA_TASK_ROOT=/var/task \
                _HANDLER=bootstrap TZ=:UTC {environment} \
                chroot --userspec=4321:4321 {root} /var/task/bootstrap"
        );
        let process = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Function { api, process }
    }

    pub(super) fn ask(&self, id: &str, event: &Value) -> Call {
        self.api.send(Event::new(id, event));
        self.api.answer(id)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        let _ = self.process.wait();
    }
}

/// The event of a function URL for `GET /?name=x`.
fn request() -> Value {
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/",
        "rawQueryString": "name=x",
        "headers": {"host": "abc.lambda-url.eu-central-1.on.aws", "x-forwarded-proto": "https"},
        "requestContext": {
            "domainName": "abc.lambda-url.eu-central-1.on.aws",
            "http": {"method": "GET", "path": "/", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7"},
        },
        "isBase64Encoded": false,
    })
}

/// The event of a function URL for this path.
pub(super) fn get(path: &str) -> Value {
    let mut event = request();
    event["rawPath"] = path.into();
    event["requestContext"]["http"]["path"] = path.into();
    event
}

#[test]
fn zip_runs_in_an_empty_root() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let (project, zips) = (Project::new(), tempfile::tempdir().unwrap());
    let zip = zips.path().join("function.zip");
    let made = project.package(
        &zip,
        &[
            "--bootstrap",
            bootstrap.to_str().unwrap(),
            "--extension",
            "pdo_sqlite",
        ],
    );
    assert!(made.status.success(), "{}", text(&made));
    let said = text(&made);
    for expected in [
        "PHP 8.",
        "pdo_sqlite",
        ".surus/lib/",
        "of Lambda's limit",
        "zipped: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }

    let root = unpack(&zip);
    for (engine, environment) in [
        ("classic", ""),
        ("rewind", "SURUS_ENGINE_SCRIPT=worker.php"),
    ] {
        let function = Function::start(
            root.path(),
            &format!("SURUS_ENGINE_NAME={engine} {environment}"),
        );
        for round in 0..3 {
            let answer = function
                .ask(&format!("{engine}-{round}"), &request())
                .text();
            let answer: Value =
                serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
            for (key, expected) in [
                ("engine", Value::from(engine)),
                ("query", "x".into()),
                ("opcache", true.into()),
                ("greeting", "hello".into()),
                ("memory_limit", "77M".into()),
                ("ini", "/var/task/.surus/php.ini".into()),
                // From the package's time zones, in summer.
                ("zone", "2026-07-01T12:00:00+02:00".into()),
                // A character set that libc loads on demand.
                ("charset", "c6fccbdc".into()),
                // OpenSSL finds its settings, and PHP its trusted authorities.
                ("key", true.into()),
                ("authorities", true.into()),
                ("sqlite", "3".into()),
                ("session", true.into()),
                // Nothing of the packaging machine is visible.
                ("foreign", Value::Array(Vec::new())),
            ] {
                assert_eq!(
                    answer[key], expected,
                    "{engine}, round {round}: {key} in {answer}"
                );
            }
        }
        // An event that is not HTTP reaches the handler through the packaged library.
        let answer = function
            .ask(&format!("{engine}-event"), &json!({"number": 20}))
            .json();
        assert_eq!(answer, json!({"number": 21, "engine": engine}));
    }
}

/// Laravel has a directory with the name of the program that Lambda starts.
#[test]
fn application_with_own_bootstrap_runs() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let (project, zips) = (Project::new(), tempfile::tempdir().unwrap());
    let own = project.0.path().join("bootstrap");
    fs::create_dir(&own).unwrap();
    fs::write(
        own.join("app.php"),
        "<?php\nreturn 'laid out as Laravel';\n",
    )
    .unwrap();
    fs::write(
        project.0.path().join("index.php"),
        "<?php\necho require __DIR__.'/bootstrap/app.php';\n",
    )
    .unwrap();
    let zip = zips.path().join("function.zip");
    let made = project.package(&zip, &["--bootstrap", bootstrap.to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made));
    let root = unpack(&zip);
    let function = Function::start(root.path(), "SURUS_ENGINE_NAME=classic");
    assert_eq!(
        function.ask("page", &request()).text(),
        "laid out as Laravel"
    );
    let answer = function.ask("event", &json!({"number": 1})).json();
    assert_eq!(answer["number"], 2);
}

#[test]
fn package_with_compiled_files_runs_them_instead_of_sources() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let (project, zips) = (Project::new(), tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| fs::write(project.0.path().join(name), text).unwrap();
    // One file that PHP rejects, one that ends PHP, and one after them.
    write("broken.php", "<?php if (");
    write("fatal.php", "<?php echo 1; namespace X;");
    write("last.php", "<?php return 'as packaged';");
    write(
        "worker.php",
        "<?php surus_serve(function () { echo require __DIR__.'/last.php'; });",
    );
    write("index.php", "<?php echo require __DIR__.'/last.php';");
    let zip = zips.path().join("function.zip");
    let args = ["--bootstrap", bootstrap.to_str().unwrap(), "--compile"];
    let made = project.package(&zip, &args);
    let said = text(&made);
    assert!(made.status.success(), "{said}");
    let skipped = "/var/task/broken.php, /var/task/fatal.php";
    assert!(
        said.contains("compiled: ") && said.contains(skipped),
        "{said}"
    );

    let root = unpack(&zip);
    let last = root.path().join("var/task/last.php");
    assert!(last.is_file());
    // The source is read only if the compiled file is not found.
    fs::write(last, "<?php return 'from the source';").unwrap();
    for (engine, environment) in [
        ("classic", ""),
        ("rewind", "SURUS_ENGINE_SCRIPT=worker.php"),
        ("worker", "SURUS_ENGINE_SCRIPT=worker.php"),
    ] {
        let environment = format!("SURUS_ENGINE_NAME={engine} {environment}");
        let function = Function::start(root.path(), &environment);
        for round in 0..3 {
            let id = format!("{engine}-{round}");
            assert_eq!(function.ask(&id, &request()).text(), "as packaged", "{id}");
        }
        let answer = function.ask(&format!("{engine}-event"), &json!({"number": 20}));
        assert_eq!(answer.json()["number"], 21);
        drop(function);
        let without = format!("{environment} SURUS_LAMBDA_OPCACHE_DIR=/nowhere");
        let function = Function::start(root.path(), &without);
        assert_eq!(function.ask("source", &request()).text(), "from the source");
    }
}

/// `examples/symfony` with its libraries, as Composer installs them.
fn symfony() -> Project {
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let shell = |script: &str| {
        let status = Command::new("sh")
            .args(["-ec", script])
            .env("EXAMPLES", &example)
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success(), "{script}");
    };
    shell(
        "cp -r $EXAMPLES/symfony/. . && rm -rf vendor var && php $EXAMPLES/vendor.php . >/dev/null
        mkdir vendor/debian
        for name in $(grep -oh '/usr/share/php/[A-Za-z]*' vendor/*.php | sort -u); do
            cp -rL $name vendor/debian/
        done
        sed -i \"s|'/usr/share/php/|__DIR__.'/debian/|g\" vendor/*.php",
    );
    Project(dir)
}

#[test]
fn symfony_runs_unchanged_from_its_package() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let zips = tempfile::tempdir().unwrap();
    let project = symfony();
    let zip = zips.path().join("function.zip");
    let made = project.package(
        &zip,
        &["--bootstrap", bootstrap.to_str().unwrap(), "--compile"],
    );
    let said = text(&made);
    assert!(made.status.success(), "{said}");
    assert!(said.contains("Symfony's cache: "), "{said}");
    let root = unpack(&zip);
    assert!(root.path().join("var/task/.surus/cache/prod").is_dir());
    for environment in [
        "",
        "APP_RUNTIME=Surus\\\\Symfony\\\\Runtime",
        // As without --compile: the first request creates the cache.
        "SURUS_LAMBDA_CACHE=/nowhere",
    ] {
        let function = Function::start(root.path(), environment);
        for (number, (path, shows)) in [
            ("/hello/Gisgo", "Hello, Gisgo!"),
            ("/guestbook", "<form"),
            ("/visits", "Your first visit"),
            ("/api/hello", "{"),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = function.ask(&format!("s-{number}"), &get(path)).json();
            let what = format!("{environment} {path}: {answer}");
            assert_eq!(answer["statusCode"], 200, "{what}");
            assert!(answer["body"].as_str().unwrap().contains(shows), "{what}");
        }
        // Symfony logs this as an error, but it is not a failure.
        let answer = function.ask("s-gone", &get("/no/such/page")).json();
        assert_eq!(answer["statusCode"], 404, "{answer}");
    }
}
