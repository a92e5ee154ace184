//! Fuzzes events of Lambda: no event becomes a request that PHP cannot be given, and every answer
//! to it is JSON that says what was answered.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::event::Body;
use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{EventFormat, prelude, read, write};

fuzz_target!(|event: &[u8]| {
    let request = match read(event, &Settings::default()) {
        Ok(Some(event)) => {
            let target = event.request.uri().path_and_query().expect("no target");
            assert!(target.as_str().starts_with('/'));
            assert!(target.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(!matches!(event.request.body(), Body::Spooled { .. }));
            if let Some(context) = &event.request_context {
                assert!(serde_json::from_str::<serde::de::IgnoredAny>(context).is_ok());
            }
            Some(event)
        }
        Ok(None) => {
            assert!(serde_json::from_slice::<serde::de::IgnoredAny>(event).is_ok());
            None
        }
        Err(malformed) => {
            assert!(!malformed.at.is_empty() && !malformed.what.is_empty());
            None
        }
    };
    // The request's own headers for those of the response: nothing that HTTP can carry may break
    // the answer.
    let mut response = http::Response::new(());
    if let Some(event) = &request {
        *response.headers_mut() = event.request.headers().clone();
    }
    let parts = response.into_parts().0;
    let format = request.map_or(EventFormat::FunctionUrl, |event| event.format);
    let written = write(&format, &parts, event);
    let answer: serde_json::Value =
        serde_json::from_slice(&written.json).expect("the answer is not JSON");
    assert_eq!(answer["statusCode"], 200);
    if answer["isBase64Encoded"] == false {
        assert_eq!(answer["body"].as_str().map(str::as_bytes), Some(event));
    }
    let prelude = prelude(&format, &parts);
    let json = prelude.strip_suffix(&[0; 8]).expect("no end of the prelude");
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok());
});
