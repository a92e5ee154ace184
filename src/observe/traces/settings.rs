//! The settings of traces, and the standard variables of OpenTelemetry that stand in for them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http::Uri;
use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The collector's URL for OTLP over HTTP, such as `http://127.0.0.1:4318`.
    #[serde(deserialize_with = "endpoint")]
    pub endpoint: Option<String>,
    /// The name of this service in traces; `surus` by default.
    pub service_name: Option<String>,
    /// Which requests are sampled.
    pub sampler: Option<Sampler>,
    /// The share of traces for samplers that have one.
    #[serde(deserialize_with = "ratio")]
    pub sample_ratio: Option<f64>,
    /// Headers for the collector, such as `authorization`.
    #[serde(deserialize_with = "headers")]
    pub headers: BTreeMap<String, String>,
    /// More attributes of the service.
    #[serde(skip)]
    pub resource: BTreeMap<String, String>,
    /// Where the collector is, if names cannot be looked up later.
    #[serde(skip)]
    pub addresses: Vec<SocketAddr>,
    #[serde(skip)]
    pub limits: ExporterLimits,
}

/// The bounds of the exporter, with OpenTelemetry's defaults.
#[derive(Debug, Clone, Copy)]
pub struct ExporterLimits {
    /// Requests that wait for the export.
    pub queue: usize,
    /// Requests of one export.
    pub batch: usize,
    /// How long a request waits for others.
    pub delay: Duration,
    /// How long an export may take.
    pub timeout: Duration,
}

impl Default for ExporterLimits {
    fn default() -> ExporterLimits {
        ExporterLimits {
            queue: 2048,
            batch: 512,
            delay: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}

/// OpenTelemetry's samplers, by their names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    AlwaysOn,
    AlwaysOff,
    #[serde(rename = "traceidratio")]
    Ratio,
    #[serde(rename = "parentbased_always_on")]
    ParentOrOn,
    #[serde(rename = "parentbased_always_off")]
    ParentOrOff,
    #[serde(rename = "parentbased_traceidratio")]
    ParentOrRatio,
}

impl Sampler {
    /// Whether to sample. `parent` is the caller's decision.
    pub fn samples(self, parent: Option<bool>, trace: [u8; 16], ratio: f64) -> bool {
        let by_ratio = || {
            // As other implementations: the last 7 bytes are random.
            let [.., a, b, c, d, e, f, g] = trace;
            let random = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
            // Floating-point numbers are exact up to 53 bits.
            ((random >> 3) as f64) < ratio * (1_u64 << 53) as f64
        };
        match (self, parent) {
            (Sampler::AlwaysOn, _) => true,
            (Sampler::AlwaysOff, _) => false,
            (Sampler::Ratio, _) | (Sampler::ParentOrRatio, None) => by_ratio(),
            (_, Some(parent)) => parent,
            (Sampler::ParentOrOn, None) => true,
            (Sampler::ParentOrOff, None) => false,
        }
    }
}

fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    if let Some(text) = &text {
        let checked = url(text);
        checked.map_err(|error| serde::de::Error::custom(format_args!("{error:#}")))?;
    }
    Ok(text)
}

fn ratio<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<f64>::deserialize(from)? {
        Some(ratio) if !(0.0..=1.0).contains(&ratio) => Err(serde::de::Error::custom(
            format_args!("{ratio} is not a share: write a number from 0 to 1"),
        )),
        ratio => Ok(ratio),
    }
}

fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let headers = BTreeMap::<String, String>::deserialize(from)?;
    for (name, value) in &headers {
        check_header(name, value).map_err(serde::de::Error::custom)?;
    }
    Ok(headers)
}

/// Errors do not repeat values, which are secrets.
fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_valid = HeaderName::from_str(name).is_ok() && HeaderValue::from_str(value).is_ok();
    let error = || format!("{name:?} and its value are not an HTTP header");
    is_valid.then_some(()).ok_or_else(error)
}

/// A collector's URL.
pub fn url(text: &str) -> anyhow::Result<Uri> {
    let shown = || format!("{text:?} is not a collector's URL; write http://127.0.0.1:4318");
    let uri = text.parse::<Uri>().with_context(shown)?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri
        .authority()
        .is_some_and(|host| host.as_str().contains('@'));
    match is_web && uri.host().is_some() && !has_user {
        true => Ok(uri),
        false => Err(anyhow!(shown())),
    }
}

impl Settings {
    /// Completes the settings by the standard variables. Settings win.
    pub fn complete(&mut self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let either = |name: &str| {
            let (own, all) = (
                format!("OTEL_EXPORTER_OTLP_TRACES_{name}"),
                format!("OTEL_EXPORTER_OTLP_{name}"),
            );
            let own = variable(&own).map(|value| (own, value));
            own.or_else(|| variable(&all).map(|value| (all, value)))
        };
        let is_disabled = variable("OTEL_SDK_DISABLED")
            .is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp");
        if is_disabled {
            self.endpoint = None;
            return Ok(());
        }
        match &self.endpoint {
            Some(endpoint) => self.endpoint = Some(below(endpoint)),
            None => {
                let Some((name, value)) = either("ENDPOINT") else {
                    return Ok(());
                };
                let is_own = name.contains("TRACES");
                url(&value).with_context(|| name.clone())?;
                if let Some((name, protocol)) = either("PROTOCOL")
                    && protocol != "http/protobuf"
                {
                    bail!(
                        "{name} is {protocol:?}, and Surus sends traces by http/protobuf only; set \
                         telemetry.endpoint to the collector's port for HTTP, or \
                         OTEL_TRACES_EXPORTER=none for Surus"
                    );
                }
                self.endpoint = Some(if is_own { value } else { below(&value) });
            }
        }
        if self.service_name.is_none() {
            self.service_name = variable("OTEL_SERVICE_NAME");
        }
        if let Some(list) = variable("OTEL_RESOURCE_ATTRIBUTES") {
            self.resource = pairs(&list).context("OTEL_RESOURCE_ATTRIBUTES")?;
        }
        if self.service_name.is_none() {
            self.service_name = self.resource.remove("service.name");
        }
        if self.headers.is_empty()
            && let Some((name, list)) = either("HEADERS")
        {
            let headers = pairs(&list).with_context(|| name.clone())?;
            for (header, value) in &headers {
                check_header(header, value)
                    .map_err(anyhow::Error::msg)
                    .context(name.clone())?;
            }
            self.headers = headers;
        }
        if self.sampler.is_none() {
            let name = "OTEL_TRACES_SAMPLER";
            let text = variable(name).unwrap_or_else(|| "parentbased_traceidratio".into());
            let sampler = serde_json::from_value(serde_json::Value::String(text));
            self.sampler = Some(sampler.context(name)?);
        }
        if self.sample_ratio.is_none() {
            let name = "OTEL_TRACES_SAMPLER_ARG";
            let share = variable(name).map(|text| text.trim().parse::<f64>().ok());
            self.sample_ratio = Some(match share {
                None => 1.0,
                Some(Some(share)) if (0.0..=1.0).contains(&share) => share,
                Some(_) => bail!("{name} is not a share: write a number from 0 to 1"),
            });
        }
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u64>() {
                Ok(number @ 1..=1_000_000) => Ok(Some(number)),
                _ => bail!("{name} is {text:?}; write a number from 1 to 1000000"),
            },
        };
        let limits = &mut self.limits;
        if let Some(millis) = number("OTEL_BSP_SCHEDULE_DELAY")? {
            limits.delay = Duration::from_millis(millis);
        }
        if let Some(count) = number("OTEL_BSP_MAX_QUEUE_SIZE")? {
            limits.queue = (count as usize).min(65_536);
        }
        if let Some(count) = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")? {
            limits.batch = (count as usize).min(8192);
        }
        let own = number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")?;
        if let Some(millis) = own.or(number("OTEL_EXPORTER_OTLP_TIMEOUT")?) {
            limits.timeout = Duration::from_millis(millis);
        }
        Ok(())
    }

    /// Looks the collector's name up now, because the front end cannot when it is confined.
    pub fn look_up(&mut self) -> anyhow::Result<()> {
        if let Some(endpoint) = &self.endpoint {
            let (host, port) = address(&url(endpoint)?);
            let found = (host.as_str(), port).to_socket_addrs();
            let found = found.with_context(|| format!("cannot look up {host}"))?;
            self.addresses = found.collect();
        }
        Ok(())
    }

    /// The port that the front end must reach.
    pub fn port(&self) -> Option<u16> {
        let uri = url(self.endpoint.as_deref()?).ok()?;
        Some(address(&uri).1)
    }
}

/// The path for traces below a collector's URL.
fn below(endpoint: &str) -> String {
    format!("{}/v1/traces", endpoint.trim_end_matches('/'))
}

/// The host and the port of a URL.
pub fn address(uri: &Uri) -> (String, u16) {
    let is_https = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    (
        host.into(),
        uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
    )
}

/// Reads `a=b,c=d`, whose values are percent-encoded.
fn pairs(list: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let members = list
        .split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty());
    let pair = |member: &str| {
        let (name, value) = member.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().to_string(), value.into_owned()))
    };
    let read: Option<_> = members.map(pair).collect();
    read.context("expected NAME=VALUE, separated by commas")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn complete(toml: &str, variables: &[(&str, &str)]) -> anyhow::Result<Settings> {
        let mut settings: Settings = toml::from_str(toml).unwrap();
        settings.complete(|name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_string())
        })?;
        Ok(settings)
    }

    #[test]
    fn standard_variables_apply_where_nothing_is_set() {
        assert_eq!(complete("", &[]).unwrap().endpoint, None);
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20x, a=b",
            ),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=shop,deployment.environment.name=test",
            ),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ];
        let settings = complete("", &variables).unwrap();
        assert_eq!(
            settings.endpoint.as_deref(),
            Some("http://collector:4318/v1/traces")
        );
        assert_eq!(settings.service_name.as_deref(), Some("shop"));
        assert_eq!(settings.resource.len(), 1);
        assert_eq!(settings.headers["authorization"], "Bearer x");
        assert_eq!(settings.sampler, Some(Sampler::Ratio));
        assert_eq!(settings.sample_ratio, Some(0.25));
        assert_eq!(settings.limits.delay, Duration::from_millis(100));
        assert_eq!(settings.port(), Some(4318));
        let own = "endpoint = 'https://a.test'\nservice_name = 'own'\nsample_ratio = 0.5";
        let settings = complete(own, &variables).unwrap();
        assert_eq!(
            settings.endpoint.as_deref(),
            Some("https://a.test/v1/traces")
        );
        assert_eq!(settings.service_name.as_deref(), Some("own"));
        assert_eq!(
            (settings.sample_ratio, settings.port()),
            (Some(0.5), Some(443))
        );
        let exact = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b.test/x");
        let settings = complete("", &[exact, variables[0]]).unwrap();
        assert_eq!(settings.endpoint.as_deref(), Some("http://b.test/x"));
        for off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert_eq!(complete(own, &[off]).unwrap().endpoint, None);
        }
    }

    #[test]
    fn errors_name_the_variable_and_no_secret() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a.test");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0a"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ] {
            let error = complete("", &[(name, value), endpoint]).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(name) && !text.contains("secret"), "{text}");
        }
        for toml in [
            "endpoint = 'a.test'",
            "sample_ratio = 1.5",
            "headers = { a = \"\\n\" }",
        ] {
            assert!(toml::from_str::<Settings>(toml).is_err(), "{toml}");
        }
    }

    #[test]
    fn sampler_follows_the_caller_or_the_ratio() {
        let (low, high) = ([0; 16], [0xff; 16]);
        assert!(Sampler::ParentOrRatio.samples(Some(true), high, 0.0));
        assert!(!Sampler::ParentOrRatio.samples(Some(false), low, 1.0));
        assert!(Sampler::ParentOrRatio.samples(None, low, 0.5));
        assert!(!Sampler::ParentOrRatio.samples(None, high, 0.5));
        assert!(Sampler::Ratio.samples(Some(false), high, 1.0));
        assert!(!Sampler::Ratio.samples(Some(true), low, 0.0));
        assert!(!Sampler::AlwaysOff.samples(Some(true), low, 1.0));
        assert!(!Sampler::ParentOrOff.samples(None, low, 1.0));
    }
}
