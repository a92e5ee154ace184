//! `surus work`: jobs from real databases, run by real PHP workers that crash, hang and throw.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../apps/site.rs"]
#[allow(dead_code)]
mod site;

#[cfg(feature = "amqp")]
mod amqp;
mod clock;
mod database;
#[path = "../lambda/sqs/elasticmq.rs"]
#[allow(dead_code)]
mod elasticmq;
mod environment;
#[cfg(feature = "amqp")]
mod frames;
#[cfg(feature = "amqp")]
mod hostile;
mod kills;
mod laravel;
mod messenger;
mod operate;
mod plain;
mod proxy;
mod redis;
mod roadrunner;
mod schedule;
mod served;
mod shares;
mod shutdowns_and_crashes;
mod silent_network;
mod sqs;
mod table;
mod work;
