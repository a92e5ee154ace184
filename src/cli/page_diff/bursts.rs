//! Compares two boots: one is asked several times before and after the other.

use super::Template;
use super::template::Tokens;

/// A shorter value that varies may be a duration or a count, which is the same by chance.
const SHORTEST_RANDOM: usize = 8;

/// What a boot has answered to one request.
pub struct PlainAnswers {
    template: Template,
    /// By the template's gaps.
    gaps: Vec<PlainGap>,
}

/// What the answers have in a gap of their template.
struct PlainGap {
    /// How many tokens an answer may have there.
    longest: usize,
    /// Whether every answer of a burst has another text.
    is_random: bool,
    /// The same by token, if all answers have as many of them.
    random_tokens: Vec<bool>,
}

/// What an answer has in each gap.
type Contents<'a> = Vec<Tokens<'a>>;

impl PlainAnswers {
    /// None if there are no answers.
    pub fn new(before: &[Vec<u8>], after: &[Vec<u8>]) -> Option<PlainAnswers> {
        let mut answers = before.iter().chain(after);
        let mut template = Template::new(answers.next()?);
        answers.for_each(|answer| template.widen(answer));
        let gaps = match (contents(&template, before), contents(&template, after)) {
            (Some(before), Some(after)) => gaps(&[before, after]),
            // An answer takes too many steps.
            _ => Vec::new(),
        };
        Some(PlainAnswers { template, gaps })
    }

    /// The first difference of a burst of answers: what is expected, and what they have.
    pub fn difference(&self, burst: &[Vec<u8>]) -> Option<(String, String)> {
        let mut all = Vec::new();
        for answer in burst {
            match self.template.gaps(answer) {
                Err(difference) => return Some(difference),
                Ok(contents) => all.push(contents),
            }
        }
        let mut gaps = self.gaps.iter().enumerate();
        gaps.find_map(|(at, gap)| gap.difference(&column(&all, at)))
    }
}

impl PlainGap {
    fn of(bursts: &[Vec<&Tokens>]) -> PlainGap {
        let all = || bursts.iter().flatten();
        let longest = all().map(|tokens| tokens.len()).max().unwrap_or(0);
        let is_even = all().all(|tokens| tokens.len() == longest);
        let is_random_at = |at: usize| {
            let of = |burst: &Vec<&Tokens>| {
                let tokens = burst.iter().map(|tokens| tokens[at].to_vec());
                is_random(&tokens.collect::<Vec<_>>())
            };
            bursts.iter().all(of)
        };
        PlainGap {
            // Random text consists of more tokens at times.
            longest: longest + longest / 2,
            is_random: bursts.iter().all(|burst| is_random(&texts(burst))),
            random_tokens: match is_even {
                true => (0..longest).map(is_random_at).collect(),
                false => Vec::new(),
            },
        }
    }

    fn difference(&self, burst: &[&Tokens]) -> Option<(String, String)> {
        if let Some(long) = burst.iter().find(|tokens| tokens.len() > self.longest) {
            let expected = format!("at most {} words and signs", self.longest);
            return Some((expected, shown(&long.concat())));
        }
        let texts = texts(burst);
        let constant = constant(&texts).filter(|_| self.is_random).or_else(|| {
            let is_even = |tokens: &&Tokens| tokens.len() == self.random_tokens.len();
            let random = (self.random_tokens.iter().enumerate())
                .filter(|(_, is_random)| **is_random && burst.iter().all(is_even));
            random.map(|(at, _)| at).find_map(|at| {
                let tokens = burst.iter().map(|tokens| tokens[at].to_vec());
                constant(&tokens.collect::<Vec<_>>())
            })
        })?;
        let expected = "another value in each answer".to_owned();
        Some((expected, format!("{} in all answers", shown(&constant))))
    }
}

fn contents<'a>(template: &Template, burst: &'a [Vec<u8>]) -> Option<Vec<Contents<'a>>> {
    let gaps = burst.iter().map(|answer| template.gaps(answer).ok());
    gaps.collect()
}

fn gaps(bursts: &[Vec<Contents>]) -> Vec<PlainGap> {
    let count = bursts.iter().flatten().map(Vec::len).min().unwrap_or(0);
    let gap = |at| {
        let bursts = bursts.iter().map(|burst| column(burst, at));
        PlainGap::of(&bursts.collect::<Vec<_>>())
    };
    (0..count).map(gap).collect()
}

/// What each answer has in one gap.
fn column<'a, 'b>(burst: &'b [Contents<'a>], at: usize) -> Vec<&'b Tokens<'a>> {
    burst.iter().filter_map(|answer| answer.get(at)).collect()
}

fn texts(burst: &[&Tokens]) -> Vec<Vec<u8>> {
    burst.iter().map(|tokens| tokens.concat()).collect()
}

/// Whether all differ and are long.
fn is_random(texts: &[Vec<u8>]) -> bool {
    let is_new = |(at, text): (usize, &Vec<u8>)| {
        text.len() >= SHORTEST_RANDOM && !texts[..at].contains(text)
    };
    texts.len() > 1 && texts.iter().enumerate().all(is_new)
}

/// The text that all have.
fn constant(texts: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (first, others) = texts.split_first()?;
    let is_constant = !others.is_empty() && others.iter().all(|other| other == first);
    is_constant.then(|| first.clone())
}

fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let visible = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it });
    visible.take(super::template::SHOWN_AFTER).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn burst(answers: &[&str]) -> Vec<Vec<u8>> {
        let answers = answers.iter().map(|answer| answer.as_bytes().to_vec());
        answers.collect()
    }

    fn compare(before: &[&str], warm: &[&str], after: &[&str]) -> Option<(String, String)> {
        let plain = PlainAnswers::new(&burst(before), &burst(after)).unwrap();
        plain.difference(&burst(warm))
    }

    #[test]
    fn token_that_is_the_same_in_all_warm_answers_is_a_difference() {
        let before = ["<i a=11111111>", "<i a=22222222>", "<i a=33333333>"];
        let after = ["<i a=44444444>", "<i a=55555555>", "<i a=66666666>"];
        let warm = ["<i a=77777777>", "<i a=88888888>", "<i a=99999999>"];
        assert_eq!(compare(&before, &warm, &after), None);
        let (expected, got) = compare(&before, &[warm[0]; 3], &after).unwrap();
        assert!(expected.contains("in each answer"), "{expected}");
        assert!(got.contains("77777777 in all answers"), "{got}");
    }

    #[test]
    fn token_next_to_one_that_varies_is_compared_by_itself() {
        let page = |token: &str, time: &str| format!("<b>{token}|{time}</b>");
        let pages = |pairs: &[(&str, &str)]| {
            let pages = pairs.iter().map(|(token, time)| page(token, time));
            pages.collect::<Vec<_>>()
        };
        let of = |pages: &[String]| -> Vec<Vec<u8>> {
            pages.iter().map(|page| page.clone().into_bytes()).collect()
        };
        let before = pages(&[("aaaaaaaa", "1.01"), ("bbbbbbbb", "1.02")]);
        let after = pages(&[("cccccccc", "1.05"), ("dddddddd", "1.06")]);
        let warm = pages(&[("eeeeeeee", "1.03"), ("eeeeeeee", "1.04")]);
        let plain = PlainAnswers::new(&of(&before), &of(&after)).unwrap();
        assert!(plain.difference(&of(&warm)).is_some());
        let warm = pages(&[("eeeeeeee", "1.03"), ("ffffffff", "1.04")]);
        assert_eq!(plain.difference(&of(&warm)), None);
    }

    #[test]
    fn time_and_short_number_may_be_the_same_in_all_answers() {
        // The seconds are the same within a burst.
        let [before, warm, after] = ["12:00:00", "12:00:01", "12:00:02"];
        assert_eq!(compare(&[before; 3], &[warm; 3], &[after; 3]), None);
        let before = ["in 31 ms", "in 35 ms"];
        let after = ["in 30 ms", "in 33 ms"];
        assert_eq!(compare(&before, &["in 4 ms"; 2], &after), None);
    }

    #[test]
    fn text_inserted_next_to_a_gap_is_a_difference() {
        let page = |time: &str, more: &str| format!("<p>{time}</p>{more}<p>end</p>");
        let pages = |times: [&str; 2], more: &str| times.map(|time| page(time, more));
        let [before, after] = [["11:01", "11:02"], ["11:05", "11:06"]].map(|it| pages(it, ""));
        let plain = |it: &[String; 2]| burst(&[it[0].as_str(), it[1].as_str()]);
        let expected = PlainAnswers::new(&plain(&before), &plain(&after)).unwrap();
        let same = pages(["11:03", "11:04"], "");
        assert_eq!(expected.difference(&plain(&same)), None);
        let more = pages(["11:03", "11:04"], "<p>Welcome, Ada</p>");
        let (_, got) = expected.difference(&plain(&more)).unwrap();
        assert!(got.contains("Ada"), "{got}");
    }
}
