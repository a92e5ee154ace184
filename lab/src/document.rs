//! A file that is made from results.

use std::path::PathBuf;

use anyhow::Context;

/// A file, and what it should contain.
pub struct Document {
    pub file: PathBuf,
    pub text: String,
}

/// Writes documents that have changed, and names all.
pub fn write(documents: Vec<Document>) -> anyhow::Result<()> {
    for document in documents {
        let file = document.file.display();
        if !document.is_current() {
            std::fs::write(&document.file, &document.text)
                .with_context(|| format!("cannot write {file}"))?;
        }
        eprintln!("  {file}");
    }
    Ok(())
}

impl Document {
    pub fn is_current(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|text| text == self.text)
    }
}
