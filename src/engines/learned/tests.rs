//! Tests which pages are learned, and what is kept of them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn pages_of_enough_answers_are_chosen_in_order() {
    let counts = [("http://a/", 90, 3), ("http://a/b", 100, 3)];
    let counts = counts.map(|(page, count, addresses)| answers(page, count, addresses));
    assert_eq!(most(counts.into(), 200), ["http://a/b", "http://a/"]);
}

/// A page with answers to clients of this many addresses.
fn answers(page: &str, count: u32, addresses: u8) -> (String, PageAnswers) {
    let mut all = PageAnswers::default();
    for number in 0..count {
        let address = [203, 0, 113, number as u8 % addresses];
        all.add(Some(address.into()));
    }
    (page.to_owned(), all)
}

/// A secret link is asked for by its owner, and by programs that look at what is mailed.
#[test]
fn page_of_few_answers_or_addresses_is_not_chosen() {
    for (count, addresses) in [(19, 19), (100, 1), (100, 2)] {
        let counts = [answers("http://a/secret", count, addresses)];
        let none: [&str; 0] = [];
        assert_eq!(most(counts.into(), 200), none, "{count} {addresses}");
    }
    assert_eq!(most([answers("http://a/", 39, 3)].into(), 2000).len(), 0);
    assert_eq!(most([answers("http://a/", 40, 3)].into(), 2000).len(), 1);
}

#[test]
fn addresses_of_one_ipv6_network_count_once() {
    let mut all = PageAnswers::default();
    for client in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::1"] {
        all.add(Some(client.parse().unwrap()));
    }
    for client in ["198.51.100.7", "::ffff:198.51.100.7"] {
        all.add(Some(client.parse().unwrap()));
    }
    all.add(None);
    assert_eq!((all.count, all.addresses.len()), (6, 2));
}

#[test]
fn pages_of_other_hosts_are_not_proposed() {
    let page = |host: &str| format!("http://{host}/a");
    let proposed = |hosts: &[&str], host: &str| {
        let learned = Learned::of_hosts(hosts.iter().map(|&host| host.to_owned()).collect());
        learned.propose(vec![page(host)]);
        learned.lock().proposed.is_some()
    };
    assert!(proposed(&[], NO_HOST));
    assert!(!proposed(&[], "client.test"));
    assert!(proposed(&["a.test", "b.test"], "b.test"));
    let learned = Learned::of_hosts(vec!["a.test".into()]);
    assert!(learned.parse(&text(&[page("a.test")])).is_ok());
    assert!(learned.parse(&text(&[page("client.test")])).is_err());
    for other in ["client.test", "b.test:81", NO_HOST] {
        assert!(!proposed(&["a.test", "b.test"], other), "{other}");
    }
}

#[tokio::test]
async fn another_version_may_use_pages_that_were_left_out_and_learns_again() {
    let learned = Learned::default();
    let page = |path: &str| format!("http://{NO_HOST}{path}");
    learned.leave_out(LeftOut {
        page: page("/a"),
        reason: LeftOutReason::Status,
        why: String::new(),
    });
    learned.failed(&page("/b"), "status 503".into());
    learned.lock().rounds = ROUNDS.len();
    learned.start_again();
    assert!(learned.left_out().is_empty() && learned.is_counting());
    assert_eq!(learned.lock().rounds, 0);
    learned.propose(vec![page("/a"), page("/b")]);
    learned.propose(vec![page("/b"), page("/c")]);
    learned.set_pages(vec![page("/a")]);
    let proposed = ["/a", "/b", "/c"].map(page);
    assert_eq!(learned.chosen().await.unwrap(), proposed);
}

#[test]
fn page_that_fails_for_now_is_left_out_after_its_last_try() {
    let learned = Learned::default();
    let page = "http://localhost/a";
    for tries in 1..TRIES {
        assert_eq!(learned.failed(page, "status 429".into()), tries);
        assert!(!learned.is_left_out(page));
    }
    assert_eq!(learned.failed(page, "status 503".into()), TRIES);
    assert!(learned.is_left_out(page));
    let left_out = LeftOut {
        page: page.into(),
        reason: LeftOutReason::Temporary,
        why: "status 503; tried 5 of 5 times".into(),
    };
    assert_eq!(learned.left_out(), [left_out]);
    assert_eq!(learned.failing(), [page], "the next start tries it");
    learned.succeeded(&[page.into()]);
    assert!(learned.left_out().is_empty() && !learned.is_left_out(page));
}

/// Ends a round of counting with answers to one page.
async fn end_round(
    learned: &Learned,
    count: u32,
    addresses: u8,
) -> Result<Vec<String>, NothingLearned> {
    {
        let mut state = learned.lock();
        state.answers = ROUNDS[state.rounds];
        state.by_page = [answers("http://localhost/", count, addresses)].into();
    }
    learned.due.notify_one();
    learned.chosen().await
}

/// All clients of a proxy that is not trusted have one address.
#[tokio::test]
async fn pages_of_too_few_addresses_are_reported_in_the_first_round_and_once() {
    let learned = Learned::default();
    assert_eq!(end_round(&learned, 200, 1).await, Err(FEW_ADDRESSES));
    assert_eq!(end_round(&learned, 2_000, 1).await, Ok(Vec::new()));
    assert_eq!(end_round(&learned, 20_000, 1).await, Ok(Vec::new()));
}

/// Each frequent page may find a third client in a later round.
#[tokio::test]
async fn pages_of_too_few_addresses_of_many_are_reported_in_the_last_round() {
    let learned = Learned::default();
    for number in 0..3 {
        let client = IpAddr::from([203, 0, 113, number]);
        add_address(&mut learned.lock().addresses, Some(client));
    }
    for count in [200, 2_000] {
        assert_eq!(end_round(&learned, count, 2).await, Ok(Vec::new()));
    }
    assert_eq!(end_round(&learned, 20_000, 2).await, Err(FEW_ADDRESSES));
}

#[tokio::test]
async fn pages_of_too_few_answers_are_reported_in_the_last_round() {
    let learned = Learned::default();
    learned.start();
    for _ in [200, 2_000] {
        assert_eq!(end_round(&learned, 19, 3).await, Ok(Vec::new()));
        assert!(learned.is_counting());
    }
    assert_eq!(end_round(&learned, 19, 3).await, Err(FEW_ANSWERS));
    assert!(!learned.is_counting());
}

#[tokio::test]
async fn page_that_warms_up_the_boot_needs_no_report() {
    let learned = Learned::default();
    let page = "http://localhost/".to_owned();
    assert_eq!(end_round(&learned, 200, 3).await, Ok(vec![page.clone()]));
    learned.succeeded(&[page]);
    assert_eq!(end_round(&learned, 2_000, 1).await, Ok(Vec::new()));
}

/// As after a reload, or after PHP has restarted.
#[tokio::test]
async fn pages_of_the_last_boot_are_proposed_once_for_the_next_one() {
    let learned = Learned::default();
    let pages = ["/a", "/b"].map(|path| format!("http://{NO_HOST}{path}"));
    learned.prove_again();
    assert!(learned.proposed().is_empty(), "no page is proven");
    learned.succeeded(&pages);
    learned.prove_again();
    assert_eq!(learned.chosen().await.unwrap(), pages);
    learned.prove_again();
    assert!(learned.proposed().is_empty());
    assert!(learned.pages().is_empty(), "nothing warms up the next boot");
}

#[test]
fn text_of_anybody_is_bounded_and_has_pages_only() {
    let pages = vec![
        "http://a/".to_owned(),
        "https://a.test:8080/b%20c".to_owned(),
    ];
    assert_eq!(parse(&text(&pages)).unwrap(), pages);
    for url in [
        "/path",
        "file:///etc/passwd",
        "http://user@a/",
        "http://a/?query",
        "http://a/\u{e4}",
        "http:///nowhere",
    ] {
        assert!(parse(&text(&[url.to_owned()])).is_err(), "{url}");
    }
    let long = format!("http://a/{}", "x".repeat(LONGEST));
    assert!(parse(&text(&[long])).is_err());
    let many = vec!["http://a/".to_owned(); MOST_PAGES + 1];
    assert!(parse(&text(&many)).is_err());
    assert!(parse("").is_err());
}

proptest! {
    #[test]
    fn accepted_text_has_the_same_pages_after_it_was_written_again(
        format in prop_oneof![9 => Just(FORMAT.to_owned()), 1 => ".{0,20}"],
        lines in vec(
            prop_oneof![9 => "https?://[ab]{1,2}(:[0-9]{1,3})?/[!-~]{0,6}\r?", 1 => ".{0,20}"],
            0..10,
        ),
    ) {
        let read = format!("{format}\n{}", lines.join("\n"));
        let learned = Learned::of_hosts(vec!["a".into(), "b".into()]);
        let own = learned.parse(&read).ok();
        if let Ok(pages) = parse(&read) {
            let is_own = pages.iter().all(|page| learned.has_own_host(page));
            prop_assert_eq!(own.as_ref(), is_own.then_some(&pages));
            prop_assert!(pages.len() <= MOST_PAGES);
            prop_assert_eq!(parse(&text(&pages)).ok(), Some(pages));
        } else {
            prop_assert_eq!(own, None);
        }
    }
}
