//! Reads what visitors do, and makes a long flow of their requests in an order that is repeatable.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::common::order::Order;

/// The least number of requests in a flow.
const REQUESTS: usize = 250;

/// What visitors do in an application.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// None if forms need none.
    pub token: Option<Token>,
    #[serde(default)]
    pub users: Vec<String>,
    /// Pages that may warm up a boot.
    #[serde(default)]
    pub learned: Vec<String>,
    sequence: Vec<Sequence>,
}

/// Where visitors find the token that each form needs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub page: String,
    pub field: String,
}

/// Requests of one visitor that follow each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    name: String,
    /// Whether it leaves state that only an engine that isolates requests removes.
    #[serde(default)]
    leaves_state: bool,
    steps: Vec<Step>,
}

/// A request of a sequence.
#[derive(Deserialize, Clone, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    get: Option<String>,
    head: Option<String>,
    post: Option<String>,
    put: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub form: Option<BTreeMap<String, String>>,
    pub json: Option<String>,
    /// Whether a file is uploaded, too.
    pub file: bool,
}

/// A request of a visitor.
pub struct Request {
    pub visitor: usize,
    pub step: Step,
}

impl Script {
    pub fn parse(text: &str) -> Script {
        let script: Script = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        for sequence in &script.sequence {
            assert!(!sequence.steps.is_empty(), "{}", sequence.name);
        }
        script
    }

    /// Adds the sequences and the learned pages of another script. No more than eight pages are
    /// learned, so they replace the last ones.
    pub fn with(mut self, more: &str) -> Script {
        let more = Script::parse(more);
        self.learned
            .truncate(self.learned.len() - more.learned.len());
        self.learned.extend(more.learned);
        self.sequence.extend(more.sequence);
        self
    }

    /// Every visitor runs all sequences without end, in a new order each time. Which visitor
    /// sends the next request is random, too. For engines that keep state, some are left out.
    pub fn flow(&self, seed: u64, keeps_state: bool) -> Vec<Request> {
        let mut order = Order::new(Some(seed));
        let mut flow = Vec::new();
        while flow.len() < REQUESTS {
            let mut queues: Vec<Vec<&Step>> = (0..self.users.len())
                .map(|_| self.shuffled(&mut order, keeps_state))
                .collect();
            // Each visitor as often as it has steps.
            let mut turns: Vec<usize> = (queues.iter().enumerate())
                .flat_map(|(visitor, steps)| vec![visitor; steps.len()])
                .collect();
            order.shuffle(&mut turns);
            for visitor in turns {
                let Some(step) = queues[visitor].pop() else {
                    continue;
                };
                let step = step.filled(&self.users[visitor], flow.len() + 100);
                flow.push(Request { visitor, step });
            }
        }
        flow
    }

    /// The steps of all sequences, the last one first.
    fn shuffled(&self, order: &mut Order, keeps_state: bool) -> Vec<&Step> {
        let mut sequences: Vec<&Sequence> = (self.sequence.iter())
            .filter(|sequence| !(keeps_state && sequence.leaves_state))
            .collect();
        order.shuffle(&mut sequences);
        let steps = sequences.into_iter().flat_map(|sequence| &sequence.steps);
        let mut steps: Vec<_> = steps.collect();
        steps.reverse();
        steps
    }
}

impl Step {
    /// The method and the path.
    pub fn target(&self) -> (&'static str, &str) {
        let all = [
            ("GET", &self.get),
            ("HEAD", &self.head),
            ("POST", &self.post),
            ("PUT", &self.put),
        ];
        let mut given = all
            .into_iter()
            .filter_map(|(method, path)| Some((method, path.as_deref()?)));
        match (given.next(), given.next()) {
            (Some(target), None) => target,
            _ => panic!("a step has one of get, head, post and put"),
        }
    }

    /// The step of a user, with the number of the request.
    fn filled(&self, user: &str, number: usize) -> Step {
        let fill = |text: &str| {
            text.replace("{user}", user)
                .replace("{n}", &number.to_string())
        };
        let fill_values = |map: &BTreeMap<String, String>| {
            let filled = map.iter().map(|(name, value)| (name.clone(), fill(value)));
            filled.collect::<BTreeMap<_, _>>()
        };
        let fill_some = |text: &Option<String>| text.as_deref().map(fill);
        Step {
            get: fill_some(&self.get),
            head: fill_some(&self.head),
            post: fill_some(&self.post),
            put: fill_some(&self.put),
            headers: fill_values(&self.headers),
            form: self.form.as_ref().map(fill_values),
            json: fill_some(&self.json),
            file: self.file,
        }
    }
}
