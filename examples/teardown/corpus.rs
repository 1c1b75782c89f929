//! The text under a folder, and the word index that is built from it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is read at most: the job is about references, not about a disk.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: usize = 4 << 20;
const MAX_FILE_BYTES: u64 = 512 << 10;

/// The text files that the indexes are built from.
pub(crate) struct Corpus {
    files: Vec<PathBuf>,
    pub(crate) bytes: usize,
}

impl Corpus {
    /// Looks for text files at `path`: a folder, which is searched, or one file.
    pub(crate) fn find(path: &Path) -> Result<Self, String> {
        let kind = fs::metadata(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut corpus = Self { files: Vec::new(), bytes: 0 };
        if kind.is_dir() {
            corpus.search(path);
        } else {
            corpus.offer(path, kind.len());
        }
        if corpus.files.is_empty() {
            return Err(format!("{} has no text files to index", path.display()));
        }
        Ok(corpus)
    }

    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Build output, version control and other hidden things are left out, and so is what cannot be read.
    fn search(&mut self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            if name == "target" || name.to_string_lossy().starts_with('.') {
                continue;
            }
            match entry.metadata() {
                Ok(kind) if kind.is_dir() => self.search(&entry.path()),
                Ok(kind) if kind.is_file() => self.offer(&entry.path(), kind.len()),
                _ => {} // A symbolic link could lead in a circle.
            }
        }
    }

    fn offer(&mut self, file: &Path, len: u64) {
        let has_room = self.files.len() < MAX_FILES && self.bytes < MAX_BYTES;
        if has_room
            && (1..=MAX_FILE_BYTES).contains(&len)
            && let Some(text) = read_text(file)
        {
            self.bytes += text.len();
            self.files.push(file.to_path_buf());
        }
    }

    /// Reads the files again and indexes them. A file that has vanished since has no words.
    pub(crate) fn index(&self) -> Index {
        let mut words: HashMap<Box<str>, Vec<Place>> = HashMap::new();
        for (file, path) in self.files.iter().enumerate() {
            let text = read_text(path).unwrap_or_default();
            for (line, content) in text.lines().enumerate() {
                for word in content.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1) {
                    let place = Place { file, line: line + 1 };
                    match words.get_mut(word) {
                        Some(places) => places.push(place),
                        None => drop(words.insert(word.into(), vec![place])),
                    }
                }
            }
        }
        Index { words }
    }
}

/// The text of a file; `None` if it is not text.
fn read_text(file: &Path) -> Option<String> {
    String::from_utf8(fs::read(file).ok()?).ok().filter(|text| !text.contains('\0'))
}

/// Where a word stands.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    file: usize,
    line: usize,
}

/// Every word and where it stands.
pub(crate) struct Index {
    words: HashMap<Box<str>, Vec<Place>>,
}

impl Index {
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// All words, in an order that does not depend on the run.
    pub(crate) fn vocabulary(&self) -> Vec<String> {
        let mut words: Vec<_> = self.words.keys().map(|word| word.to_string()).collect();
        words.sort_unstable();
        words
    }

    /// Looks `word` up: how often it stands in the text, and a number that depends on where.
    pub(crate) fn find(&self, word: &str) -> Option<(usize, usize)> {
        let places = self.words.get(word)?;
        let last = places.last()?;
        Some((places.len(), last.file * 1_000_003 + last.line))
    }
}
