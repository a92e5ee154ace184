//! The forms that RoadRunner parses for its workers: fields as a JSON tree, uploads as files.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use serde::Serialize;

use super::multipart::{self, PartHeaders, Parts};
use super::tree::{self, FormTree};
use crate::budget::{self, Reservation};
use crate::event::{Body, Event};
use crate::spool::TempFile;

/// A parsed form.
pub struct Form {
    /// The fields as JSON.
    pub fields: Vec<u8>,
    /// The files as JSON, if the form may have files.
    pub files: Option<Vec<u8>>,
    pub uploads: Uploads,
}

/// Uploaded files. The worker may have moved them elsewhere; the rest is deleted when this is
/// dropped.
#[derive(Default)]
pub struct Uploads {
    _files: Vec<tempfile::TempPath>,
    /// The form's shares of the budgets of temporary files and of memory.
    _taken: Vec<Reservation>,
}

/// The directory of uploaded files, and the rules for them.
#[derive(Debug, Clone)]
pub struct Directory {
    pub path: PathBuf,
    /// Whether PHP runs as another user, which has the group of the directory.
    pub is_shared: bool,
    pub accepted: Arc<AcceptedUploads>,
}

/// The uploaded files that workers get, by their extensions: `.php`. Rules and error are those of
/// RoadRunner's http plugin (`FileUpload.Open` in its `handler/uploads.go`).
#[derive(Debug, Clone, Default)]
pub struct AcceptedUploads {
    pub forbidden: Vec<String>,
    /// If empty, all that are not forbidden.
    pub allowed: Vec<String>,
}

impl AcceptedUploads {
    fn has(&self, file_name: &str) -> bool {
        let extension = file_name.rsplit_once('.').map_or("", |(_, it)| it);
        let extension = extension.to_lowercase();
        let is_it = |own: &String| own.trim_start_matches('.').to_lowercase() == extension;
        let is_in = |list: &[String]| list.iter().any(is_it);
        !is_in(&self.forbidden) && (self.allowed.is_empty() || is_in(&self.allowed))
    }
}

/// The most bytes of all fields together, like Go's limit.
const MAX_FIELDS: u64 = 10 << 20;
/// The most fields of a form, where each level of a name counts. Each takes about 300 bytes.
const MAX_LEVELS: usize = 100_000;

/// `UPLOAD_ERR_OK`, `UPLOAD_ERR_NO_FILE` and `UPLOAD_ERR_EXTENSION`.
const NO_ERROR: u8 = 0;
const NO_FILE: u8 = 4;
const FORBIDDEN: u8 = 8;

/// RoadRunner sends no body of these methods.
pub fn has_body(method: &Method) -> bool {
    ![Method::HEAD, Method::OPTIONS].contains(method)
}

/// The form of an event, if it has one of the types that RoadRunner parses.
pub async fn parse(
    headers: &HeaderMap,
    event: &Event,
    directory: &Directory,
) -> io::Result<Option<Form>> {
    let Some(kind) = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
    else {
        return Ok(None);
    };
    let body = event.request.body();
    if !has_body(event.request.method()) {
        return Ok(None);
    }
    if kind.contains("application/x-www-form-urlencoded") {
        if body.len() > MAX_FIELDS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut memory = Reservation::none(&budget::MEMORY);
        grow(&mut memory, body.len())?;
        let mut text = Vec::new();
        BodyContent::new(body).read_to_end(&mut text)?;
        let Some(fields) = tree::urlencoded(&text, MAX_LEVELS) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        return Ok(Some(Form {
            fields: json(&fields, &mut memory)?,
            files: None,
            uploads: Uploads {
                _taken: vec![memory],
                ..Uploads::default()
            },
        }));
    }
    if !kind.contains("multipart/form-data") {
        return Ok(None);
    }
    let Some(boundary) = multipart::boundary(kind).map(str::to_string) else {
        return Ok(None);
    };
    let content = BodyContent::new(body);
    let directory = directory.clone();
    // Writes files.
    tokio::task::spawn_blocking(move || multipart(content, &boundary, directory).map(Some)).await?
}

fn multipart(body: BodyContent, boundary: &str, directory: Directory) -> io::Result<Form> {
    let mut form = CollectedForm {
        directory,
        fields: FormTree::default(),
        fields_len: 0,
        files: FormTree::default(),
        uploads: Vec::new(),
        levels: 0,
        taken: Reservation::none(&budget::SPOOL),
        memory: Reservation::none(&budget::MEMORY),
        open: None,
    };
    multipart::parse(body, boundary, &mut form)?;
    Ok(Form {
        fields: json(&form.fields, &mut form.memory)?,
        files: Some(json(&form.files, &mut form.memory)?),
        uploads: Uploads {
            _files: form.uploads,
            _taken: vec![form.taken, form.memory],
        },
    })
}

/// Takes bytes of a form from the budget of memory.
fn grow(memory: &mut Reservation, bytes: u64) -> io::Result<()> {
    match memory.try_grow(bytes) {
        true => Ok(()),
        false => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

fn json(tree: &impl Serialize, memory: &mut Reservation) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(tree)?;
    grow(memory, text.len() as u64)?;
    Ok(text)
}

/// A file as RoadRunner describes it.
#[derive(Debug, Serialize)]
struct UploadedFile {
    name: String,
    mime: String,
    size: u64,
    error: u8,
    #[serde(rename = "tmpName")]
    tmp_name: String,
}

struct CollectedForm {
    directory: Directory,
    fields: FormTree<String>,
    /// Bytes of all fields, and of the names and types of all parts.
    fields_len: u64,
    /// The levels of all names.
    levels: usize,
    files: FormTree<UploadedFile>,
    uploads: Vec<tempfile::TempPath>,
    taken: Reservation,
    memory: Reservation,
    open: Option<(PartHeaders, FormPart)>,
}

enum FormPart {
    Field(Vec<u8>),
    Upload(tempfile::NamedTempFile, u64),
    /// A file input without a file, or with one that is not accepted, with this error.
    NoFile(u8),
}

impl CollectedForm {
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.fields_len += bytes as u64;
        if self.fields_len > MAX_FIELDS || self.levels > MAX_LEVELS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        grow(&mut self.memory, bytes as u64)
    }
}

impl Parts for CollectedForm {
    fn begin(&mut self, headers: PartHeaders) -> io::Result<()> {
        self.levels += tree::depth(&headers.name);
        let file_name = headers.file_name.as_ref().map_or(0, String::len);
        self.count(headers.name.len() + file_name + headers.media_type.len())?;
        let part = match headers.file_name.as_deref() {
            None => FormPart::Field(Vec::new()),
            Some("") => FormPart::NoFile(NO_FILE),
            Some(name) if !self.directory.accepted.has(name) => FormPart::NoFile(FORBIDDEN),
            Some(_) => FormPart::Upload(self.directory.create()?, 0),
        };
        self.open = Some((headers, part));
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> io::Result<()> {
        if let Some((_, FormPart::Field(_))) = self.open {
            self.count(piece.len())?;
        }
        match &mut self.open {
            Some((_, FormPart::Field(value))) => value.extend_from_slice(piece),
            Some((_, FormPart::Upload(file, size))) => {
                if !self.taken.try_grow(piece.len() as u64) {
                    let full = "temporary files have reached their limit (http.max_temp_size)";
                    return Err(io::Error::new(io::ErrorKind::StorageFull, full));
                }
                file.write_all(piece)?;
                *size += piece.len() as u64;
            }
            Some((_, FormPart::NoFile(_))) | None => {}
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((headers, part)) = self.open.take() else {
            return Ok(());
        };
        let mut upload = UploadedFile {
            name: headers.file_name.unwrap_or_default(),
            mime: headers.media_type,
            size: 0,
            error: NO_ERROR,
            tmp_name: String::new(),
        };
        match part {
            FormPart::Field(value) => {
                let value = String::from_utf8_lossy(&value).into_owned();
                self.fields.add(&headers.name, value);
                return Ok(());
            }
            FormPart::Upload(file, size) => {
                let path = file.into_temp_path();
                upload.size = size;
                upload.tmp_name = path.to_string_lossy().into_owned();
                self.uploads.push(path);
            }
            FormPart::NoFile(error) => upload.error = error,
        }
        // Of several files with one name, RoadRunner sends the first.
        self.files.add_first(&headers.name, upload);
        Ok(())
    }
}

impl Directory {
    fn create(&self) -> io::Result<tempfile::NamedTempFile> {
        let mode = if self.is_shared { 0o660 } else { 0o600 };
        let file = tempfile::Builder::new()
            .prefix("upload")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(&self.path)?;
        // The umask may have forbidden it. The directory has set the group.
        if file.as_file().metadata()?.permissions().mode() & 0o777 != mode {
            let permissions = Permissions::from_mode(mode);
            file.as_file().set_permissions(permissions)?;
        }
        Ok(file)
    }
}

/// A request body that is read from its beginning.
pub struct BodyContent {
    body: ContentSource,
    at: u64,
}

enum ContentSource {
    Memory(bytes::Bytes),
    Spooled(Arc<TempFile>, u64),
}

impl BodyContent {
    pub fn new(body: &Body) -> BodyContent {
        let body = match body {
            // The engine has rejected what is still arriving.
            Body::Empty | Body::Streamed { .. } => ContentSource::Memory(bytes::Bytes::new()),
            Body::Memory(bytes) => ContentSource::Memory(bytes.clone()),
            Body::Spooled { file, len } => ContentSource::Spooled(file.clone(), *len),
        };
        BodyContent { body, at: 0 }
    }
}

impl Read for BodyContent {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = match &self.body {
            ContentSource::Memory(bytes) => {
                let rest = &bytes[usize::try_from(self.at).unwrap_or(bytes.len())..];
                let len = rest.len().min(into.len());
                into[..len].copy_from_slice(&rest[..len]);
                len
            }
            ContentSource::Spooled(file, len) => {
                let left = usize::try_from(len - self.at).unwrap_or(into.len());
                let left = left.min(into.len());
                let file: &File = file;
                file.read_at(&mut into[..left], self.at)?
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parse(names: usize, values: usize) -> io::Result<Form> {
        let part = |n: usize| {
            let (name, value) = ("n".repeat(names), "v".repeat(values));
            format!("--b\r\nContent-Disposition: form-data; name={n}{name}\r\n\r\n{value}\r\n")
        };
        let body = (0..1000).map(part).collect::<String>() + "--b--\r\n";
        collect(body.into(), AcceptedUploads::default())
    }

    fn collect(body: Vec<u8>, accepted: AcceptedUploads) -> io::Result<Form> {
        let directory = Directory {
            path: std::env::temp_dir(),
            is_shared: false,
            accepted: accepted.into(),
        };
        let body = Body::Memory(body.into());
        multipart(BodyContent::new(&body), "b", directory)
    }

    #[test]
    fn names_of_parts_count_as_fields() {
        assert!(parse(100, 100).is_ok());
        // Neither exceeds the limit alone.
        for (names, values, is_taken) in [(7000, 1, true), (1, 7000, true), (7000, 7000, false)] {
            let parsed = parse(names, values).map(drop);
            assert_eq!(parsed.is_ok(), is_taken, "{names} {values} {parsed:?}");
        }
    }

    #[test]
    fn levels_of_names_are_limited() {
        let body = "--b\r\nContent-Disposition: form-data; name=a".to_owned()
            + &"[]".repeat(120)
            + "\r\n\r\n1\r\n";
        let body = body.repeat(1000).into_bytes();
        let error = collect(body, AcceptedUploads::default()).map(drop);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn file_that_is_not_accepted_has_an_error_and_no_content() {
        let uploaded = |name: &str, forbidden: &str, allowed: &str| {
            let list = |extensions: &str| extensions.split_whitespace().map(String::from).collect();
            let body = format!(
                "--b\r\nContent-Disposition: form-data; name=f; filename=\"{name}\"\r\n\r\n\
                 text\r\n--b--"
            );
            let accepted = AcceptedUploads {
                forbidden: list(forbidden),
                allowed: list(allowed),
            };
            let form = collect(body.into(), accepted).unwrap();
            let files: Value = serde_json::from_slice(&form.files.unwrap()).unwrap();
            let file = &files["f"];
            let is_stored = file["tmpName"] != "";
            assert_eq!(is_stored, file["size"] == 4, "{file}");
            (file["error"].as_u64().unwrap(), is_stored)
        };
        for (name, forbidden, allowed, error) in [
            ("a.php", ".exe .php", "", 8),
            ("a.PhP", ".php", "", 8),
            ("a.php", "php", "", 8),
            ("a.php", ".PHP", "", 8),
            ("a.php.png", ".php", "", 0),
            ("php", ".php", "", 0),
            ("a.php", "", "", 0),
            ("a.png", "", ".gif .png", 0),
            ("a.jpg", "", ".gif .png", 8),
            ("a.png", ".png", ".png", 8),
            ("", "", ".png", 4),
        ] {
            let found = uploaded(name, forbidden, allowed);
            let expected = (error, error == 0);
            assert_eq!(found, expected, "{name} {forbidden} {allowed}");
        }
    }
}
