//! Tests how messages of the master process are parsed.

use super::*;

#[test]
fn invalid_message_is_rejected() {
    assert!(parse("worker x 1", vec![]).is_none());
    assert!(parse("worker 0 1", vec![]).is_none(), "without descriptors");
    assert!(parse("nonsense", vec![]).is_none());
    assert!(parse("opcache well", vec![]).is_none());
    assert!(parse("memory 1 2", vec![]).is_none(), "without memory");
    assert!(parse("changed 1x /a", vec![]).is_none());
    assert!(matches!(
        parse("changed 00ff /a b", vec![]),
        Some(MasterMessage::Checked(Some((255, what)))) if what == "/a b"
    ));
    assert!(matches!(
        parse("opcache restart", vec![]),
        Some(MasterMessage::OpcacheBlocked(OpcacheBlocked::Restart))
    ));
    assert!(matches!(
        parse("exited 1 2 3 4 5 6", vec![]),
        Some(MasterMessage::Exited {
            index: 1,
            slot: 5,
            tag: 6,
            ..
        })
    ));
    // A worker can have written any number there, which must not invalidate the message.
    let most = format!("exited 1 2 3 {0} {0} {1}", u32::MAX, u64::MAX);
    assert!(matches!(
        parse(&most, vec![]),
        Some(MasterMessage::Exited { slot: u32::MAX, .. })
    ));
}
