//! Tests of `process.rs`.

use super::*;

#[test]
fn spawn_passes_descriptors_at_the_given_numbers() {
    let (read, write) = nix::unistd::pipe().unwrap();
    let (read2, write2) = nix::unistd::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "echo one >&4; echo two >&3"]);
    let mut child = spawn(command, vec![(write, 4), (write2, 3)]).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(
        std::io::read_to_string(std::fs::File::from(read)).unwrap(),
        "one\n"
    );
    assert_eq!(
        std::io::read_to_string(std::fs::File::from(read2)).unwrap(),
        "two\n"
    );
}

#[test]
fn spawn_passes_no_other_descriptors() {
    let (read, _write) = nix::unistd::pipe().unwrap();
    // Like a descriptor that the parent has left open: dup(2) does not keep close-on-exec.
    let inherited = nix::unistd::dup(&read).unwrap();
    let script = format!(
        "test -e /proc/self/fd/3 && ! test -e /proc/self/fd/{}",
        inherited.as_raw_fd()
    );
    let command = |own: RawFd| {
        assert!(own > 3, "{own}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    let own = || inherited.try_clone().unwrap();
    let mut started = spawn(command(inherited.as_raw_fd()), vec![(own(), 3)]).unwrap();
    assert!(started.wait().unwrap().success());

    let mut bound = command(inherited.as_raw_fd());
    child(&mut bound, None, Orphan::Killed, vec![(own(), 3)]).unwrap();
    assert!(bound.status().unwrap().success());
}

#[test]
fn exit_status_and_signal_are_described() {
    let status = |script: &str| {
        use std::os::unix::process::ExitStatusExt;
        Command::new("sh")
            .args(["-c", script])
            .status()
            .unwrap()
            .into_raw()
    };
    assert_eq!(describe_exit(status("exit 3")), "exit status 3");
    assert_eq!(
        describe_exit(status("kill -SEGV $$")),
        "SIGSEGV (segmentation fault)"
    );
    assert_eq!(exit_status(status("exit 7")), Some(7));
    assert_eq!(exit_status(status("kill -9 $$")), None);
}

#[test]
fn user_is_found_by_name_and_number() {
    assert_eq!(find_user("root", None).unwrap().unwrap().uid, 0);
    assert_eq!(find_user("0", Some("root")).unwrap().unwrap().name, "root");
    assert!(find_user("no-user-has-this-name", None).unwrap().is_none());
    assert!(find_user("root", Some("no-such-group")).unwrap().is_none());
    let root = find_user("root", None).unwrap().unwrap();
    assert!(groups(&root).unwrap().contains(&root.gid));
}

#[test]
fn number_that_means_a_group_is_no_process() {
    for number in [0, 1 << 31, u32::MAX] {
        assert_eq!(
            one_process(number).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }
    assert!(one_process(std::process::id()).is_ok());
}
