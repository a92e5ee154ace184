//! Encodes and decodes messages, and bytes that are none.

use super::*;
use proptest::prelude::*;

fn request() -> impl Strategy<Value = KeeperRequest> {
    let role = prop_oneof![Just(Role::Probe), Just(Role::Request), Just(Role::Server)];
    let which = prop_oneof![
        Just(ProcessSignal::Stop),
        Just(ProcessSignal::Suspend),
        Just(ProcessSignal::Resume),
        Just(ProcessSignal::Terminate),
        Just(ProcessSignal::Kill),
        Just(ProcessSignal::KillGroup)
    ];
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(id, pool)| KeeperRequest::Master { id, pool }),
        any::<(u32, u32)>().prop_map(|(id, pool)| KeeperRequest::RuntimeDir { id, pool }),
        any::<u32>().prop_map(|runtime_dir| KeeperRequest::CloseRuntimeDir { runtime_dir }),
        (any::<(u32, u32)>(), role).prop_map(|((id, runtime_dir), role)| KeeperRequest::Php {
            id,
            runtime_dir,
            role
        }),
        (any::<u32>(), which).prop_map(|(pid, which)| KeeperRequest::Signal { pid, which }),
        any::<(u32, u32)>().prop_map(|(id, pool)| KeeperRequest::Connect { id, pool }),
        any::<(u32, u32)>().prop_map(|(id, site)| KeeperRequest::SiteDirectories { id, site }),
        any::<(u32, u32)>()
            .prop_map(|(id, first_site)| KeeperRequest::Certificates { id, first_site }),
        any::<u32>().prop_map(|id| KeeperRequest::Configuration { id }),
        any::<(u32, u32)>()
            .prop_map(|(id, first_site)| KeeperRequest::Configured { id, first_site }),
        (any::<u32>(), any::<u16>(), any::<bool>()).prop_map(|(id, domain, is_asked)| {
            KeeperRequest::Acme {
                id,
                domain,
                is_asked,
            }
        }),
        any::<(u32, u32)>().prop_map(|(id, directories)| KeeperRequest::Opener { id, directories }),
        any::<(u32, u32, bool, String)>().prop_map(|(id, pool, keep, text)| {
            KeeperRequest::Pages {
                id,
                pool,
                keep,
                text,
            }
        }),
        Just(KeeperRequest::Ready),
    ]
}

proptest! {
    #[test]
    fn request_encoded_and_decoded_is_unchanged(request in request()) {
        prop_assert_eq!(KeeperRequest::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn arbitrary_bytes_decode_only_to_a_request_with_the_same_encoding(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        if let Ok(request) = KeeperRequest::decode(&bytes) {
            prop_assert_eq!(request.encode(), bytes);
        }
    }

    #[test]
    fn truncated_or_extended_request_is_rejected(request in request(), byte in any::<u8>()) {
        let whole = request.encode();
        let longer: Vec<u8> = whole.iter().copied().chain([byte]).collect();
        prop_assert_eq!(KeeperRequest::decode(&longer), Err(NoMessage));
        prop_assert_eq!(KeeperRequest::decode(&whole[..whole.len() - 1]), Err(NoMessage));
    }
}

#[test]
fn reply_encoded_and_decoded_is_unchanged_and_long_text_is_truncated() {
    let replies = [
        KeeperReply::Started { id: 7, pid: 8 },
        KeeperReply::Done {
            id: 7,
            number: 9,
            text: "/tmp/x".into(),
        },
        KeeperReply::Failed {
            id: 7,
            why: "ü".into(),
        },
        KeeperReply::Exited {
            pid: 3,
            wait_status: -1,
        },
        KeeperReply::Reopen,
        KeeperReply::ReopenSite { log: 300 },
    ];
    for reply in replies {
        assert_eq!(KeeperReply::decode(&reply.encode()), Ok(reply));
    }
    let why = "ü".repeat(MAX_BYTES);
    let encoded = KeeperReply::Failed { id: 1, why }.encode();
    assert!(encoded.len() <= MAX_BYTES);
    assert!(KeeperReply::decode(&encoded).is_ok());
}
