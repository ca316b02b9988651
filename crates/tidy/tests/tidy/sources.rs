//! How Rust files must look. Reads tokens, not text, so that a word in a string or a comment is only a word.

use std::error::Error;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::{assert_clean, tree};

/// A file that grows past this has a second name hidden in it.
const MAX_LINES: usize = 600;

const BANNED_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Split, so that this file may hold it.
const UNFINISHED: &str = concat!("FIX", "ME");

fn violations(source: &str, needs_docs: bool) -> Vec<String> {
    let mut found = Vec::new();
    if needs_docs && !source.starts_with("//!") {
        found
            .push("1: begin with module docs (`//!`): the invariant it keeps, the race it guards".to_owned());
    }
    let lines = source.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{lines}: {lines} lines; split it, {MAX_LINES} is the most"));
    }
    for (index, line) in source.lines().enumerate() {
        if line.contains(UNFINISHED) {
            found.push(format!("{}: `{UNFINISHED}`: finish it or file an issue", index + 1));
        }
    }
    match source.parse::<TokenStream>() {
        Ok(tokens) => read(tokens, &mut found),
        Err(error) => found.push(format!("{}: not Rust: {error}", error.span().start().line)),
    }
    found
}

/// Looks at every window of tokens, at every depth, bodies of macros included.
fn read(tokens: TokenStream, found: &mut Vec<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        match &trees[index..] {
            [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(_), ..]
                if bang.as_char() == '!' && BANNED_MACROS.iter().any(|banned| name == banned) =>
            {
                found.push(format!("{}: `{name}!` is unfinished code", name.span().start().line));
            }
            [TokenTree::Punct(hash), TokenTree::Group(body), ..]
                if hash.as_char() == '#' && body.delimiter() == Delimiter::Bracket =>
            {
                read_attribute(body.stream(), found);
            }
            [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(body), ..]
                if hash.as_char() == '#'
                    && bang.as_char() == '!'
                    && body.delimiter() == Delimiter::Bracket =>
            {
                read_attribute(body.stream(), found);
            }
            _ => {}
        }
        if let TokenTree::Group(group) = tree {
            read(group.stream(), found);
        }
    }
}

/// The content of one attribute, and what `cfg_attr` wraps.
fn read_attribute(tokens: TokenStream, found: &mut Vec<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        let TokenTree::Ident(name) = tree else { continue };
        let line = name.span().start().line;
        let arguments = match trees.get(index + 1) {
            Some(TokenTree::Group(group)) => Some(group.stream()),
            _ => None,
        };
        match (name.to_string().as_str(), arguments) {
            ("ignore", _) => found.push(format!("{line}: an ignored test proves nothing; mend or delete it")),
            ("allow", Some(_)) => {
                found.push(format!("{line}: use `#[expect(lint, reason = \"…\")]` instead of `#[allow]`"));
            }
            ("expect", Some(arguments)) if !has_reason(arguments.clone()) => {
                found.push(format!("{line}: `#[expect]` needs `reason = \"…\"`"));
            }
            ("cfg_attr", Some(arguments)) => read_attribute(arguments, found),
            _ => {}
        }
    }
}

fn has_reason(arguments: TokenStream) -> bool {
    arguments.into_iter().any(|tree| matches!(tree, TokenTree::Ident(name) if name == "reason"))
}

/// `crates/<name>/src/**`: tests and benches say what they are in their names.
fn is_crate_source(path: &Path, root: &Path) -> bool {
    let parts: Vec<_> = path.strip_prefix(root).unwrap_or(path).iter().collect();
    parts.len() > 3 && parts[0] == "crates" && parts[2] == "src"
}

#[test]
fn rust_files_follow_the_house_rules() -> Result<(), Box<dyn Error>> {
    let root = tree::root()?;
    let files = tree::files(&root, "rs")?;
    assert!(!files.is_empty(), "no Rust files found");
    let mut found = Vec::new();
    for file in &files {
        let source = fs::read_to_string(file)?;
        for violation in violations(&source, is_crate_source(file, &root)) {
            found.push(format!("{}:{violation}", tree::shown(file, &root)));
        }
    }
    assert_clean(&found);
    Ok(())
}

#[cfg(test)]
mod samples {
    use std::path::Path;

    use super::{MAX_LINES, UNFINISHED, is_crate_source, violations};

    #[track_caller]
    fn assert_found(source: &str, start: &str) {
        let found = violations(source, false);
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        assert!(found[0].starts_with(start), "{source}: {found:?}");
    }

    #[test]
    fn a_source_without_module_docs_is_caught() {
        assert_eq!(violations("use std::fs;\n", true).len(), 1);
        assert!(violations("//! Says why.\nuse std::fs;\n", true).is_empty());
        assert!(is_crate_source(Path::new("/r/crates/core/src/a/b.rs"), Path::new("/r")));
        assert!(!is_crate_source(Path::new("/r/crates/core/tests/a.rs"), Path::new("/r")));
    }

    #[test]
    fn a_long_file_is_caught() {
        assert!(violations(&"\n".repeat(MAX_LINES), false).is_empty());
        assert_found(&"\n".repeat(MAX_LINES + 1), "601: ");
    }

    #[test]
    fn unfinished_code_is_caught_at_any_depth() {
        assert_found("fn f() {\n    todo!()\n}", "2: `todo!`");
        assert_found("fn f() { g(|| { unimplemented!(\"later\") }) }", "1: `unimplemented!`");
        assert_found("macro_rules! m { () => { dbg!(1) } }", "1: `dbg!`");
        assert_found(&format!("\n// {UNFINISHED}: later\n"), "2: ");
    }

    #[test]
    fn ignored_tests_are_caught() {
        assert_found("#[test]\n#[ignore]\nfn f() {}", "2: an ignored test");
        assert_found("#[ignore = \"slow\"] fn f() {}", "1: an ignored test");
        assert_found("#[cfg_attr(unix, ignore)] fn f() {}", "1: an ignored test");
    }

    #[test]
    fn silenced_lints_are_caught() {
        assert_found("#[allow(dead_code, reason = \"x\")] fn f() {}", "1: use `#[expect");
        assert_found("#![allow(dead_code)]", "1: use `#[expect");
        assert_found("mod a { #[cfg_attr(test, allow(dead_code))] fn f() {} }", "1: use `#[expect");
    }

    #[test]
    fn an_expectation_without_a_reason_is_caught() {
        assert_found("#[expect(\n    dead_code,\n)]\nfn f() {}", "1: `#[expect]` needs");
        assert_found("#![expect(dead_code)]", "1: `#[expect]` needs");
        assert_found("#[expect(clippy::panic, r = \"no reason\")] fn f() {}", "1: `#[expect]` needs");
    }

    #[test]
    fn words_in_strings_comments_and_docs_are_only_words() {
        let source = r##"
            //! Write `#[expect(lint, reason = "…")]`, never #[allow(lint)] or todo!().
            // dbg!(x) and #[ignore] in a comment
            #[expect(dead_code, reason = "shows the form")]
            fn f(allow: bool) { let x = y.expect("todo!("); ignore(allow, "#[allow(x)]"); }
        "##;
        assert!(violations(source, false).is_empty(), "{:?}", violations(source, false));
    }
}
