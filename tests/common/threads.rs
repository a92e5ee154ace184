//! Tells whether processes wait for something other than a CPU.

/// Whether all threads of a process sleep.
pub fn all_sleep(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    })
}
