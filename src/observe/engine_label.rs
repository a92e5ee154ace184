//! The labels of an engine or pool in metrics: its name and, with `[[site]]`, that of its site.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// An engine or pool as logs name it: with `[[site]]` after the site's name and a slash. Names of
/// sites and pools have no slash themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EngineLabel(pub Cow<'static, str>);

impl From<&'static str> for EngineLabel {
    fn from(engine: &'static str) -> EngineLabel {
        EngineLabel(engine.into())
    }
}

impl From<&String> for EngineLabel {
    fn from(engine: &String) -> EngineLabel {
        EngineLabel(engine.clone().into())
    }
}

impl EncodeLabelSet for EngineLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        let engine = match self.0.split_once('/') {
            Some((site, engine)) => {
                ("site", site).encode(encoder.encode_label())?;
                engine
            }
            None => &*self.0,
        };
        ("engine", engine).encode(encoder.encode_label())
    }
}
