//! Every code has its page, at the address that its problems name.

use std::collections::BTreeSet;
use std::path::Path;

use gapless_api::problem::{Code, Problem};
use serde_json::Value;

use crate::support::Node;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

#[test]
fn every_code_has_a_page_and_no_page_is_left_over() {
    let pages: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let expected: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{}.md", code.name())).collect();
    assert_eq!(pages, expected);
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for code in Code::ALL {
        let row =
            format!("| [`{0}`]({0}.md) | {1} | {2} |", code.name(), code.status().as_u16(), code.title());
        assert!(index.contains(&row), "docs/errors/README.md lacks the row {row}");
    }
}

#[test]
fn a_page_says_what_it_means_what_to_do_and_whether_to_repeat() {
    for code in Code::ALL {
        let (name, page) = (code.name(), code.page());
        let head = format!("# {}\n\n`{name}`, HTTP {}\n", code.title(), code.status().as_u16());
        assert!(page.starts_with(&head), "{name}: it must begin with\n{head}");
        for part in ["## What it means\n", "## What to do\n", "## Is repeating safe?\n"] {
            assert!(page.contains(part), "{name} lacks {part}");
        }
        assert_eq!(
            page.contains("Does it help? Yes"),
            code.retryable(),
            "{name}: the page and `retryable` differ"
        );
    }
}

#[tokio::test]
async fn the_type_of_every_problem_is_an_address_that_answers() {
    let node = Node::start().await;
    for code in Code::ALL {
        let problem: Value = serde_json::to_value(Problem::new(*code, "because")).unwrap();
        let page = node.get(problem["type"].as_str().unwrap()).await;
        assert_eq!((page.status.as_u16(), page.text.as_str()), (200, code.page()), "{problem}");
        assert_eq!(page.headers["content-type"], "text/markdown; charset=utf-8");
    }
    node.get("/docs/errors/nonsense").await.is_problem(404, "not-found");
}
