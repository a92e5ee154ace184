//! Jobs that RoadRunner's AMQP driver has published.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::json;

use super::super::roadrunner::with_worker;
use super::{Broker, Kind, Site};

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn job_of_roadrunners_driver_keeps_its_name_and_its_changed_headers() {
    for delay in [0, 1] {
        let settings = "format = 'roadrunner'\n";
        let mut site = Site::with(Kind::Quorum, settings, Broker::port);
        site.plain = with_worker(site.plain);
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut headers = FieldTable::default();
        headers.insert("rr_id".into(), text("the-id"));
        headers.insert("rr_job".into(), text("App\\Job"));
        let own = br#"{"left":["3"]}"#.to_vec();
        headers.insert("rr_headers".into(), AMQPValue::ByteArray(own.into()));
        headers.insert("rr_delay".into(), AMQPValue::LongLongInt(0));
        let properties = BasicProperties::default().with_headers(headers);
        let job = json!({"n": 1, "do": "count down", "type": 4, "delay": delay});
        site.broker
            .push_with(&site.queue, &job.to_string(), properties);
        let work = site.start();
        work.wait_until(|| site.count("done 1") == 1);
        for left in 1..3 {
            let note = format!("left {left} of the-id 1");
            assert_eq!(site.count(&note), 1, "{:?}", site.plain.notes());
        }
        work.end();
        assert!(site.left().is_empty() && site.buried().is_empty());
    }
}
