//! Relative links in the texts point at something that exists.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag};

use crate::{assert_clean, tree};

/// Texts at the root; everything below `docs/` is read as well.
const TEXTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];

/// Every relative target of a link or an image with its line; fragments and queries are cut off.
/// Code blocks hold no links: the Markdown parser knows.
fn relative_links(markdown: &str) -> Vec<(usize, String)> {
    Parser::new(markdown)
        .into_offset_iter()
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let path = dest_url.split(['#', '?']).next().unwrap_or_default();
                let line = markdown[..range.start].matches('\n').count() + 1;
                let is_relative = !path.is_empty() && !has_scheme(&dest_url);
                is_relative.then(|| (line, path.replace("%20", " ")))
            }
            _ => None,
        })
        .collect()
}

/// `https://…`, `mailto:…`, and `<name@host>`, whose target the parser gives without its scheme.
fn has_scheme(target: &str) -> bool {
    let scheme_end = target.find(':');
    let path_start = target.find('/');
    target.contains('@') || scheme_end.is_some_and(|colon| path_start.is_none_or(|slash| colon < slash))
}

/// A leading `/` means the repository's root, as code hosts show it.
fn violations(root: &Path, text: &Path, markdown: &str) -> Vec<String> {
    let folder = text.parent().unwrap_or(root);
    relative_links(markdown)
        .into_iter()
        .filter(|(_, target)| match target.strip_prefix('/') {
            Some(from_root) => !root.join(from_root).exists(),
            None => !folder.join(target).exists(),
        })
        .map(|(line, target)| format!("{}:{line}: `{target}` does not exist", tree::shown(text, root)))
        .collect()
}

#[test]
fn relative_links_resolve() -> Result<(), Box<dyn Error>> {
    let root = tree::root()?;
    let mut texts: Vec<PathBuf> =
        TEXTS.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect();
    texts.extend(tree::files(&root.join("docs"), "md")?);
    let mut found = Vec::new();
    for text in &texts {
        found.extend(violations(&root, text, &fs::read_to_string(text)?));
    }
    assert_clean(&found);
    Ok(())
}

#[cfg(test)]
mod samples {
    use std::error::Error;
    use std::fs;

    use super::{relative_links, violations};

    #[test]
    fn a_link_into_nothing_is_named_with_its_line() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("docs"))?;
        fs::write(dir.path().join("README.md"), "")?;
        let text = dir.path().join("docs/a.md");
        let markdown = "# A\n\n[up](../README.md#top), [root](/README.md)\n\n[gone](gone.md) ![img][ref]\n\n[ref]: b.png\n";
        assert_eq!(
            violations(dir.path(), &text, markdown),
            ["docs/a.md:5: `gone.md` does not exist", "docs/a.md:5: `b.png` does not exist"]
        );
        Ok(())
    }

    #[test]
    fn what_is_not_a_relative_link_is_left_alone() {
        let markdown = "[a](https://example.org/x.md) <me@example.org> [b](#here) [c](mailto:x@y) `[d](d.md)`\n\n```\n[e](e.md)\n```\n";
        assert!(relative_links(markdown).is_empty(), "{:?}", relative_links(markdown));
    }
}
