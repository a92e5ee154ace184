//! Builds a template of all answers to a request, and finds what differs from it. Dates, tokens and
//! random values differ between two answers of the same engine, so they are gaps.

use std::collections::HashMap;
use std::ops::Range;

/// Above this product of lengths, only tokens that occur once are aligned.
const LARGEST_TABLE: usize = 1_000_000;
/// Most steps of one comparison.
const MAX_STEPS: usize = 20_000_000;
/// Most tokens that are shown on each side of a difference.
const SHOWN_TOKENS: usize = 8;
/// Most characters that are shown before a difference.
const SHOWN_BEFORE: usize = 20;
/// Most characters that are shown from a difference on.
pub(super) const SHOWN_AFTER: usize = 40;

/// A part of an answer, word by word.
pub(super) type Tokens<'a> = Vec<&'a [u8]>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum PagePiece {
    Token(Vec<u8>),
    /// Any tokens, or none.
    Gap,
}

/// Tokens that every answer has, in this order, with gaps between them.
#[derive(Debug, Clone)]
pub struct Template(Vec<PagePiece>);

impl Template {
    /// A template without gaps.
    pub fn new(answer: &[u8]) -> Template {
        let tokens = tokens(answer).into_iter();
        Template(
            tokens
                .map(|token| PagePiece::Token(token.to_vec()))
                .collect(),
        )
    }

    /// Makes gaps where this answer differs.
    pub fn widen(&mut self, answer: &[u8]) {
        let tokens = tokens(answer);
        let mut pairs = Vec::new();
        align(&self.0, 0, &tokens, 0, &mut pairs);
        pairs.push((self.0.len(), tokens.len()));
        let mut pieces = Vec::new();
        let mut next = (0, 0);
        for (piece, token) in pairs {
            if (piece, token) != next {
                close_gap(&mut pieces);
            }
            if let Some(common) = tokens.get(token) {
                pieces.push(PagePiece::Token(common.to_vec()));
            }
            next = (piece + 1, token + 1);
        }
        self.0 = pieces;
    }

    /// The first difference of an answer: what is expected there, and what the answer has.
    pub fn difference(&self, answer: &[u8]) -> Option<(String, String)> {
        self.gaps(answer).err()
    }

    /// What an answer has in each gap, or its first difference.
    pub(super) fn gaps<'a>(&self, answer: &'a [u8]) -> Result<Vec<Tokens<'a>>, (String, String)> {
        let tokens = tokens(answer);
        let found = self.find_gaps(&tokens);
        let gaps = found.map_err(|(piece, token)| {
            let expected = around(&self.0, piece, |piece| match piece {
                PagePiece::Token(token) => token,
                PagePiece::Gap => "…".as_bytes(),
            });
            (expected, around(&tokens, token, |token| token))
        })?;
        Ok(gaps.into_iter().map(|gap| tokens[gap].to_vec()).collect())
    }

    /// The tokens in each gap, or where the tokens stop matching. Greedy: a gap takes as few tokens
    /// as it can.
    fn find_gaps(&self, tokens: &[&[u8]]) -> Result<Vec<Range<usize>>, (usize, usize)> {
        let pieces = &self.0;
        let (mut piece, mut token) = (0, 0);
        let mut furthest = (0, 0);
        let mut gaps: Vec<Range<usize>> = Vec::new();
        // The piece after the last gap.
        let mut after = 0;
        for _ in 0..MAX_STEPS {
            // By pieces: a gap before a difference reaches to the end of the answer.
            if furthest.0 < piece {
                furthest = (piece, token);
            }
            match pieces.get(piece) {
                Some(PagePiece::Gap) => {
                    piece += 1;
                    after = piece;
                    gaps.push(token..token);
                }
                Some(PagePiece::Token(expected)) if tokens.get(token) == Some(&&expected[..]) => {
                    piece += 1;
                    token += 1;
                }
                None if token == tokens.len() => return Ok(gaps),
                _ => match gaps.last_mut() {
                    Some(gap) if gap.end < tokens.len() => {
                        gap.end += 1;
                        (piece, token) = (after, gap.end);
                    }
                    _ => return Err(furthest),
                },
            }
        }
        Err(furthest)
    }
}

/// Adds a gap. Punctuation between two gaps is likely to be a part of what varies.
fn close_gap(pieces: &mut Vec<PagePiece>) {
    let is_word = |token: &[u8]| token.first().is_some_and(|byte| in_word(*byte));
    let words = |piece: &PagePiece| matches!(piece, PagePiece::Token(token) if is_word(token));
    let last = pieces.iter().rposition(|piece| *piece == PagePiece::Gap);
    if let Some(last) = last
        && !pieces[last..].iter().any(words)
    {
        pieces.truncate(last);
    }
    pieces.push(PagePiece::Gap);
}

/// Words, with what occurs in base64, in numbers and in URLs; and all other bytes by themselves.
fn tokens(text: &[u8]) -> Vec<&[u8]> {
    text.chunk_by(|a, b| in_word(*a) && in_word(*b)).collect()
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_+/=.%~-".contains(&byte) || !byte.is_ascii()
}

/// Pairs of equal tokens, in order, with their places.
fn align(
    mut pieces: &[PagePiece],
    mut piece_at: usize,
    mut tokens: &[&[u8]],
    mut token_at: usize,
    pairs: &mut Vec<(usize, usize)>,
) {
    while let (Some(PagePiece::Token(piece)), Some(token)) = (pieces.first(), tokens.first())
        && piece == token
    {
        pairs.push((piece_at, token_at));
        (pieces, tokens) = (&pieces[1..], &tokens[1..]);
        (piece_at, token_at) = (piece_at + 1, token_at + 1);
    }
    let mut end = 0;
    while let (Some(PagePiece::Token(piece)), Some(token)) = (
        pieces.get(pieces.len().wrapping_sub(end + 1)),
        tokens.get(tokens.len().wrapping_sub(end + 1)),
    ) && piece == token
    {
        end += 1;
    }
    let (inner, rest) = (pieces.len() - end, tokens.len() - end);
    let common = match inner * rest <= LARGEST_TABLE {
        true => longest(&pieces[..inner], &tokens[..rest]),
        false => anchors(&pieces[..inner], &tokens[..rest]),
    };
    if inner * rest <= LARGEST_TABLE {
        let placed = |(piece, token)| (piece_at + piece, token_at + token);
        pairs.extend(common.into_iter().map(placed));
    } else {
        let mut before = (0, 0);
        for (piece, token) in common.into_iter().chain([(inner, rest)]) {
            align(
                &pieces[before.0..piece],
                piece_at + before.0,
                &tokens[before.1..token],
                token_at + before.1,
                pairs,
            );
            if piece < inner {
                pairs.push((piece_at + piece, token_at + token));
            }
            before = (piece + 1, token + 1);
        }
    }
    for offset in 0..end {
        pairs.push((piece_at + inner + offset, token_at + rest + offset));
    }
}

/// The longest common subsequence.
fn longest(pieces: &[PagePiece], tokens: &[&[u8]]) -> Vec<(usize, usize)> {
    let width = tokens.len() + 1;
    let mut table = vec![0_u32; (pieces.len() + 1) * width];
    let is_equal =
        |piece: &PagePiece, token: &[u8]| matches!(piece, PagePiece::Token(it) if it == token);
    for (row, piece) in pieces.iter().enumerate().rev() {
        for (column, token) in tokens.iter().enumerate().rev() {
            table[row * width + column] = match is_equal(piece, token) {
                true => table[(row + 1) * width + column + 1] + 1,
                false => table[(row + 1) * width + column].max(table[row * width + column + 1]),
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut pairs = Vec::new();
    while row < pieces.len() && column < tokens.len() {
        if is_equal(&pieces[row], tokens[column]) {
            pairs.push((row, column));
            (row, column) = (row + 1, column + 1);
        } else if table[(row + 1) * width + column] >= table[row * width + column + 1] {
            row += 1;
        } else {
            column += 1;
        }
    }
    pairs
}

/// Tokens that occur once on both sides, as many of them as keep their order (patience diff).
fn anchors(pieces: &[PagePiece], tokens: &[&[u8]]) -> Vec<(usize, usize)> {
    let mut places: HashMap<&[u8], (usize, usize, usize, usize)> = HashMap::new();
    for (place, piece) in pieces.iter().enumerate() {
        if let PagePiece::Token(token) = piece {
            let entry = places.entry(token).or_default();
            (entry.0, entry.1) = (entry.0 + 1, place);
        }
    }
    for (place, token) in tokens.iter().enumerate() {
        let entry = places.entry(token).or_default();
        (entry.2, entry.3) = (entry.2 + 1, place);
    }
    let unique = places.into_values().filter(|it| (it.0, it.2) == (1, 1));
    let mut unique: Vec<_> = unique.map(|it| (it.1, it.3)).collect();
    unique.sort_unstable();
    // The longest increasing subsequence: the last pair of each pile, and the element below it.
    let mut piles: Vec<usize> = Vec::new();
    let mut below = vec![None; unique.len()];
    for index in 0..unique.len() {
        let pile = piles.partition_point(|top| unique[*top].1 < unique[index].1);
        below[index] = pile.checked_sub(1).map(|left| piles[left]);
        match piles.get_mut(pile) {
            Some(top) => *top = index,
            None => piles.push(index),
        }
    }
    let mut kept = Vec::new();
    let mut next = piles.last().copied();
    while let Some(index) = next {
        kept.push(unique[index]);
        next = below[index];
    }
    kept.reverse();
    kept
}

/// The text before a place and after it, in one line.
fn around<T>(all: &[T], place: usize, text: impl Fn(&T) -> &[u8]) -> String {
    let line = |range: &[T]| {
        let bytes: Vec<_> = range.iter().flat_map(|it| text(it).to_vec()).collect();
        let text = String::from_utf8_lossy(&bytes);
        let characters = text.chars();
        let visible = characters.map(|it| if it.is_control() { ' ' } else { it });
        visible.collect::<String>()
    };
    let before = line(&all[place.saturating_sub(SHOWN_TOKENS)..place]);
    let after = line(&all[place..(place + SHOWN_TOKENS).min(all.len())]);
    let skipped = before.chars().count().saturating_sub(SHOWN_BEFORE);
    let before: String = before.chars().skip(skipped).collect();
    let mut after: String = after.chars().take(SHOWN_AFTER).collect();
    if after.is_empty() {
        after.push_str("(its end)");
    }
    let words: Vec<_> = before
        .split_whitespace()
        .chain(after.split_whitespace())
        .collect();
    words.join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn template(answers: &[&str]) -> Template {
        let mut template = Template::new(answers[0].as_bytes());
        for answer in &answers[1..] {
            template.widen(answer.as_bytes());
        }
        template
    }

    #[test]
    fn values_that_vary_are_no_difference_and_others_are() {
        let page = |time: &str, token: &str, count: u32| {
            format!("<p>{time}</p><input value=\"{token}\"><b>visits: {count}</b>")
        };
        let template = template(&[
            &page("12:59:58", "a+b/c==", 1),
            &page("12:59:59", "xyz", 1),
            &page("13:00:01", "q/q/q=", 1),
        ]);
        let same = page("13:00:00", "", 1);
        assert_eq!(template.difference(same.as_bytes()), None);
        let other = page("13:00:00", "k", 2);
        let (expected, got) = template.difference(other.as_bytes()).unwrap();
        assert!(expected.contains("visits: 1"), "{expected}");
        assert!(got.contains("visits: 2"), "{got}");
    }

    #[test]
    fn missing_and_additional_text_is_a_difference() {
        let template = template(&["a b c", "a x c"]);
        assert_eq!(template.difference(b"a y z c"), None);
        for answer in ["", "a b", "b c", "a b c d"] {
            assert!(template.difference(answer.as_bytes()).is_some(), "{answer}");
        }
        let (expected, got) = template.difference(b"a b").unwrap();
        assert!(
            expected.contains('c') && !got.contains('c'),
            "{expected} {got}"
        );
    }

    #[test]
    fn long_pages_are_aligned_by_their_unique_words() {
        let page = |seed: usize| {
            let line = |row: usize| format!("<li>row{row} <i>{}</i></li>\n", row * seed % 97);
            (0..1500).map(line).collect::<String>()
        };
        let template = template(&[&page(3), &page(5), &page(7)]);
        assert_eq!(template.difference(page(11).as_bytes()), None);
        let changed = page(11).replace("row700 ", "row70x ");
        let (expected, got) = template.difference(changed.as_bytes()).unwrap();
        assert!(expected.contains("row700"), "{expected}");
        assert!(got.contains("row70x"), "{got}");
    }

    #[test]
    fn punctuation_of_random_text_is_a_part_of_its_gap() {
        let template = template(&["key: a!b#c end", "key: #!x end", "key: pq!r end"]);
        assert_eq!(template.difference(b"key: no-punctuation end"), None);
        assert!(template.difference(b"key: x").is_some());
    }
}
