//! The `binaryMediaTypes` of an API Gateway REST API.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, header};

/// An API's `binaryMediaTypes`. Without any, bodies are text in both directions.
#[derive(Debug, Clone, Default)]
pub struct BinaryMediaTypes(Vec<String>);

impl FromStr for BinaryMediaTypes {
    type Err = String;

    /// `*/*`, or `image/png,application/pdf`.
    fn from_str(text: &str) -> Result<BinaryMediaTypes, String> {
        let types = text.split(',').map(|it| it.trim().to_ascii_lowercase());
        let types: Vec<String> = types.collect();
        match types.iter().find(|it| !it.contains('/')) {
            Some(wrong) => Err(format!(
                "`{wrong}` is not a media type; write `*/*`, or types such as \
                 `image/png,application/pdf`"
            )),
            None => Ok(BinaryMediaTypes(types)),
        }
    }
}

impl BinaryMediaTypes {
    /// Whether the event contains the request body as base64.
    pub fn encode(&self, request: &HeaderMap) -> bool {
        self.have_first_of(request, header::CONTENT_TYPE)
    }

    /// Whether the client gets the decoded bytes of a base64 answer.
    pub fn decode(&self, request: &HeaderMap) -> bool {
        self.have_first_of(request, header::ACCEPT)
    }

    fn have_first_of(&self, request: &HeaderMap, name: HeaderName) -> bool {
        let value = request.get(name).and_then(|value| value.to_str().ok());
        let first = value.and_then(|value| value.split([',', ';']).next());
        let first = first.unwrap_or_default().trim().to_ascii_lowercase();
        self.0.iter().any(|it| it == "*/*" || *it == first)
    }
}
