//! An experiment: contestants, loads and the number of rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use surus_load::{
    Expectations, Mix, Pace, Plan, Protocol, Request, Schedule, StatusSet, Stop, Url,
};

use crate::captions::LoadCaption;
use crate::files::{Places, read};
use crate::goal::Goal;
use crate::length::{BySize, Length, Size, same_or_by_size};
use crate::quantity::Quantity;

/// Longer than any load lasts.
const A_LONG_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A file of `lab/experiments/`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    pub title: String,
    /// What a reader must know before the numbers.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Directory of `lab/applications/` that contestants serve, unless a load names another one.
    /// Without one, each contestant has its own.
    application: Option<String>,
    /// The contestant that the others are compared with.
    pub reference: String,
    /// More contestants that all are compared with.
    #[serde(default)]
    more_references: Vec<String>,
    /// The project's targets for the numbers.
    #[serde(default, rename = "goal")]
    pub goals: Vec<Goal>,
    /// Columns of the report.
    pub columns: Vec<Quantity>,
    pub rounds: BySize<usize>,
    /// How long it takes on the machine that the published results are from.
    pub minutes: BySize<f64>,
    /// What README shows of it.
    pub readme: Option<Readme>,
    /// The contestant that `docs/performance-NAME.md` shows, under all loads.
    pub excerpt: Option<String>,
    #[serde(rename = "contestant")]
    pub contestants: Vec<Entry>,
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
}

/// What README shows of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readme {
    pub loads: Vec<String>,
    pub contestants: Vec<String>,
}

/// A contestant of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name in this experiment and in the results.
    pub name: String,
    /// Its name in the report.
    pub title: String,
    /// Its directory of `lab/contestants/`.
    pub uses: String,
    /// Values for words of its manifest.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// A load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub name: String,
    pub title: String,
    /// The application, if it is not the experiment's.
    application: Option<String>,
    /// Contestants that cannot be measured under it, with the reason.
    #[serde(default)]
    pub skips: BTreeMap<String, String>,
    /// The only contestants that it is meant for; all if none is named.
    #[serde(default)]
    only: Vec<String>,
    pub path: String,
    /// A JSON body, which is sent by POST. Without one, the request is a GET.
    pub post: Option<String>,
    /// A file of the application with that body.
    post_file: Option<String>,
    /// Messages that one request carries.
    #[serde(default = "one")]
    pub messages: u32,
    /// A path that one more connection requests all the time, such as a slow script. Its responses
    /// are not counted.
    meanwhile: Option<String>,
    /// Statuses with which an overloaded server refuses a request. Any other unexpected response
    /// ends the load, which is then not measured in this turn.
    #[serde(default)]
    pub refusals: Vec<u16>,
    /// The value of `Host`, for applications that answer only by their name.
    pub host: Option<String>,
    pub connections: usize,
    /// Each connection sends one request and then rests, as long as the load is.
    #[serde(default)]
    pub rests: bool,
    /// Requests per second that are due (open loop). Without it, each connection sends its next
    /// request when it has the response to the previous one (closed loop).
    pub rate: Option<f64>,
    #[serde(default = "yes")]
    pub keep_alive: bool,
    /// Connections use TLS and accept any certificate. Without `keep_alive`, none resumes the
    /// session of another.
    #[serde(default)]
    tls: bool,
    /// Over HTTP/2, one request at a time per connection.
    #[serde(default)]
    http2: bool,
    /// Each connection keeps the cookies that it gets, and sends them back.
    #[serde(default)]
    keeps_cookies: bool,
    /// How long a request may take.
    #[serde(default, deserialize_with = "same_or_by_size")]
    timeout: Option<BySize<Length>>,
    /// How long a connection waits after a failed request; not at all if it is left out.
    back_off: Option<Length>,
    pub warm_up: BySize<Length>,
    pub length: BySize<Length>,
    /// Text that every body must contain.
    pub body: String,
    /// What results say of it in place of [`Load::describe`]'s text of today.
    #[serde(skip)]
    description: Option<String>,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

impl Experiment {
    pub fn read(places: &Places, name: &str) -> anyhow::Result<Experiment> {
        let file = places.find("experiments", name, ".toml")?;
        let mut experiment: Experiment = read(&file)?;
        experiment.name = name.to_string();
        experiment
            .read_bodies(places)
            .and_then(|()| experiment.check())
            .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        Ok(experiment)
    }

    /// The contestants that the others are compared with.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        let first = std::iter::once(&self.reference);
        first.chain(&self.more_references).map(String::as_str)
    }

    /// The contestants' names in their order.
    pub fn names(&self) -> Vec<&str> {
        self.contestants
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
    }

    /// The application of a load; empty if each contestant has its own.
    pub fn application<'a>(&'a self, load: &'a Load) -> &'a str {
        let name = load.application.as_ref().or(self.application.as_ref());
        name.map_or("", String::as_str)
    }

    /// The command that runs it.
    pub fn command(&self, size: Size) -> String {
        let full = match size {
            Size::Full => " FULL=1",
            Size::Small => "",
        };
        format!("make lab EXPERIMENT={}{full}", self.name)
    }

    fn read_bodies(&mut self, places: &Places) -> anyhow::Result<()> {
        for load in &mut self.loads {
            let application = load.application.as_ref().or(self.application.as_ref());
            let (Some(name), Some(application)) = (&load.post_file, application) else {
                continue;
            };
            let file = places.lab.join("applications").join(application).join(name);
            let body = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {} (post_file)", file.display()))?;
            load.post = Some(body);
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        let names = self.names();
        let goals = self.goals.iter().flat_map(Goal::contestants);
        let excerpt = self.excerpt.as_deref();
        for named in self.references().chain(goals).chain(excerpt) {
            ensure!(
                names.contains(&named),
                "reference = \"{named}\" is no contestant; use one of {}",
                names.join(", ")
            );
        }
        for goal in &self.goals {
            goal.check(|name| self.loads.iter().any(|load| load.name == name))?;
        }
        for (index, name) in names.iter().enumerate() {
            let is_new = !names[..index].contains(name);
            ensure!(
                is_new,
                "two contestants are called `{name}`; give one another name"
            );
        }
        for size in [Size::Small, Size::Full] {
            ensure!(
                *self.rounds.at(size) > 0,
                "rounds.{size} = 0; at least 1 is needed"
            );
        }
        for (index, load) in self.loads.iter().enumerate() {
            let mut before = self.loads[..index].iter();
            ensure!(
                before.all(|other| other.name != load.name),
                "two loads are called `{}`; give one another name",
                load.name
            );
            let named = load.skips.keys().map(|name| ("skips", name));
            for (key, name) in named.chain(load.only.iter().map(|name| ("only", name))) {
                let is_known = names.contains(&name.as_str());
                ensure!(
                    is_known,
                    "load `{}`: `{name}` in {key} is no contestant",
                    load.name
                );
            }
            load.check()
                .map_err(|error| anyhow::anyhow!("load `{}`: {error}", load.name))?;
        }
        Ok(())
    }
}

impl Load {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.path.starts_with('/'),
            "path = \"{}\" must begin with /",
            self.path
        );
        ensure!(
            self.connections > 0,
            "connections = 0; at least 1 is needed"
        );
        let timeout_is_valid = self.timeout.iter().all(|it| {
            let forms = [Size::Small, Size::Full];
            forms.into_iter().all(|size| it.at(size).time().is_some())
        });
        ensure!(timeout_is_valid, "timeout must be a time, as in \"10s\"");
        let back_off_is_valid = self.back_off.is_none_or(|it| it.time().is_some());
        ensure!(
            back_off_is_valid && (self.back_off.is_none() || self.rate.is_none()),
            "back_off must be a time, as in \"1s\", and has no meaning with a rate"
        );
        let has_rest = self.length.at(Size::Small).time().is_some()
            && self.length.at(Size::Full).time().is_some();
        ensure!(
            !self.rests || has_rest,
            "a load that rests has a time as its length, as in \"10s\""
        );
        ensure!(
            !self.rests || (self.post.is_none() && self.meanwhile.is_none() && self.keep_alive),
            "a load that rests has GET requests on kept connections, and nothing meanwhile"
        );
        ensure!(
            !self.rests || !(self.tls || self.http2 || self.keeps_cookies),
            "a load that rests has neither tls nor http2 nor keeps_cookies"
        );
        let rate_is_valid = self.rate.is_none_or(|rate| rate > 0.0);
        ensure!(
            rate_is_valid,
            "rate must be above 0; leave it out for the highest rate"
        );
        Ok(())
    }

    /// Whether it is meant for a contestant.
    pub fn is_for(&self, contestant: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == contestant)
    }

    /// What is sent to a server on this port.
    pub fn plan(&self, port: u16, size: Size) -> anyhow::Result<Plan> {
        let schedule = self.rate.map(Schedule::constant);
        let plan = self.requests(port, &self.path)?;
        Ok(Plan {
            timeout: self.timeout_at(size).unwrap_or(plan.timeout),
            back_off: self.back_off.and_then(Length::time).unwrap_or_default(),
            concurrency: self.connections,
            pace: schedule.map_or(Pace::Closed, Pace::Open),
            stop: self.length.at(size).stop(),
            keeps_alive: self.keep_alive,
            keeps_cookies: self.keeps_cookies,
            protocol: match self.http2 {
                true => Protocol::Http2,
                false => Protocol::Http1,
            },
            expectations: Expectations {
                body: Some(self.body.clone()),
                ..Expectations::default()
            },
            ..plan
        })
    }

    fn timeout_at(&self, size: Size) -> Option<Duration> {
        self.timeout.as_ref().and_then(|it| it.at(size).time())
    }

    /// What one more connection sends meanwhile.
    pub fn meanwhile(&self, port: u16) -> anyhow::Result<Option<Plan>> {
        let plan = |path| -> anyhow::Result<Plan> {
            Ok(Plan {
                concurrency: 1,
                stop: Stop::After(A_LONG_TIME),
                ..self.requests(port, path)?
            })
        };
        self.meanwhile.as_deref().map(plan).transpose()
    }

    /// One request, to see whether a server answers with 2xx; to another path if one is named.
    pub fn hello(&self, port: u16, path: Option<&str>) -> anyhow::Result<Plan> {
        Ok(Plan {
            concurrency: 1,
            stop: Stop::Requests(1),
            keeps_alive: false,
            expectations: Expectations {
                status: StatusSet::parse("2xx").map_err(anyhow::Error::msg)?,
                body: None,
            },
            ..self.requests(port, path.unwrap_or(&self.path))?
        })
    }

    /// A plan with the load's requests to a path, and the defaults of the load generator.
    fn requests(&self, port: u16, path: &str) -> anyhow::Result<Plan> {
        let scheme = if self.tls { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://127.0.0.1:{port}{path}"))?;
        let mut request = Request::get(url);
        if let Some(host) = &self.host {
            request.headers.push(("Host".into(), host.clone()));
        }
        if let Some(body) = &self.post {
            let kind = "application/json".into();
            request.method = "POST".into();
            request.headers.push(("Content-Type".into(), kind));
            request.body = body.clone().into_bytes().into();
        }
        let mix = Mix::new(&[request], self.keep_alive).map_err(anyhow::Error::msg)?;
        Ok(Plan {
            // The lab has made the certificate itself.
            accepts_any_certificate: self.tls,
            ..Plan::new(mix)
        })
    }

    /// Takes over what was said of it when it was measured.
    pub fn use_caption(&mut self, caption: &LoadCaption) {
        self.title.clone_from(&caption.title);
        self.skips.clone_from(&caption.skips);
        self.description = Some(caption.description.clone());
    }

    /// The load in one line; empty if that is unknown.
    pub fn describe(&self, size: Size) -> String {
        if let Some(description) = &self.description {
            return description.clone();
        }
        let pace = self
            .rate
            .map_or("as fast as responses come".to_string(), |rate| {
                format!("{rate} requests/s due")
            });
        let pace = match self.back_off {
            Some(time) => format!("{pace}, {time} after a failure"),
            None => pace,
        };
        let how = [
            (self.tls, "TLS"),
            (self.http2, "HTTP/2"),
            (self.keep_alive, "keep-alive"),
            (!self.keep_alive, "no keep-alive"),
            (self.keeps_cookies, "cookies kept"),
        ];
        let how = how.iter().filter(|(is_so, _)| *is_so);
        let how = how.map(|(_, words)| *words).collect::<Vec<_>>().join(", ");
        if self.rests {
            return format!(
                "{} connections that have sent GET {} and rest for {}",
                self.connections,
                self.path,
                self.length.at(size)
            );
        }
        let is_post = self.post.is_some() || self.post_file.is_some();
        let method = if is_post { "POST" } else { "GET" };
        format!(
            "{method} {}, {} connections, {how}, {pace}, {} after a warm-up of {}",
            self.path,
            self.connections,
            self.length.at(size),
            self.warm_up.at(size)
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn load(timeout: &str) -> Result<Load, toml::de::Error> {
        toml::from_str(&format!(
            "name = 'a'\ntitle = 'A'\npath = '/'\nconnections = 1\nbody = ''\n\
             warm_up = {{ small = 1, full = 1 }}\nlength = {{ small = 1, full = 1 }}\n{timeout}"
        ))
    }

    #[test]
    fn load_over_tls_accepts_the_certificate_that_the_lab_has_made() {
        let text = "tls = true\nhttp2 = true\nkeeps_cookies = true";
        let load = load(text).unwrap();
        let plan = load.plan(443, Size::Full).unwrap();
        assert!(plan.mix.origins[0].is_tls && plan.accepts_any_certificate);
        assert!(plan.keeps_cookies && plan.protocol == Protocol::Http2);
        assert!(load.hello(443, None).unwrap().accepts_any_certificate);
        let described = load.describe(Size::Full);
        let how = ", TLS, HTTP/2, keep-alive, cookies kept, ";
        assert!(described.contains(how), "{described}");
    }

    #[test]
    fn timeout_is_one_for_both_forms_or_one_for_each() {
        let seconds = |timeout: &str| {
            let load = load(timeout).unwrap();
            load.check().unwrap();
            [Size::Small, Size::Full].map(|size| {
                let timeout = load.plan(80, size).unwrap().timeout;
                assert_eq!(load.timeout_at(size).is_some(), load.timeout.is_some());
                timeout.as_secs()
            })
        };
        assert_eq!(seconds("timeout = '20s'"), [20, 20]);
        assert_eq!(seconds("timeout = { small = '4s', full = '20s' }"), [4, 20]);
        assert_eq!(seconds(""), [10, 10], "that of the load generator");
        assert!(
            load("timeout = { small = 3, full = '2s' }")
                .unwrap()
                .check()
                .is_err()
        );
        assert!(load("timeout = 3").unwrap().check().is_err());
        let error = load("timeout = true").unwrap_err().to_string();
        assert!(error.contains("a time such as \"10s\", or"), "{error}");
    }
}
