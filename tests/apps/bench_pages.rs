//! Opens the HTML reports of `surus bench` and of the lab in a browser: wide and narrow, light and
//! dark.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::browser::Browser;
use super::site::{Site, example};

/// What reaches over the edge of the window, and what lies over something else.
const TOO_WIDE: &str = "
    const wide = document.documentElement.clientWidth;
    const all = [...document.querySelectorAll('main, main *')];
    const over = all.filter(it => it.getBoundingClientRect().right > wide + 1);
    // What an element cuts off, or shows only after scrolling.
    const cut = all.filter(it => it instanceof HTMLElement && it.clientWidth
        && it.scrollWidth > it.clientWidth + 1);
    return [...over, ...cut].slice(0, 5)
        .map(it => it.tagName + ': ' + it.textContent.trim().slice(0, 60));";

/// Texts whose contrast to the background is below what WCAG 2 wants (4.5).
const PALE: &str = "
    const channel = it => (it /= 255) <= .03928 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
    const numbers = text => text.match(/[\\d.]+/g).map(Number);
    const back = it => {
        for (; it; it = it.parentElement) {
            const found = numbers(getComputedStyle(it).backgroundColor);
            if (found.length < 4 || found[3] > 0) return found;
        }
    };
    return [...document.querySelectorAll('h1, h2, p, td, th, li, pre, code, figcaption, text')]
        .filter(it => {
            const style = getComputedStyle(it);
            const own = numbers(it.tagName === 'text' ? style.fill : style.color);
            const [a, b] = [luminance(own), luminance(back(it))].sort((a, b) => b - a);
            return (a + .05) / (b + .05) < 4.5;
        })
        .slice(0, 5).map(it => it.tagName + ': ' + it.textContent.slice(0, 60));";

/// Opens a page in each form, and leaves screenshots for people.
#[track_caller]
fn look(browser: &Browser, file: &Path) {
    let name = file.file_stem().unwrap().to_str().unwrap();
    browser.go(&format!("file://{}", file.display()));
    for (scheme, back) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")] {
        for width in [400, 1280] {
            browser.emulate(width, scheme);
            let form = format!("{name}, {width} px, {scheme}");
            let wide = browser.script(TOO_WIDE);
            assert_eq!(wide, json!([]), "{form}: wider than the page");
            let pale = browser.script(PALE);
            assert_eq!(pale, json!([]), "{form}: hard to read");
            let body = browser.script("return getComputedStyle(document.body).backgroundColor");
            assert_eq!(body, json!(back), "{form}");
            browser.picture(&format!("report-{name}-{width}-{scheme}"));
        }
    }
    let errors = browser.errors();
    assert!(
        errors.is_empty(),
        "{name}: errors in the browser: {errors:#?}"
    );
}

/// Runs `surus bench` with a page of this name.
fn page(directory: &Path, name: &str, args: &[&str], succeeds: bool) -> PathBuf {
    let file = directory.join(name).with_extension("html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.arg("bench").args(args).arg("--html").arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), succeeds, "{args:?}: {said}");
    file
}

#[test]
fn reports_of_bench_are_readable_on_a_phone_and_in_the_dark() {
    let site = Site::new().copy(&example("plain"), "");
    let surus = site.serve(&[]);
    let (url, api) = (surus.url.as_str(), format!("{}/api/hello", surus.url));
    let missing = format!("{}/missing", surus.url);
    let directory = tempfile::tempdir().unwrap();
    let www = site.www();
    let page = |name, args: &[&str], succeeds| page(directory.path(), name, args, succeeds);
    let rounds = ["--rounds", "6", "-d", "100ms", "-c", "2"];
    let search = ["--find-max", "--p99", "5s", "-d", "200ms", "-c", "2"];
    let engines = [
        "--engines",
        "worker,rewind,fork,cgi,cli",
        "--quick",
        "--workers",
        "1",
    ];
    let pages = [
        page("run", &[&api, "-d", "2s", "--rps", "100", "-c", "4"], true),
        page("failed", &[&missing, "-n", "20", "-c", "2"], false),
        page(
            "compare",
            &[&["compare", url, &api], &rounds[..]].concat(),
            true,
        ),
        page("find-max", &[&[&*api], &search[..]].concat(), true),
        page(
            "app",
            &[&["app", www.to_str().unwrap()], &engines[..]].concat(),
            true,
        ),
    ];
    let browser = Browser::open();
    for file in &pages {
        look(&browser, file);
    }
}

#[test]
fn results_of_the_lab_are_readable_on_a_phone_and_in_the_dark() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results");
    let browser = Browser::open();
    let mut count = 0;
    for entry in std::fs::read_dir(results).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|end| end == "html") {
            look(&browser, &file);
            count += 1;
        }
    }
    assert!(count > 5, "{count} pages");
}
