//! Tells the service manager, such as systemd, what the server does (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::{info, warn};

use surus_sys::scoreboard::now_micros;

/// What the server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It serves. Also ends a reload.
    Ready,
    Reloading,
    Stopping,
}

/// The service manager that has started this process. It believes the main process only.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// None if no service manager waits for messages.
    pub fn find() -> Option<ServiceManager> {
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())?;
        match ServiceManager::at(&path) {
            Ok(manager) => Some(manager),
            Err(error) => {
                warn!(%error, "the service manager is not notified (NOTIFY_SOCKET)");
                None
            }
        }
    }

    fn at(path: &OsStr) -> io::Result<ServiceManager> {
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A keeper must not wait.
        socket.set_nonblocking(true)?;
        Ok(ServiceManager { socket, address })
    }

    pub fn tell(&self, state: ServiceState) {
        let text = match state {
            ServiceState::Ready => "READY=1".to_owned(),
            ServiceState::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", now_micros()),
            ServiceState::Stopping => "STOPPING=1".to_owned(),
        };
        if let Err(error) = self.socket.send_to_addr(text.as_bytes(), &self.address) {
            info!(%error, "cannot notify the service manager (NOTIFY_SOCKET)");
        }
    }
}

/// Tells the service manager, if there is one.
pub fn tell(manager: &Option<ServiceManager>, state: ServiceState) {
    if let Some(manager) = manager {
        manager.tell(state);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_at_paths_and_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("surus-test-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        let by_path = UnixDatagram::bind(&path).unwrap();
        for (socket, at) in [(by_path, path.into()), (by_name, format!("@{name}").into())] {
            let at: std::ffi::OsString = at;
            let manager = ServiceManager::at(&at).unwrap();
            let mut buffer = [0; 100];
            let mut notify = |state| {
                manager.tell(state);
                let length = socket.recv(&mut buffer).unwrap();
                String::from_utf8_lossy(&buffer[..length]).into_owned()
            };
            assert_eq!(notify(ServiceState::Ready), "READY=1");
            let reloading = notify(ServiceState::Reloading);
            let (state, time) = reloading.split_once("\nMONOTONIC_USEC=").unwrap();
            assert_eq!(state, "RELOADING=1");
            assert!(time.parse::<u64>().unwrap() <= now_micros());
            assert_eq!(notify(ServiceState::Stopping), "STOPPING=1");
        }
    }
}
