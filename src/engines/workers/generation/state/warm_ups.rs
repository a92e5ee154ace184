//! Tells which warm-ups a boot has used, and which it has left out, from PHP's report.

use std::collections::HashSet;

use super::GenerationState;
use crate::engine::Report;
use crate::observe::status::LeftOutReason;

/// The warm-ups of a boot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WarmUps {
    /// Learned pages that it has used.
    pub learned: Vec<String>,
    /// URLs of the configuration that it has used.
    pub named: Vec<String>,
    pub left_out: Vec<(String, LeftOutReason)>,
}

impl GenerationState {
    pub fn warm_ups(&self) -> WarmUps {
        WarmUps::of(&self.report(), &self.learned, &self.named)
    }
}

impl WarmUps {
    /// Learned pages have numbers from 1, those of the configuration are the last. Pages that other
    /// scripts answer have none.
    fn of(report: &Report, learned: &[String], named: &[String]) -> WarmUps {
        let others = report.get("left_to_others").split(',');
        let others: HashSet<usize> = others.filter_map(|place| place.parse().ok()).collect();
        let (others, named): (Vec<_>, Vec<_>) =
            (named.iter().enumerate()).partition(|(place, _)| others.contains(place));
        // 0 where each worker boots for itself, and where nothing is warmed up.
        let total: u16 = report.get("warm_ups").parse().unwrap_or(0);
        let before_named = usize::from(total).checked_sub(named.len());
        let named = named.into_iter().filter(|_| before_named.is_some());
        let left_out = report.left_out();
        let mut all = WarmUps::default();
        for (numbers, pages, used) in [
            (1, learned.iter().collect::<Vec<_>>(), &mut all.learned),
            (
                before_named.unwrap_or(0) + 1,
                named.map(|(_, page)| page).collect(),
                &mut all.named,
            ),
        ] {
            for (number, page) in (numbers..).zip(pages) {
                match left_out.get(&number) {
                    Some(reason) => all.left_out.push((page.clone(), *reason)),
                    None => used.push(page.clone()),
                }
            }
        }
        let others = others.into_iter().map(|(_, page)| page.clone());
        all.left_out
            .extend(others.map(|page| (page, LeftOutReason::OtherScript)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn pages_of_the_configuration_have_the_last_numbers() {
        let learned = texts(&["http://a/", "http://a/b"]);
        let named = texts(&["/c", "/d"]);
        let of = |report: &str| WarmUps::of(&Report::read(report), &learned, &named);
        // Between them is the page that does not exist.
        let warm_ups = of("warm_ups=5\nleft_out=2:temporary,3:failed,4:changed\n");
        let left_out = [
            ("http://a/b".to_owned(), LeftOutReason::Temporary),
            ("/c".to_owned(), LeftOutReason::Changed),
        ];
        let expected = WarmUps {
            learned: texts(&["http://a/"]),
            named: texts(&["/d"]),
            left_out: left_out.into(),
        };
        assert_eq!(warm_ups, expected);
        assert_eq!(of("warm_ups=4\nleft_out=\n").named, named);
    }

    #[test]
    fn page_that_another_script_answers_has_no_number() {
        let named = texts(&["/a", "/other", "/b"]);
        let report = "warm_ups=3\nleft_out=3:failed\nleft_to_others=1,7,x,\n";
        let left_out = [
            ("/b".to_owned(), LeftOutReason::Failed),
            ("/other".to_owned(), LeftOutReason::OtherScript),
        ];
        let expected = WarmUps {
            learned: Vec::new(),
            named: texts(&["/a"]),
            left_out: left_out.into(),
        };
        assert_eq!(WarmUps::of(&Report::read(report), &[], &named), expected);
    }

    #[test]
    fn boot_without_warm_ups_has_used_none_of_the_configuration() {
        let named = texts(&["/c"]);
        for report in ["", "warm_ups=0\n", "warm_ups=-1\n"] {
            let warm_ups = WarmUps::of(&Report::read(report), &[], &named);
            assert_eq!(warm_ups, WarmUps::default(), "{report}");
        }
        let forged = "warm_ups=65535\nleft_out=1:status,x,0:,:,99999999999999999999:state\n";
        assert_eq!(WarmUps::of(&Report::read(forged), &[], &named).named, named);
    }
}
