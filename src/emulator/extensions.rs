//! The extensions of a sandbox: their registrations, their pending events, and their readiness.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::api_error::ApiError;
use super::identifier;

/// Lambda's own limit.
const MAX: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Registered,
    Ready,
    Running,
    InitError,
    ExitError,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Registered => "Registered",
            Stage::Ready => "Ready",
            Stage::Running => "Running",
            Stage::InitError => "InitError",
            Stage::ExitError => "ExitError",
        }
    }
}

struct Extension {
    id: String,
    name: String,
    is_external: bool,
    invoke: bool,
    shutdown: bool,
    stage: Stage,
    parked: Option<oneshot::Sender<Bytes>>,
    /// Events that arrived while the extension was not waiting.
    waiting: VecDeque<Bytes>,
}

/// The result of `/extension/event/next`.
pub enum NextEvent {
    Now(Bytes),
    Wait(oneshot::Receiver<Bytes>),
}

/// The extensions of one sandbox.
#[derive(Default)]
pub struct Extensions {
    /// External extensions that have started but not registered yet.
    expected: Vec<String>,
    registered: Vec<Extension>,
    is_closed: bool,
}

impl Extensions {
    /// Expects external extensions with the names of these executables.
    pub fn expecting(names: Vec<String>) -> Extensions {
        Extensions {
            expected: names,
            ..Extensions::default()
        }
    }

    pub fn count(&self) -> usize {
        self.registered.len()
    }

    pub fn has_external(&self) -> bool {
        self.registered.iter().any(|e| e.is_external)
    }

    /// Whether all started external extensions have registered.
    pub fn have_all_registered(&self) -> bool {
        self.expected.is_empty()
    }

    /// Ends registration, at the first `/next` of the runtime.
    pub fn close_registration(&mut self) {
        self.is_closed = true;
    }

    /// Handles `POST /extension/register`; returns the identifier.
    pub fn register(&mut self, name: &str, events: &[String]) -> Result<String, ApiError> {
        if name.is_empty() {
            return Err(ApiError::extension(
                "Extension.InvalidExtensionName",
                "Empty extension name",
            ));
        }
        let expected = self.expected.iter().position(|expected| expected == name);
        for event in events {
            let why = match (event.as_str(), expected) {
                ("INVOKE", _) | ("SHUTDOWN", Some(_)) => continue,
                ("SHUTDOWN", None) => "ShutdownEventNotSupportedForInternalExtension",
                _ => "ErrorInvalidEventType",
            };
            return Err(ApiError::extension(
                "Extension.InvalidEventType",
                format!("{event}: {why}"),
            ));
        }
        if self.is_closed {
            return Err(ApiError::extension(
                "Extension.RegistrationClosed",
                "Extension registration closed already",
            ));
        }
        if self.registered.iter().any(|e| e.name == name) {
            return Err(ApiError::extension(
                "Extension.InvalidExtensionState",
                "Extension with this name already registered",
            ));
        }
        if self.registered.len() >= MAX {
            return Err(ApiError::extension(
                "Extension.TooManyExtensions",
                format!("Extension limit ({MAX}) reached"),
            ));
        }
        if let Some(at) = expected {
            self.expected.remove(at);
        }
        let id = identifier::uuid();
        self.registered.push(Extension {
            id: id.clone(),
            name: name.to_string(),
            is_external: expected.is_some(),
            invoke: events.iter().any(|event| event == "INVOKE"),
            shutdown: events.iter().any(|event| event == "SHUTDOWN"),
            stage: Stage::Registered,
            parked: None,
            waiting: VecDeque::new(),
        });
        Ok(id)
    }

    fn find(&mut self, id: Option<&str>) -> Result<&mut Extension, ApiError> {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Err(ApiError::extension(
                "Extension.MissingExtensionIdentifier",
                "Missing Lambda-Extension-Identifier header",
            ));
        };
        if !identifier::is_valid(id) {
            return Err(ApiError::extension(
                "Extension.InvalidExtensionIdentifier",
                "Invalid Lambda-Extension-Identifier",
            ));
        }
        self.registered
            .iter_mut()
            .find(|e| e.id == id)
            .ok_or_else(|| {
                ApiError::extension(
                    "Extension.UnknownExtensionIdentifier",
                    format!("Unknown extension {id}"),
                )
            })
    }

    /// Handles `GET /extension/event/next`.
    pub fn next(&mut self, id: Option<&str>) -> Result<NextEvent, ApiError> {
        let extension = self.find(id)?;
        match extension.stage {
            Stage::Registered | Stage::Ready | Stage::Running => {}
            stage => return Err(transition(stage, "Ready", &extension.id)),
        }
        if let Some(event) = extension.waiting.pop_front() {
            extension.stage = Stage::Running;
            return Ok(NextEvent::Now(event));
        }
        extension.stage = Stage::Ready;
        let (sender, receiver) = oneshot::channel();
        extension.parked = Some(sender);
        Ok(NextEvent::Wait(receiver))
    }

    /// Handles `POST /extension/init/error` and `/extension/exit/error`; returns the extension's
    /// name.
    pub fn failed(&mut self, id: Option<&str>, at_init: bool) -> Result<String, ApiError> {
        let extension = self.find(id)?;
        extension.stage = match (extension.stage, at_init) {
            (Stage::Registered, true) => Stage::InitError,
            (Stage::InitError, true) => Stage::InitError,
            (stage, true) => return Err(transition(stage, "InitError", &extension.id)),
            (Stage::InitError, false) => {
                return Err(transition(Stage::InitError, "Exited", &extension.id));
            }
            (_, false) => Stage::ExitError,
        };
        Ok(extension.name.clone())
    }

    /// Whether every extension that receives events waits for the next one.
    pub fn are_ready(&self) -> bool {
        self.expected.is_empty()
            && self.registered.iter().all(|e| match e.stage {
                Stage::Registered => false,
                Stage::Running => !e.invoke,
                _ => true,
            })
    }

    /// Sends an event to every extension that registered for INVOKE.
    pub fn invoke(&mut self, event: &Bytes) {
        for extension in self.registered.iter_mut().filter(|e| e.invoke) {
            extension.deliver(event.clone());
        }
    }

    /// Sends SHUTDOWN to the extensions that registered for it; they may run until the shutdown
    /// budget ends. The others are killed.
    pub fn shut_down(&mut self, event: &Bytes) {
        for extension in self.registered.iter_mut().filter(|e| e.shutdown) {
            extension.deliver(event.clone());
        }
    }
}

impl Extension {
    fn deliver(&mut self, event: Bytes) {
        let event = match self.parked.take() {
            Some(parked) => match parked.send(event) {
                Ok(()) => {
                    self.stage = Stage::Running;
                    return;
                }
                Err(event) => event,
            },
            None => event,
        };
        self.waiting.push_back(event);
        if self.stage == Stage::Ready {
            // The connection is closed; the extension must ask again.
            self.stage = Stage::Running;
        }
    }
}

fn transition(from: Stage, to: &str, id: &str) -> ApiError {
    ApiError::extension(
        "Extension.InvalidExtensionState",
        format!(
            "State transition from {} to {to} failed for extension {id}. Error: State transition \
             is not allowed",
            from.name()
        ),
    )
}
