//! Forks the keeper's processes that run no PHP: the opener, and the one that gets a certificate.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use surus_sys::fork;
use surus_sys::privileges::{self, Identity};
use tracing::error;

use crate::app::site::file_opener;
use crate::fronts::http::tls::acme::attempt::{Attempt, status};
use crate::keeper;

/// Starts the process that opens files as PHP's user. It ends when the front end closes the other
/// end of its socket.
pub fn start_opener(
    socket: OwnedFd,
    trees: &[file_opener::OpenerTree],
    identity: &Identity,
) -> anyhow::Result<u32> {
    let keeper = std::process::id();
    let mut keep = vec![socket.as_fd()];
    keep.extend(trees.iter().map(file_opener::OpenerTree::dir));
    let run = || {
        privileges::set_name(c"surus opener");
        // Where PHP is root, what it may read takes root's capabilities.
        let given_up = match identity.uid {
            0 => Ok(true),
            _ => privileges::give_up(identity),
        };
        let given_up = given_up.and_then(|_| privileges::leave_terminal());
        if let Err(error) = given_up.and_then(|_| privileges::end_with(keeper)) {
            error!(%error, "cannot become PHP's user (engine.user)");
            return 1;
        }
        match socket.try_clone() {
            Ok(socket) => file_opener::run(socket, trees),
            Err(error) => error!(%error, "cannot open files for the front end"),
        }
        0
    };
    fork::fork_into(&keep, run).context("cannot fork the opener")
}

/// Starts the process that gets a certificate. It has the front end's user, and neither the
/// keeper's rights nor its descriptors.
pub fn start_attempt(
    attempt: &Attempt,
    socket: OwnedFd,
    confinement: &keeper::Confinement,
    identity: &Identity,
) -> anyhow::Result<u32> {
    let keeper = std::process::id();
    let mut keep = attempt.descriptors();
    keep.push(socket.as_fd());
    let run = || {
        let runtime = keeper::confine_attempt(confinement, identity, keeper).and_then(|()| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            Ok((builder.enable_all().build()?, socket.try_clone()?))
        });
        match runtime {
            Ok((runtime, socket)) => runtime.block_on(attempt.run(socket)),
            Err(error) => {
                error!(error = format!("{error:#}"), "cannot get a certificate");
                status::FAILED
            }
        }
    };
    fork::fork_into(&keep, run).context("cannot fork the process that gets a certificate")
}
