//! Links between the pages: every file and every heading that one of them points to exists.
//!
//! Links to items of the crate are rustdoc's to check (`cargo doc` with warnings denied), and addresses of other sites
//! nobody's: a test must not need the network.

use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// What a page points to, and what can be pointed to in it.
#[derive(Debug, Default)]
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    /// Paths that it names in code, without a link.
    paths: Vec<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let slug = slug(&heading.take().unwrap_or_default());
                    let before = times.entry(slug.clone()).or_default();
                    page.anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
                    *before += 1;
                }
                Event::Text(text) | Event::Code(text) if heading.is_some() => {
                    heading.get_or_insert_default().push_str(&text);
                }
                Event::Code(code) => page.paths.extend(path_in(&code)),
                _ => {}
            }
        }
        page
    }
}

/// How GitHub names a heading.
fn slug(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

/// A path of this repository at the beginning of a piece of code: what stands before the first blank.
fn path_in(code: &str) -> Option<String> {
    let first = code.split_whitespace().next()?;
    let of_ours = ["src/", "docs/", "tests/", "benches/", "examples/", ".ci/"].iter().any(|top| first.starts_with(top));
    // `src/rcu/{plain,sched}.rs` names several, and `src/…` none.
    (of_ours && !first.contains(['{', '*', '<', '…'])).then(|| first.to_owned())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page, by its path under the root.
fn pages() -> BTreeMap<PathBuf, Page> {
    let mut files = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("the folder can be read") {
            let path = folder.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    let parse = |file: PathBuf| {
        let text = fs::read_to_string(root().join(&file)).expect("the page can be read");
        (file, Page::parse(&text))
    };
    files.into_iter().map(parse).collect()
}

/// Without `.` and `..`; `None` if it leads out of the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            part => normal.push(part),
        }
    }
    Some(normal)
}

/// Why a link leads nowhere.
fn fault(from: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> Option<String> {
    let elsewhere = ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme));
    // Rustdoc resolves what is a path of Rust, in the pages that are compiled with the crate.
    let guide = include_str!("../src/guide.rs");
    let is_compiled = guide.contains(&format!("include_str!(\"../{}\")", from.display()));
    if elsewhere || (link.contains("::") && is_compiled) {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = match file {
        "" => from.to_owned(),
        file => match normal(&from.parent().unwrap_or(Path::new("")).join(file)) {
            Some(target) => target,
            None => return Some("leads out of the repository".into()),
        },
    };
    if !root().join(&target).exists() {
        return Some(format!("there is no {}", target.display()));
    }
    let anchor = anchor?;
    match pages.get(&target) {
        None => Some(format!("{} is no page, and has no headings", target.display())),
        Some(page) if page.anchors.contains(anchor) => None,
        Some(page) => Some(format!("no heading `{anchor}` among {:?}", page.anchors)),
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let links = pages.iter().flat_map(|(from, page)| page.links.iter().map(move |link| (from, link)));
    let faults: Vec<String> = links
        .clone()
        .filter_map(|(from, link)| Some(format!("{}: {link}: {}", from.display(), fault(from, link, &pages)?)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(links.count() > 20, "the parser finds the links");
}

#[test]
fn every_path_that_a_page_names_exists() {
    let pages = pages();
    let paths = pages.iter().flat_map(|(from, page)| page.paths.iter().map(move |path| (from, path)));
    let missing: Vec<String> = paths
        .filter(|(_, path)| !root().join(path).exists())
        .map(|(from, path)| format!("{}: {path}", from.display()))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = "# The `one` heading\n\n# The one heading\n\n[a](#the-one-heading-1) ![b](no.svg) [c](../README.md) `src/none.rs`";
    let page = Page::parse(page);
    assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["the-one-heading", "the-one-heading-1"]);
    assert_eq!((page.links.len(), page.paths.as_slice()), (3, ["src/none.rs".to_owned()].as_slice()));
    let from = PathBuf::from("docs/page.md");
    let pages = BTreeMap::from([(from.clone(), page)]);
    let faults = |link| fault(&from, link, &pages);
    assert_eq!(faults("../README.md"), None);
    assert!(faults("no.svg").is_some());
    assert!(faults("#nothing").is_some());
    assert!(faults("../../README.md").is_some());
}
