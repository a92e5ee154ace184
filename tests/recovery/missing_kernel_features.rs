//! Tests that every request gets a fork, equally isolated, if the kernel or a sandbox lacks what
//! `rewind` needs.

use std::collections::BTreeSet;

use crate::booted::try_booted;
use crate::common::preload::Preload;

#[test]
fn process_that_cannot_be_rewound_is_forked_instead() {
    let library = Preload::compile("recovery/missing_kernel_features.c");
    for (lacking, said) in [
        (
            "memfd",
            "cannot create a memory file (memfd_create): Function not implemented",
        ),
        (
            "pagemap",
            "/proc/self/pagemap does not show anonymous pages",
        ),
    ] {
        let boot =
            "surus_serve(function () { static $n = 0; echo getmypid(), ' ', ++$n; chdir('/'); });";
        let env = [("LD_PRELOAD", library.path()), ("LACKING", lacking)];
        let site = try_booted("rewind", boot, &["--workers", "2"], &env)
            .unwrap_or_else(|log| panic!("{lacking}: {log}"));
        let answers: Vec<_> = (0..20).map(|_| site.get("/").body).collect();
        let pids: BTreeSet<_> = answers
            .iter()
            .map(|answer| answer.strip_suffix(" 1").expect(answer))
            .collect();
        assert_eq!(pids.len(), answers.len(), "{lacking}: a process for each");
        let text = format!("cannot rewind this process: {said}; every request gets a fork instead");
        site.surus.wait_for_log(|log| log.contains(&text));
        assert_eq!(site.surus.log().matches(&text).count(), 1, "{lacking}");
    }
}
