//! Tests of the conversion of AWS Lambda's events to requests, and of responses to what each
//! service accepts.

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
