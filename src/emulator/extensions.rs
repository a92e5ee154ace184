//! The extensions of an environment: who has registered, what are they told, and when are they ready?

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::identifier;
use super::refusal::Refusal;

/// Lambda has no more.
const MOST: usize = 10;

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
    /// Events that came while it was not waiting.
    waiting: VecDeque<Bytes>,
}

/// What `/extension/event/next` comes to.
pub enum Next {
    Now(Bytes),
    Wait(oneshot::Receiver<Bytes>),
}

/// Of one life of an environment.
#[derive(Default)]
pub struct Extensions {
    /// External ones that have been started and have yet to register.
    expected: Vec<String>,
    registered: Vec<Extension>,
    is_closed: bool,
}

impl Extensions {
    /// External ones, by the names of their executables.
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

    /// All external ones that were started have registered.
    pub fn have_all_registered(&self) -> bool {
        self.expected.is_empty()
    }

    /// From the first `/next` of the runtime on, nobody registers.
    pub fn close_registration(&mut self) {
        self.is_closed = true;
    }

    /// `POST /extension/register`: the identifier.
    pub fn register(&mut self, name: &str, events: &[String]) -> Result<String, Refusal> {
        if name.is_empty() {
            return Err(Refusal::extension(
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
            return Err(Refusal::extension(
                "Extension.InvalidEventType",
                format!("{event}: {why}"),
            ));
        }
        if self.is_closed {
            return Err(Refusal::extension(
                "Extension.RegistrationClosed",
                "Extension registration closed already",
            ));
        }
        if self.registered.iter().any(|e| e.name == name) {
            return Err(Refusal::extension(
                "Extension.InvalidExtensionState",
                "Extension with this name already registered",
            ));
        }
        if self.registered.len() >= MOST {
            return Err(Refusal::extension(
                "Extension.TooManyExtensions",
                format!("Extension limit ({MOST}) reached"),
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

    fn find(&mut self, id: Option<&str>) -> Result<&mut Extension, Refusal> {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Err(Refusal::extension(
                "Extension.MissingExtensionIdentifier",
                "Missing Lambda-Extension-Identifier header",
            ));
        };
        if !identifier::is_valid(id) {
            return Err(Refusal::extension(
                "Extension.InvalidExtensionIdentifier",
                "Invalid Lambda-Extension-Identifier",
            ));
        }
        self.registered
            .iter_mut()
            .find(|e| e.id == id)
            .ok_or_else(|| {
                Refusal::extension(
                    "Extension.UnknownExtensionIdentifier",
                    format!("Unknown extension {id}"),
                )
            })
    }

    /// `GET /extension/event/next`.
    pub fn next(&mut self, id: Option<&str>) -> Result<Next, Refusal> {
        let extension = self.find(id)?;
        match extension.stage {
            Stage::Registered | Stage::Ready | Stage::Running => {}
            stage => return Err(transition(stage, "Ready", &extension.id)),
        }
        if let Some(event) = extension.waiting.pop_front() {
            extension.stage = Stage::Running;
            return Ok(Next::Now(event));
        }
        extension.stage = Stage::Ready;
        let (sender, receiver) = oneshot::channel();
        extension.parked = Some(sender);
        Ok(Next::Wait(receiver))
    }

    /// `POST /extension/init/error` and `/extension/exit/error`: the name of the one that failed.
    pub fn failed(&mut self, id: Option<&str>, at_init: bool) -> Result<String, Refusal> {
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

    /// Every one that takes part in events waits for the next.
    pub fn are_ready(&self) -> bool {
        self.expected.is_empty()
            && self.registered.iter().all(|e| match e.stage {
                Stage::Registered => false,
                Stage::Running => !e.invoke,
                _ => true,
            })
    }

    /// Tells of an event whoever wants to know.
    pub fn invoke(&mut self, event: &Bytes) {
        for extension in self.registered.iter_mut().filter(|e| e.invoke) {
            extension.tell(event.clone());
        }
    }

    /// Tells of the end; those that want to know are given until the end of the shutdown, the others are killed.
    pub fn shut_down(&mut self, event: &Bytes) {
        for extension in self.registered.iter_mut().filter(|e| e.shutdown) {
            extension.tell(event.clone());
        }
    }
}

impl Extension {
    fn tell(&mut self, event: Bytes) {
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
            // Its connection is gone; it will have to ask again.
            self.stage = Stage::Running;
        }
    }
}

fn transition(from: Stage, to: &str, id: &str) -> Refusal {
    Refusal::extension(
        "Extension.InvalidExtensionState",
        format!(
            "State transition from {} to {to} failed for extension {id}. Error: State transition is not allowed",
            from.name()
        ),
    )
}
