//! Tests requests for directories whose `.htaccess` files are read slowly.

use std::fs;
use std::sync::PoisonError;

use http::HeaderMap;
use tempfile::TempDir;

use super::*;
use crate::app::site::opened::Denial;
use crate::app::site::{Settings, Steps, normalize};

/// A site whose directories have `a.txt` and this `.htaccess` file.
fn site(directories: &[(&str, &str)]) -> (TempDir, Arc<Site>) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in directories {
        let directory = dir.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("a.txt"), "").unwrap();
        fs::write(directory.join(".htaccess"), text).unwrap();
    }
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    (dir, Arc::new(site))
}

fn find(site: &Site, path: &str, pace: Pace) -> Resolution {
    let none = HeaderMap::new();
    let facts = Facts {
        steps: Steps::of(pace),
        pace,
        ..Facts::of_get(path, None, &none)
    };
    site.find_for(&facts, &normalize(path).unwrap(), Instant::now())
}

fn promptly(site: &Site, path: &str) -> Resolution {
    find(site, path, Pace::Prompt)
}

/// Looks up a path as a request does; also whether that took long.
async fn answer(site: Arc<Site>, path: &'static str) -> (Resolution, bool) {
    match promptly(&site, path) {
        Resolution::Later(later) => {
            let find = |site: &Site, path: &&str, pace| find(site, path, pace);
            let found = site.find_in_turn(later, path, find).await;
            (
                found.map_or_else(Resolution::Failed, |(_, found)| found),
                true,
            )
        }
        found => (found, false),
    }
}

fn is_closed(found: &Resolution) -> bool {
    matches!(found, Resolution::Denied(Denial::DeniedByHtaccess))
}

const CLOSED: &str = "Require all denied";

/// All requests of this test share a thread.
#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the lock is the disk that does not answer"
)]
async fn file_that_is_read_slowly_makes_no_other_request_wait() {
    let (_dir, site) = site(&[
        ("slow", CLOSED),
        ("slow/below", ""),
        ("fast", "Options -Indexes"),
    ]);
    let htaccess = site.htaccess.as_ref().unwrap();
    let fast = || answer(site.clone(), "/fast/a.txt");
    assert!(matches!(fast().await.0, Resolution::File(_)));
    let disk = htaccess
        .site
        .reading
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let closed = tokio::spawn(answer(site.clone(), "/slow/a.txt"));
    while htaccess.site.turn.try_lock().is_ok() {
        tokio::task::yield_now().await;
    }
    let requests: Vec<_> = ["/slow/a.txt", "/slow/", "/slow/below/a.txt"]
        .into_iter()
        .map(|path| tokio::spawn(answer(site.clone(), path)))
        .collect();
    // Its thread goes on reading.
    closed.abort();
    for _ in 0..100 {
        assert!(matches!(fast().await, (Resolution::File(_), false)));
    }
    assert!(
        htaccess.site.turn.try_lock().is_err(),
        "another thread may read"
    );
    assert!(requests.iter().all(|request| !request.is_finished()));
    drop(disk);
    for request in requests {
        let (found, _) = request.await.unwrap();
        assert!(is_closed(&found), "{found:?}");
    }
    // The rules that were read are used without waiting.
    assert!(is_closed(&promptly(&site, "/slow/a.txt")));
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_half_a_minute_at_most() {
    let (_dir, site) = site(&[("slow", CLOSED)]);
    let turn = site.htaccess.as_ref().unwrap().site.turn.clone();
    let _another = turn.lock_owned().await;
    let began = tokio::time::Instant::now();
    let (found, _) = answer(site, "/slow/a.txt").await;
    assert!(matches!(found, Resolution::Failed(LookupError::Scarce)));
    assert_eq!(began.elapsed(), MAX_WAIT);
}

#[tokio::test]
async fn files_on_the_way_of_an_internal_redirect_are_read() {
    let rules = "RewriteEngine On\nRewriteRule a.txt /to/b.txt";
    let (dir, site) = site(&[("from", rules), ("to", CLOSED)]);
    let (found, is_slow) = answer(site.clone(), "/from/a.txt").await;
    assert!(is_closed(&found) && is_slow, "{found:?}");
    assert!(is_closed(&promptly(&site, "/from/a.txt")));
    // A directory's own file applies to its name without a slash, too.
    fs::create_dir(dir.path().join("other")).unwrap();
    fs::write(dir.path().join("other/.htaccess"), CLOSED).unwrap();
    let (found, is_slow) = answer(site.clone(), "/other").await;
    assert!(is_closed(&found) && is_slow, "{found:?}");
    assert!(is_closed(&promptly(&site, "/other")));
}

#[tokio::test]
async fn file_that_has_only_comments_is_read_once() {
    let (_dir, site) = site(&[("noted", "# nothing")]);
    let (found, is_slow) = answer(site.clone(), "/noted/a.txt").await;
    assert!(matches!(found, Resolution::File(_)) && is_slow);
    let htaccess = site.htaccess.as_ref().unwrap();
    let later = Instant::now() + Duration::from_secs(2);
    let merged = htaccess.merged_if_read(&site.root, "/noted/", later);
    assert!(merged.is_ok_and(|(merged, end)| merged.is_empty() && end == "/noted/".len()));
}

#[tokio::test]
async fn many_rules_are_merged_on_another_thread() {
    let many = format!(
        "RewriteEngine On\nRewriteOptions InheritDown\n{}",
        "RewriteRule ^none$ -\n".repeat(1200)
    );
    let own = "RewriteEngine On\nRewriteRule a.txt - [F]";
    let (dir, site) = site(&[("many", &many), ("own", own)]);
    let below = dir.path().join("many/below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("a.txt"), "").unwrap();
    fs::hard_link(dir.path().join("own/.htaccess"), below.join(".htaccess")).unwrap();
    answer(site.clone(), "/many/a.txt").await;
    answer(site.clone(), "/own/a.txt").await;
    // Both files have been read.
    let (found, is_slow) = answer(site.clone(), "/many/below/a.txt").await;
    assert!(is_closed(&found) && is_slow, "{found:?}");
    assert!(is_closed(&promptly(&site, "/many/below/a.txt")));
}

#[tokio::test]
async fn rules_that_take_many_steps_are_evaluated_on_another_thread() {
    let costly = |count: usize| {
        let conditions = "RewriteCond %{REQUEST_FILENAME}x -f\nRewriteRule ^ -\n".repeat(count);
        format!("RewriteEngine On\n{conditions}RewriteRule ^ - [F]")
    };
    let (_dir, site) = site(&[
        ("few", &costly(10)),
        ("many", &costly(500)),
        ("most", &costly(6000)),
    ]);
    for (path, takes_long) in [("/few/a.txt", false), ("/many/a.txt", true)] {
        answer(site.clone(), path).await;
        let (found, is_slow) = answer(site.clone(), path).await;
        assert!(is_closed(&found), "{found:?}");
        assert_eq!(is_slow, takes_long);
    }
    let (found, _) = answer(site, "/most/a.txt").await;
    assert!(
        matches!(found, Resolution::Denied(Denial::TooManySteps)),
        "{found:?}"
    );
}
