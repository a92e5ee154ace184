//! A dead-letter queue that two queues share.

use serde_json::json;

use super::super::operate::{address, said, surus};
use super::{MANY, Site};

#[test]
fn each_queue_retries_its_own_dead_letters() {
    let second = "shared-dead-letters";
    let settings = format!(
        "tries = 1\n[[queue]]\nname = '{second}'\nhandler = 'jobs.php'\nsource = '{{source}}'\n\
         tries = 1\n"
    );
    let Some(site) = Site::new(&settings) else {
        return;
    };
    let other = site.queue.create_sharing_dead_letters(second, MANY);
    site.push(1, "throw once");
    let job = json!({ "n": 2, "do": "throw once" }).to_string();
    other.send(&[(job, 0)]);
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty() && other.len() == 0);
    let run = |args: &[&str]| said(&site.plain.site, &work, args);
    // A letter that has just been looked at may be hidden for a moment.
    work.wait_until(|| {
        let list = run(&["work", "failed"]);
        list.matches("try 1 of 1 failed").count() == 2
    });
    // A dead letter that does not name the queue it comes from.
    let body = json!({ "n": 3 }).to_string();
    let asked = json!({ "QueueUrl": site.queue.dead_url(), "MessageBody": body });
    let sent = site.queue.call("SendMessage", asked);
    let id = sent["MessageId"].as_str().unwrap();
    let retry = |args: &[&str]| surus(&site.plain.site, &address(&work), args);
    work.wait_until(|| {
        let output = retry(&["work", "retry", "--all"]);
        String::from_utf8_lossy(&output.stderr).contains("--all leaves it")
    });
    work.wait_until(|| site.count("done 1") + site.count("done 2") == 2);
    let names = [site.name.as_str(), second].map(|name| format!("{name}/{id}"));
    work.wait_until(|| {
        let list = run(&["work", "failed"]);
        names.iter().all(|name| list.contains(name))
    });
    work.wait_until(|| {
        let output = retry(&["work", "retry", "--id", &names[1]]);
        output.status.success() || site.count("done 3") == 1
    });
    work.wait_until(|| site.count("done 3") == 1);
    assert_eq!(run(&["work", "failed"]), "no job has failed\n");
    work.wait_until(|| site.is_empty() && other.len() == 0);
    for number in 1..=3 {
        let begun = if number == 3 { 1 } else { 2 };
        assert_eq!(site.count(&format!("begins {number}")), begun, "{number}");
    }
}
