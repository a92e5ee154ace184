//! Tests what PHP's log has of the warm-up that Surus asks for by itself.

use super::super::client::Client;
use super::{serve_production, unmodified};

/// Each process of `standby` asks for a page that does not exist.
#[test]
fn symfony_error_page_of_a_warm_up_and_its_report_are_logged_once() {
    let site = unmodified("symfony7");
    // It writes its cache, so that no boot does and is made again.
    let surus = serve_production(&site, "classic");
    Client::new(&surus.url).get("/no/such/page").status(404);
    drop(surus);
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let mut counts = Vec::new();
    for engine in ["rewind", "standby"] {
        for has_file in [false, true] {
            let file = site.tmp().join(format!("{engine}.log"));
            let set = format!("error_log={}", file.display());
            let args = ["--engine", engine, "--workers", "2", "-d", &set];
            let surus = site.serve_with(if has_file { &args } else { &args[..4] }, &env);
            let logged = |log: &str| match has_file {
                true => std::fs::read_to_string(&file).unwrap_or_default(),
                false => log.to_string(),
            };
            // As many processes of `standby` have run the warm-up before they serve these.
            for _ in 0..4 {
                Client::new(&surus.url).get("/json?q=1").ok();
            }
            let report = "services created ahead in";
            surus.wait_for_log(|log| logged(log).contains(report));
            let text = logged(&surus.log());
            assert_eq!(text.matches(report).count(), 1, "{args:?}: {text}");
            let page = "surus-warm-up-of-a-page-that-does-not-exist";
            counts.push(text.lines().filter(|line| line.contains(page)).count());
        }
    }
    let once = counts[0];
    assert!(
        once > 0 && counts.iter().all(|&count| count == once),
        "{counts:?}"
    );
}
