//! Locates the code that a template deploys: the zip if it exists, else the project's directory.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::deploy::run_settings::{Code, EventHandler};
use crate::deploy::stack::StackFunction;
use crate::package::{APART, elf};

/// The code of one function.
pub struct Deployed {
    pub code: Code,
    /// The zip, if it exists.
    zip: Option<PathBuf>,
    project: PathBuf,
    /// The front controller. It is not a handler, even if the template names it as one.
    front: Option<PathBuf>,
}

impl Deployed {
    /// `directory` contains the template and is the base of its relative paths.
    pub fn find(
        function: &StackFunction,
        directory: &Path,
        project: &Path,
        front: Option<&Path>,
    ) -> anyhow::Result<Deployed> {
        let mut deployed = Deployed {
            code: Code::Elsewhere,
            zip: None,
            project: project.to_path_buf(),
            front: front.map(Path::to_path_buf),
        };
        let Some(code) = &function.code else {
            return Ok(deployed);
        };
        if function.is_image || function.is_built || code.value.contains("://") {
            return Ok(deployed);
        }
        let path = directory.join(&code.value);
        if path.is_dir() {
            let has_bootstrap = path.join("bootstrap").is_file();
            deployed.code = Code::Directory { has_bootstrap };
            deployed.project = path;
        } else if path.is_file() {
            let bootstrap = start_of(&path, "bootstrap")?;
            deployed.code = Code::Zip {
                exists: true,
                architecture: bootstrap.and_then(|start| elf::machine(&start)),
            };
            deployed.zip = Some(path);
        } else {
            deployed.code = Code::Zip {
                exists: false,
                architecture: elf::this_architecture(),
            };
        }
        Ok(deployed)
    }

    /// The handler of events that are not HTTP, given `lambda.handler`.
    pub fn handler(&self, function: &StackFunction, configured: Option<&Path>) -> EventHandler {
        let named = function.handler.as_ref().map(|handler| &*handler.value);
        let name = match (configured, named) {
            (Some(configured), _) => configured.to_str().unwrap_or_default(),
            // Surus ignores a `Handler` that does not look like a file.
            (None, Some(named)) if named.ends_with(".php") || named.contains('/') => named,
            _ => return EventHandler::Application,
        };
        let file = self.project.join(name).canonicalize().ok();
        if file.is_some() && file == self.front {
            return EventHandler::Application;
        }
        match self.start_of(name) {
            Some(start) if start.starts_with(b"#!") => EventHandler::Console,
            Some(_) => EventHandler::File,
            // A missing lambda.handler is reported for surus.toml.
            None if self.code == Code::Elsewhere || configured.is_some() => EventHandler::File,
            None => EventHandler::Missing,
        }
    }

    /// The first bytes of a file. None if it does not exist.
    fn start_of(&self, name: &str) -> Option<Vec<u8>> {
        let Some(zip) = &self.zip else {
            return start(File::open(self.project.join(name)).ok()?);
        };
        let apart = format!("{APART}/{name}");
        let found = |name| start_of(zip, name).ok().flatten();
        found(name).or_else(|| found(&apart))
    }
}

/// The first bytes of a file in a zip.
pub fn start_of(zip: &Path, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let cannot = || format!("cannot read the zip {}", zip.display());
    let file = File::open(zip).with_context(cannot)?;
    let mut archive = ZipArchive::new(BufReader::new(file)).with_context(cannot)?;
    match archive.by_name(name) {
        Ok(entry) => Ok(start(entry)),
        Err(ZipError::FileNotFound) => Ok(None),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// Reads the size of a program's header.
fn start(file: impl Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
