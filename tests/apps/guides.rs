//! Serves the code and the configuration of guides, as a reader would.

use super::client::Client;
use super::site::{BOOTING, Site};

const PLAIN_PHP: &str = include_str!("../../docs/guides/plain-php.md");
const REWIND: &str = include_str!("../../docs/guides/rewind.md");

/// The code block of a guide that contains `text`.
fn block<'a>(guide: &'a str, text: &str) -> &'a str {
    let mut blocks = guide.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(text)).unwrap();
    block.split_once('\n').unwrap().1
}

#[test]
fn script_of_the_plain_php_guide_boots_once() {
    let site = Site::new().write("worker.php", block(PLAIN_PHP, "surus_serve"));
    let script = site.www().join("worker.php");
    for engine in BOOTING {
        let args = ["--engine", engine, "--script", script.to_str().unwrap()];
        let surus = site.serve_with(&args, &[]);
        let client = Client::new(&surus.url);
        client.get("/").ok().says("Hello, world");
        client.get("/?name=Hanno").ok().says("Hello, Hanno");
    }
}

#[test]
fn script_and_configuration_of_the_rewind_guide_are_served() {
    let site = Site::new()
        .write("worker.php", block(REWIND, "surus_serve"))
        .write("surus.toml", block(REWIND, "warmup"));
    let surus = site.serve(&[]);
    let client = Client::new(&surus.url);
    client.get("/").ok().says("Hello, world");
    client
        .get("/?language=de&name=Hanno")
        .ok()
        .says("Hallo, Hanno");
}

#[test]
fn file_of_the_plain_php_guide_is_sent() {
    let file = "storage/invoices/2026-11.pdf";
    let site = Site::new()
        .write(file, "an invoice")
        .write("surus.toml", block(PLAIN_PHP, "[x_sendfile]"))
        .write("public/index.php", block(PLAIN_PHP, "X-Sendfile:"));
    let path = site.www().join(file).display().to_string();
    let site = site.replace(
        "public/index.php",
        "/srv/app/storage/invoices/2026-11.pdf",
        &path,
    );
    let surus = site.serve(&[]);
    Client::new(&surus.url).get("/").ok().says("an invoice");
}

#[test]
fn uploads_of_the_plain_php_guide_do_not_run() {
    let site = Site::new()
        .write("surus.toml", block(PLAIN_PHP, "no_php"))
        .write("public/index.php", "<?php echo 'front';")
        .write("public/uploads/evil.php", "<?php echo 'ran';");
    let surus = site.serve(&[]);
    Client::new(&surus.url)
        .get("/uploads/evil.php")
        .lacks("ran");
}
