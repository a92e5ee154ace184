//! Tests a script that writes records without end into its worker's response socket.

use crate::shared_memory::{ENGINES, answers_within, site};
use crate::site::until;

/// A script's message for the log, of 256 MiB, in records of its own request.
const ENDLESS: &str = r"
    $id = unpack('V', peek(own_line() + 4, 4))[1];
    echo str_repeat('x', 200_000); // too long for the response ring
    flush();
    $record = record(7, $id, str_repeat('x', 65535));
    for ($n = 0; $n < 4096; $n++) {
        for ($done = 0; $done < strlen($record); $done += $written) {
            $rest = substr($record, $done);
            $written = libc()->write(outbox(), $rest, strlen($rest));
            if ($written <= 0) exit(' stopped');
        }
    }
    echo ' end';";

/// The line of /proc/PID/status, in MiB.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib >> 10
}

#[test]
fn endless_message_for_the_log_is_bounded() {
    for engine in ENGINES {
        let site = site(engine, &[("endless.php", ENDLESS)], &[]);
        let front = site.surus.front();
        let before = memory(front, "VmRSS:");
        let answer = site.get("/endless.php");
        assert!(
            answer.body.contains(" end"),
            "{engine}: {}",
            site.surus.log()
        );
        until("the message is logged", || {
            site.surus.log().contains(" [cut: ")
        });
        let grown = memory(front, "VmHWM:").saturating_sub(before);
        assert!(grown < 64, "{engine}: grew by {grown} MiB");
        answers_within(&site, crate::shared_memory::SOON, engine);
    }
}
