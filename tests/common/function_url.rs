//! Builds events of a function URL.

use serde_json::{Value, json};

pub fn get(path: &str) -> Value {
    json!({
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": "f.lambda-url.eu-central-1.on.aws"},
        "requestContext": {
            "domainName": "f.lambda-url.eu-central-1.on.aws",
            "stage": "$default",
            "http": {"method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.7"}
        },
        "isBase64Encoded": false
    })
}
