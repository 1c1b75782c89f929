//! Pages, and the places in them that are filled.

use crate::run::Run;
use crate::tables;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- versus:";
const END: &str = "<!-- /versus -->";

/// README.md and everything under docs that has a place to be filled, filled.
pub(crate) fn fill(run: &Run, root: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut pages = BTreeMap::new();
    for path in all(root)? {
        let text = fs::read_to_string(root.join(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
        if text.contains(BEGIN) {
            pages.insert(path, text);
        }
    }
    let named: BTreeSet<String> = pages.values().flat_map(|text| views(text)).collect();
    let filled = |(path, text): (PathBuf, String)| {
        let text = filled(&text, &|view| tables::view(run, view, &named));
        text.map_err(|why| format!("{}: {why}", path.display())).map(|text| (path, text))
    };
    pages.into_iter().map(filled).collect()
}

/// README.md and the pages under docs.
fn all(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let path = folder.join(entry.map_err(|error| error.to_string())?.file_name());
            if root.join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The views that a page asks for.
fn views(text: &str) -> impl Iterator<Item = String> {
    text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(" -->")).map(|(view, _)| view.to_owned())
}

/// The page with its places filled.
fn filled(text: &str, view: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut pieces = text.split(BEGIN);
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(" -->").ok_or("a marker is not closed")?;
        let (_old, after) = rest.split_once(END).ok_or_else(|| format!("`{BEGIN}{name} -->` without `{END}`"))?;
        let new = view(name)?;
        page.push_str(&format!("{BEGIN}{name} -->\n{}\n{END}{after}", new.trim_end()));
    }
    Ok(page)
}
