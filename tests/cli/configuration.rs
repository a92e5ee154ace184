//! Tests that a wrong configuration stops the start with an error that names its place.

use std::process::Command;

use crate::{project, run, says, surus};

/// The error of `surus serve` with this configuration file.
fn refused(configuration: &str) -> String {
    let project = project(&[("surus.toml", configuration), ("index.php", "")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    // The sanitizers' run sets it, and the environment overrides the file.
    command.env_remove("SURUS_ENGINE_SURUS_PHP");
    command.arg("serve").arg(project.path());
    // Other tests may use the default address at the same time.
    if !configuration.contains("listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let said = run(&mut command);
    assert_eq!(said.status, 1, "{}", said.stderr);
    said.stderr
}

#[test]
fn unknown_key_is_named_with_file_line_and_known_keys() {
    let error = refused("[http]\nlisten = [\"127.0.0.1:0\"]\nmax_bodi = \"8M\"\n");
    says(&error, &["surus.toml:3: ", "`max_bodi`", "`max_body_size`"]);
    let error = refused("\n[htpp]\n");
    says(&error, &["surus.toml:2: ", "`htpp`", "`http`"]);
}

#[test]
fn wrong_value_is_named_with_the_allowed_values() {
    says(
        &refused("[log]\nformat = \"xml\"\n"),
        &["surus.toml:2: ", "`xml`", "`text`", "`json`"],
    );
    says(
        &refused("[http]\n\n\nmax_body_size = \"lots\"\n"),
        &["surus.toml:4: ", "`lots`", "`8M`"],
    );
    says(
        &refused("[http]\nrequest_timeout = 30\n"),
        &["surus.toml:2: ", "\"30s\""],
    );
    says(
        &refused("[site]\nsymlinks = \"yes\"\n"),
        &["surus.toml:2: ", "`inside`", "`follow`"],
    );
    says(
        &refused("[log]\nlevel = \"surus=loud\"\n"),
        &["surus.toml:2: ", "log.level `surus=loud`", "`debug`"],
    );
    says(
        &refused("[log]\nlevel = \"loud\"\n"),
        &["log.level `loud`", "`debug`"],
    );
    says(
        &refused("[engine]\nworkers = 0\n"),
        &["surus.toml:2: ", "0 workers", "at least 1"],
    );
    says(&refused("[http]\nlisten = []\n"), &["http.listen is empty"]);
    says(
        &refused("[php]\nopcache.enable = 1\n"),
        &["surus.toml:2: ", "\"opcache.enable\" = 1"],
    );
    says(&refused("[http\n"), &["surus.toml:1: "]);
}

#[test]
fn number_out_of_range_is_named_with_the_range() {
    for (section, key, value, range) in [
        ("http", "max_headers", "999999999999", "from 1 to 10000"),
        ("http", "max_headers", "0", "from 1 to 10000"),
        ("http", "max_headers", "-1", "from 1 to 10000"),
        ("http", "max_connections", "0", "from 1 to 10000000"),
        ("http", "max_header_size", "1024", "from 8K to 16M"),
        ("http", "max_uri", "0", "from 1 to 16M"),
        ("http", "request_timeout", "\"0s\"", "from 1ms to 8760h"),
        ("http", "header_timeout", "\"0s\"", "from 1ms to 8760h"),
        ("http", "body_timeout", "\"0s\"", "from 1ms to 8760h"),
        ("http", "send_timeout", "\"9000h\"", "from 1ms to 8760h"),
        ("engine", "boot_timeout", "\"0s\"", "from 1ms to 8760h"),
        ("engine", "queue_timeout", "\"0s\"", "from 1ms to 8760h"),
        (
            "engine",
            "max_queue",
            "18446744073709551615",
            "from 0 to 10000000",
        ),
        ("engine", "max_queue", "\"many\"", "from 0 to 10000000"),
    ] {
        let error = refused(&format!("[{section}]\n{key} = {value}\n"));
        let name = format!("{section}.{key}");
        let value = value.trim_matches('"').replace("1024", "1K");
        says(&error, &["surus.toml:2: ", &name, &value, range]);
    }
    says(
        &refused("[engine]\nmax_requests = 18446744073709551615\n"),
        &["surus.toml:2: "],
    );
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap()],
        &[("SURUS_HTTP_MAX_HEADERS", "0")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["SURUS_HTTP_MAX_HEADERS=`0`", "from 1 to 10000"],
    );
}

#[test]
fn invalid_environment_variable_is_named() {
    for section in ["env", "pool.other.env"] {
        let error = refused(&format!("[{section}]\nFINE = \"x\"\n\"A=B\" = \"x\"\n"));
        says(&error, &["surus.toml:", "\"A=B\"", "neither `=`"]);
        let error = refused(&format!("[{section}]\nSECRET = \"hush\\u0000\"\n"));
        says(&error, &["surus.toml:", "SECRET", "NUL byte"]);
        assert!(!error.contains("hush"), "{error}");
    }
    says(
        &refused("[php]\nprecision = \"1\\u0000\"\n"),
        &["\"precision\"", "NUL bytes"],
    );
}

#[test]
fn program_that_is_not_surus_php_is_named_with_its_exit() {
    for (program, how) in [
        ("/bin/true", "exit status 0"),
        ("/bin/false", "exit status 1"),
    ] {
        says(
            &refused(&format!("[engine]\nsurus_php = \"{program}\"\n")),
            &["PHP did not start", program, how, "(engine.surus_php)"],
        );
    }
}

#[test]
fn unknown_engine_is_named_with_the_known_engines() {
    says(
        &refused("[engine]\nname = \"clasic\"\n"),
        &["surus.toml:2: ", "`clasic`", "classic"],
    );
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap(), "--engine", "x"],
        &[],
    );
    assert_eq!(said.status, 1);
    says(&said.stderr, &["--engine", "unknown engine `x`", "classic"]);
}

#[test]
fn wrong_environment_variable_is_named() {
    let project = project(&[]);
    let error = |name: &str, value: &str| {
        let said = surus(
            &["serve", project.path().to_str().unwrap()],
            &[(name, value)],
        );
        assert_eq!(said.status, 1);
        said.stderr
    };
    says(
        &error("SURUS_HTTP_MAX_BODY_SIZE", "lots"),
        &["SURUS_HTTP_MAX_BODY_SIZE=`lots`", "`8M`"],
    );
    says(
        &error("SURUS_HTTP_MAX_BODI", "1"),
        &["SURUS_HTTP_MAX_BODI", "`max_body_size`"],
    );
    says(
        &error("SURUS_ENGINE_WORKERS", "0"),
        &["SURUS_ENGINE_WORKERS=`0`", "at least 1"],
    );
    says(
        &error("SURUS_ENGINE_NAME", "x"),
        &["SURUS_ENGINE_NAME=`x`", "classic"],
    );
}

#[test]
fn invalid_value_is_named_with_its_line() {
    for (setting, words) in [
        ("[[route]]\nprefix = \"x\"", ["surus.toml:2: ", "slash"]),
        ("[[route]]\nregex = \"(\"", ["surus.toml:2: ", "`regex`"]),
        (
            "[[route]]\nprefix = \"/\"\nmethods = [\"get\"]",
            ["surus.toml:3: ", "capitals"],
        ),
        (
            "[[route]]\nhost = \"a:80\"\ndeny = true",
            ["surus.toml:2: ", "without scheme, port"],
        ),
        (
            "[[route]]\nhost = \"a\"\nredirect = \"b\"",
            ["surus.toml:3: ", "it expects a path"],
        ),
        (
            "[[route]]\nhost = \"a\"\nredirect = \"/\"\nstatus = 200",
            ["surus.toml:4: ", "`status` is 200"],
        ),
        (
            "[[route]]\nprefix = \"/\"\n[route.headers]\nConnection = \"x\"",
            ["surus.toml:3: ", "Surus itself"],
        ),
        (
            "[site]\nindex = [\".x\"]",
            ["surus.toml:2: ", "`site.index`"],
        ),
        (
            "[site]\nno_php = [\"x\"]",
            ["surus.toml:2: ", "\"/uploads\""],
        ),
        (
            "[x_sendfile.internal]\n\"protected\" = \"x\"",
            ["surus.toml:1: ", "\"/protected\""],
        ),
        (
            "[http]\ntrusted_proxies = [\"nginx\"]",
            ["surus.toml:2: ", "`10.0.0.1`"],
        ),
    ] {
        says(&refused(setting), &words);
    }
    says(
        &refused("[http]\nlisten = []\n"),
        &["http.listen is empty", "unreachable"],
    );
    says(
        &refused("[http]\ntemp_dir = \"/no/such/place\"\n"),
        &["/no/such/place", "http.temp_dir"],
    );
}

#[test]
fn missing_directory_is_named() {
    for command in ["serve", "check", "status", "reload"] {
        let said = surus(&[command, "/does/not/exist"], &[]);
        assert_eq!(said.status, 1);
        says(
            &said.stderr,
            &["/does/not/exist is not a directory", "name the directory"],
        );
    }
    says(
        &refused("[site]\nroot = \"pubic\"\n"),
        &["pubic", "document root"],
    );
    says(
        &refused("[engine]\nsurus_php = \"/no/php\"\n"),
        &["engine.surus_php", "/no/php", "does not exist"],
    );
    let said = surus(&["serve", "/tmp", "--config", "/no/surus.toml"], &[]);
    says(&said.stderr, &["cannot read /no/surus.toml"]);
}

#[test]
fn proxy_protocol_without_proxies_stops_the_start() {
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap(), "--listen", "0"],
        &[("SURUS_HTTP_PROXY_PROTOCOL", "true")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["http.proxy_protocol", "http.trusted_proxies"],
    );
}

#[test]
fn single_string_stands_for_a_list_of_addresses() {
    for listen in ["listen = '127.0.0.1:0'", "listen = ['127.0.0.1:0']"] {
        let configuration = format!("[http]\n{listen}\ntrusted_proxies = '10.0.0.0/8'\n");
        let project = project(&[("index.php", ""), ("surus.toml", &configuration)]);
        let said = surus(&["check", project.path().to_str().unwrap()], &[]);
        assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
        says(&said.stdout, &["✓ listens on       http://127.0.0.1:0\n"]);
    }
    let wrong = project(&[("surus.toml", "[http]\nlisten = 8080\n")]);
    let said = surus(&["check", wrong.path().to_str().unwrap()], &[]);
    says(
        &said.stderr,
        &["surus.toml:2: ", "a list of strings", "or a single string"],
    );
}
