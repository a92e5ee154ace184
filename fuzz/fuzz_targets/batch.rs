//! Fuzzes batches: every event that is read as a batch comes apart into events of one record.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use surus::fronts::lambda::batch::read;

fuzz_target!(|bytes: &[u8]| {
    let Some(batch) = read(&Bytes::copy_from_slice(bytes)) else { return };
    for index in 0..batch.len() {
        let one = batch.record(index, std::time::Instant::now());
        assert_eq!(read(&one.event).map(|batch| batch.len()), Some(1));
    }
});
