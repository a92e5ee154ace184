//! Options of a load: some contestants only, a body in a file, refusals, other requests meanwhile.

use serde_json::Value;

use super::Tiny;

const EXPERIMENT: &str = "lab/experiments/tiny.toml";
const INDEX: &str = "lab/contestants/php/index.php";
const MANIFEST: &str = "lab/contestants/php/manifest.toml";

/// The first contestant's sample of the first round.
fn first_sample(tiny: &Tiny) -> Value {
    let directory = std::fs::read_dir(tiny.path("target/lab/results/tiny"));
    let file = directory.unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    results["rounds"][0]["turns"][0]["samples"]["hello"].clone()
}

#[test]
fn load_for_one_contestant_has_one_row() {
    let tiny = Tiny::new();
    tiny.change(EXPERIMENT, "path", "only = [\"first\"]\npath");
    let said = tiny.succeed(&["run"]);
    assert!(!said.contains("second  hello"), "{said}");
    let markdown = tiny.read("target/lab/results/tiny.md");
    let (load, _) = markdown.split_once("Contestants").unwrap();
    assert!(load.contains("| php -S |"), "{markdown}");
    assert!(!load.contains("| php -S, twice |"), "{markdown}");
}

#[test]
fn body_of_a_request_can_be_a_file_with_several_messages() {
    let tiny = Tiny::new();
    let page = tiny.path("lab/applications/page");
    std::fs::create_dir_all(&page).unwrap();
    std::fs::write(page.join("application.toml"), "# For this test.\n").unwrap();
    std::fs::write(page.join("body.json"), "[1, 2]").unwrap();
    let load = "application = \"page\"\npost_file = \"body.json\"\nmessages = 2\npath";
    tiny.change(EXPERIMENT, "path", load);
    tiny.change(
        INDEX,
        "'hello and",
        "'[1, 2]' === file_get_contents('php://input') ? 'hello and",
    );
    tiny.change(INDEX, "';", "' : 'hello to warm up';");
    tiny.change(EXPERIMENT, "body = \"hello\"", "body = \"hello and\"");
    tiny.succeed(&["run"]);
    let sample = first_sample(&tiny);
    let number = |name: &str| sample[name].as_f64().unwrap();
    // Both are rounded.
    let messages_each = number("messages") / number("rate");
    assert!((messages_each - 2.0).abs() < 1e-9, "{sample}");
}

#[test]
fn refusals_are_counted_and_do_not_end_the_turn() {
    let tiny = Tiny::new();
    tiny.change(EXPERIMENT, "path", "refusals = [503]\npath");
    // Every second request is refused; files outlive a request.
    tiny.change(
        INDEX,
        "echo",
        "if (@unlink(__DIR__.'/even')) {\n    http_response_code(503);\n    exit('busy');\n}\n\
         touch(__DIR__.'/even');\necho",
    );
    tiny.change(EXPERIMENT, "length = { small = 3", "length = { small = 4");
    tiny.change(EXPERIMENT, "warm_up = { small = 1", "warm_up = { small = 2");
    let said = tiny.succeed(&["run"]);
    assert!(!said.contains("hello: not measured"), "{said}");
    let sample = first_sample(&tiny);
    assert!(sample["refused"].as_f64().unwrap() > 0.0, "{sample}");
    assert_eq!(sample["failed"], 0.0, "{sample}");
}

#[test]
fn unexpected_response_ends_its_load_and_not_the_next() {
    let tiny = Tiny::new();
    let wrong = "[[load]]\nname = \"wrong\"\ntitle = \"Wrong\"\npath = \"/\"\nconnections = 1\n\
        warm_up = { small = 1, full = 1 }\nlength = { small = 3, full = 3 }\n\
        body = \"another text\"\n\n[[load]]";
    tiny.change(EXPERIMENT, "[[load]]", wrong);
    let said = tiny.succeed(&["run"]);
    let reason = "wrong: not measured: warm-up: 1 unexpected responses; the first to ";
    assert!(said.contains(reason), "{said}");
    assert!(!said.contains("hello: not measured"), "{said}");
    let sample = first_sample(&tiny);
    assert!(sample["rate"].as_f64().unwrap() > 0.0, "{sample}");
}

#[test]
fn no_request_of_a_warm_up_is_abandoned() {
    let tiny = Tiny::new();
    let warm_up = "warm_up = { small = \"50ms\", full = \"50ms\" }";
    tiny.change(EXPERIMENT, "warm_up = { small = 1, full = 1 }", warm_up);
    // A response in pieces, which finds out when its client has left.
    tiny.change(
        INDEX,
        "echo",
        "ignore_user_abort(true);\nfor ($n = 0; $n < 20; $n++) {\n    usleep(10_000);\n    \
         echo ' ';\n    flush();\n}\n\
         connection_aborted() && touch(__DIR__.'/abandoned');\necho",
    );
    tiny.succeed(&["run"]);
    assert!(!tiny.path("lab/contestants/php/abandoned").exists());
}

#[test]
fn another_path_is_requested_while_a_load_runs() {
    let tiny = Tiny::new();
    tiny.change(EXPERIMENT, "path", "meanwhile = \"/slow\"\npath");
    tiny.change(MANIFEST, "start =", "ready = \"/ready\"\nstart =");
    let workers = "[env]\nPHP_CLI_SERVER_WORKERS = \"2\"\n\n[values]";
    tiny.change(MANIFEST, "[values]", workers);
    // The load's page responds only once the other path has been requested.
    tiny.change(
        INDEX,
        "echo",
        "'/slow' === $_SERVER['REQUEST_URI'] && touch(__DIR__.'/asked');\n\
         while ('/' === $_SERVER['REQUEST_URI'] && !file_exists(__DIR__.'/asked')) {\n    \
         usleep(1000);\n    clearstatcache();\n}\necho",
    );
    let said = tiny.succeed(&["run"]);
    assert!(!said.contains("hello: not measured"), "{said}");
    assert_eq!(first_sample(&tiny)["failed"], 0.0);
}

#[test]
fn cookie_is_sent_back_on_a_load_that_keeps_cookies() {
    let tiny = Tiny::new();
    let notes = "header('Set-Cookie: seen=1');\n\
                 isset($_COOKIE['seen']) && touch('@repository@/seen');\necho";
    tiny.change(INDEX, "echo", notes);
    tiny.succeed(&["run"]);
    assert!(!tiny.path("seen").exists());
    tiny.change(EXPERIMENT, "path", "keeps_cookies = true\npath");
    tiny.succeed(&["run"]);
    assert!(tiny.path("seen").exists());
}

#[test]
fn resting_connections_are_measured_and_must_stay_open() {
    let tiny = Tiny::new();
    tiny.change(EXPERIMENT, "path", "rests = true\npath");
    tiny.change(
        EXPERIMENT,
        "length = { small = 3",
        "length = { small = \"1s\"",
    );
    tiny.change(EXPERIMENT, "full = 3 }\nbody", "full = \"1s\" }\nbody");
    let columns = "columns = [\"rate\", \"cpu\", \"per_connection\", \"idle_cpu\"]\n#";
    tiny.change(EXPERIMENT, "columns", columns);
    // PHP's own server closes its connections.
    let said = tiny.succeed(&["run"]);
    assert!(said.contains("it closed 1 of 1 idle connections"), "{said}");
    tiny.change(INDEX, "<?php", "hello <?php");
    let python = "[\"python3\", \"-m\", \"http.server\", \"--protocol\", \"HTTP/1.1\", \
                  \"--bind\", \"127.0.0.1\", \"--directory\", \"@dir@\", \"@port@\"]";
    let php = "[\"php\", \"-S\", \"127.0.0.1:@port@\", \"@dir@/index.php\"]";
    tiny.change(MANIFEST, php, python);
    tiny.change(EXPERIMENT, "path = \"/\"", "path = \"/index.php\"");
    tiny.succeed(&["run"]);
    let sample = first_sample(&tiny);
    for name in ["memory", "per_connection", "kept", "idle_cpu"] {
        assert!(sample[name].as_f64().unwrap() >= 0.0, "{name}: {sample}");
    }
    let markdown = tiny.read("target/lab/results/tiny.md");
    let head = "|  | memory per connection | CPU per idle second |";
    assert!(markdown.contains(head), "{markdown}");
}
