//! Tests that what packaging/ has for orchestrators is valid, names settings and commands of Surus,
//! and gives it the time to drain.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use surus::config::{Config, env};
use surus::deploy::document::{self, DocumentNode};

use super::markdown::root;
use super::snippets::{check, tool};

const COMPOSE: &str = "packaging/container/compose.yaml";
const DOCKERFILE: &str = "packaging/container/Dockerfile";
const MANIFESTS: [&str; 2] = [
    "packaging/kubernetes/web.yaml",
    "packaging/kubernetes/work.yaml",
];

/// A container that runs Surus.
struct RunningSurus {
    place: String,
    command: Vec<String>,
    config: Config,
    /// The time from SIGTERM to SIGKILL.
    grace: Duration,
}

#[test]
fn containers_run_commands_of_surus() {
    let all = containers();
    assert_eq!(all.len(), 4);
    let mut commands: Vec<_> = all.into_iter().map(|it| (it.place, it.command)).collect();
    let of_image = |keyword: &str| (DOCKERFILE.to_owned(), of_image(keyword));
    commands.extend([of_image("\nCMD "), of_image("    CMD ")]);
    for (place, command) in commands {
        let parsed = surus::cli::command().try_get_matches_from(&command);
        assert!(parsed.is_ok(), "{place}: {}", parsed.unwrap_err());
    }
}

#[test]
fn containers_have_the_time_to_drain() {
    for RunningSurus {
        place,
        command,
        config,
        grace,
    } in containers()
    {
        let needed = match &*command[1] {
            "serve" => config.http.shutdown_delay.0 + config.http.shutdown_timeout.0,
            // And 10 seconds for a poll of SQS.
            _ => config.work.shutdown_timeout.0 + Duration::from_secs(10),
        };
        assert!(
            grace >= needed + Duration::from_secs(5),
            "{place}: {grace:?} is too short for {needed:?}"
        );
    }
}

#[test]
fn probes_ask_the_admin_listener() {
    for path in MANIFESTS {
        for document in documents(path) {
            let Some(container) = container(&document) else {
                continue;
            };
            let config = config(path, &variables(container));
            let listener = config.admin.listen.or(config.work.admin_listen);
            let listener = listener.unwrap().to_string();
            let ports = container.get("ports").unwrap().items();
            let port = ports.iter().find(|it| text(it, &["name"]) == "admin");
            let number = text(port.unwrap(), &["containerPort"]);
            assert_eq!(listener, format!("http://0.0.0.0:{number}"), "{path}");
            for (probe, asked) in [
                ("startupProbe", "/-/ready"),
                ("readinessProbe", "/-/ready"),
                ("livenessProbe", "/-/health"),
            ] {
                assert_eq!(
                    text(container, &[probe, "httpGet", "path"]),
                    asked,
                    "{path}"
                );
                assert_eq!(
                    text(container, &[probe, "httpGet", "port"]),
                    "admin",
                    "{path}"
                );
            }
        }
    }
}

#[test]
fn chart_has_the_version_of_surus() {
    let chart = documents("packaging/helm/surus/Chart.yaml").remove(0);
    for key in ["version", "appVersion"] {
        assert_eq!(text(&chart, &[key]), env!("CARGO_PKG_VERSION"), "{key}");
    }
}

#[test]
fn validators_accept_orchestration_files_if_they_are_installed() {
    if let Some(validate) = tool("kubernetes-validate") {
        for path in MANIFESTS {
            let mut command = Command::new(&validate);
            check(path, command.arg("--strict").arg(root().join(path)));
        }
    }
    if let Some(validate) = tool("check-jsonschema") {
        let mut command = Command::new(validate);
        command.args(["--builtin-schema", "vendor.compose-spec"]);
        check(COMPOSE, command.arg(root().join(COMPOSE)));
    }
}

/// The containers of the Compose file and the manifests.
fn containers() -> Vec<RunningSurus> {
    let mut all = Vec::new();
    let compose = documents(COMPOSE).remove(0);
    for (name, service) in compose.get("services").unwrap().entries() {
        let place = format!("{COMPOSE}: {name}");
        let variables: Vec<_> = service
            .get("environment")
            .map_or(&[][..], |it| it.entries())
            .iter()
            .map(|(name, value)| (name.clone(), value.text().unwrap().to_owned()))
            .collect();
        all.push(RunningSurus {
            config: config(&place, &variables),
            command: command(service),
            grace: text(service, &["stop_grace_period"])
                .parse::<surus::units::Time>()
                .unwrap()
                .0,
            place,
        });
    }
    for path in MANIFESTS {
        for document in documents(path) {
            let Some(container) = container(&document) else {
                continue;
            };
            let grace = ["spec", "template", "spec", "terminationGracePeriodSeconds"];
            all.push(RunningSurus {
                place: path.to_owned(),
                command: command(container),
                config: config(path, &variables(container)),
                grace: Duration::from_secs(text(&document, &grace).parse().unwrap()),
            });
        }
    }
    all
}

fn documents(path: &str) -> Vec<DocumentNode> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let parse = |part| document::parse(part).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split("\n---\n").map(parse).collect()
}

/// The container of a Deployment.
fn container(document: &DocumentNode) -> Option<&DocumentNode> {
    let containers = document.at(&["spec", "template", "spec", "containers"])?;
    Some(&containers.items()[0])
}

/// The variables of a container of Kubernetes.
fn variables(container: &DocumentNode) -> Vec<(String, String)> {
    let variables = container.get("env").unwrap().items().iter();
    let pair = |it: &DocumentNode| (text(it, &["name"]).into(), text(it, &["value"]).into());
    variables.map(|it| pair(it)).collect()
}

/// The command of a container, by default that of the image.
fn command(container: &DocumentNode) -> Vec<String> {
    let Some(words) = container.get("command") else {
        return of_image("\nCMD ");
    };
    let words = words.items().iter();
    words.map(|word| word.text().unwrap().to_owned()).collect()
}

/// A command of the Dockerfile: a list of JSON after a keyword.
fn of_image(keyword: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(DOCKERFILE)).unwrap();
    let (_, command) = text.split_once(keyword).unwrap();
    serde_json::from_str(command.lines().next().unwrap()).unwrap()
}

/// What Surus makes of variables.
fn config(place: &str, variables: &[(String, String)]) -> Config {
    let mut table = toml::Table::new();
    let applied = env::apply(&mut table, variables.iter().cloned());
    applied.unwrap_or_else(|error| panic!("{place}: {error}"));
    Config::deserialize(table).unwrap()
}

fn text<'a>(node: &'a DocumentNode, keys: &[&str]) -> &'a str {
    node.at(keys).and_then(DocumentNode::text).unwrap()
}
