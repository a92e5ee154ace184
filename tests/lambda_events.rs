//! Do events of AWS Lambda become the requests that clients sent, and answers what their services understand?
#![allow(clippy::unwrap_used)]

mod lambda_events {
    mod answers;
    mod aws;
    mod differences;
    mod hostile;
    mod paths;
    mod proxies;
    mod round_trip;
    mod samples;
    mod speed;
    mod subject;
}
