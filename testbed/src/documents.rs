//! The shell blocks of the documents. Each is run by a test, those of pghot itself in a guest, or
//! says in a comment before it why it is not:
//!
//! ````text
//! <!-- not run: it needs a network -->
//! ```sh
//! apt install ./pghot_*_amd64.deb
//! ```
//! ````
//!
//! And samples of what commands print, which are made anew by `make docs-samples`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// What begins the comment.
const NOT_RUN: &str = "<!-- not run: ";

/// A block of shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The document, and the line of the fence.
    pub place: String,
    /// Its lines, without comments; one that is continued is one.
    pub commands: Vec<String>,
    /// Why it is not run.
    pub not_run: Option<String>,
}

/// The blocks of all documents below the root of the repository, in their order.
pub fn blocks(root: &Path) -> Result<Vec<Block>, Error> {
    let docs = root.join("docs");
    let entries = fs::read_dir(&docs).map_err(Error::io(&docs))?;
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    let others = [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "fleet/README.md",
    ];
    pages.extend(others.map(|name| root.join(name)));
    pages.sort_unstable();
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).map_err(Error::io(&page))?;
        let name = page.strip_prefix(root).unwrap_or(&page);
        blocks.extend(of_page(&name.display().to_string(), &text));
    }
    Ok(blocks)
}

/// Writes what a command has printed into a document, if samples are to be made anew: `PGHOT_BLESS`
/// is set. Its place is the block behind the comment `<!-- sample: NAME -->`.
pub fn put_sample(page: &Path, name: &str, printed: &str) -> Result<(), Error> {
    if std::env::var_os("PGHOT_BLESS").is_none() {
        return Ok(());
    }
    let text = fs::read_to_string(page).map_err(Error::io(page))?;
    let text = with_sample(&text, name, printed).ok_or_else(|| Error::Unexpected {
        what: format!("the sample {name} in {}", page.display()),
        found: "no block behind a comment".to_owned(),
    })?;
    fs::write(page, text).map_err(Error::io(page))
}

fn with_sample(text: &str, name: &str, printed: &str) -> Option<String> {
    let fence = "```\n";
    let start = format!("<!-- sample: {name} -->\n{fence}");
    let (before, after) = text.split_once(&start)?;
    let (_, after) = after.split_once(fence)?;
    let printed = printed.trim_end();
    Some(format!("{before}{start}{printed}\n{fence}{after}"))
}

fn of_page(name: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut block: Option<Block> = None;
    let mut before = "";
    for (line, number) in text.lines().zip(1..) {
        let fence = line.strip_prefix("```");
        match (&mut block, fence) {
            (None, Some("sh")) => {
                let why = before.strip_prefix(NOT_RUN);
                let why = why.and_then(|why| why.strip_suffix(" -->"));
                block = Some(Block {
                    place: format!("{name}:{number}"),
                    commands: Vec::new(),
                    not_run: why.map(str::to_owned),
                });
            }
            (Some(_), Some(_)) => blocks.extend(block.take()),
            (Some(block), None) => add(block, line),
            (None, _) => {}
        }
        before = line;
    }
    blocks
}

fn add(block: &mut Block, line: &str) {
    let line = line.split(" # ").next().unwrap_or(line).trim();
    if line.is_empty() || line.starts_with('#') {
        return;
    }
    match block.commands.last_mut() {
        Some(last) if last.ends_with('\\') => {
            last.pop();
            last.push_str(line);
        }
        _ => block.commands.push(line.to_owned()),
    }
}

/// A sample of a command with what it printed, shortened: `…` stands for what was left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample {
    /// The command.
    pub command: String,
    /// The names of the fields that are shown, as they stand in JSON.
    pub fields: Vec<String>,
}

/// The samples of a page: blocks in which a command stands behind `$ `, and below it what it
/// printed.
pub fn samples(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut is_sample = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            is_sample = true;
            samples.push(Sample {
                command: command.to_owned(),
                fields: Vec::new(),
            });
            continue;
        }
        is_sample &= !line.starts_with("```");
        if let (true, Some(sample)) = (is_sample, samples.last_mut()) {
            let words = line.split('"').collect::<Vec<_>>();
            let names = words.windows(2).filter(|pair| pair[1].starts_with(':'));
            (sample.fields).extend(names.map(|pair| format!("\"{}\":", pair[0])));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_lines_are_joined() {
        let page = "```sh\na   # b\n\n# c\nd \\\n    e\n```\ntext\n<!-- not run: x y -->\n```sh\n\
                    f\n\
                    ```\n```\ng\n```\n";
        let block = |line: u32, commands: &[&str], not_run: Option<&str>| Block {
            place: format!("p:{line}"),
            commands: commands.iter().map(|&command| command.to_owned()).collect(),
            not_run: not_run.map(str::to_owned),
        };
        let expected = [
            block(1, &["a", "d e"], None),
            block(10, &["f"], Some("x y")),
        ];
        assert_eq!(of_page("p", page), expected);
    }

    #[test]
    fn a_sample_has_a_command_and_fields() {
        let page = "a \"no\":\n```\n$ x --y\n{\"e\":\"f\",…,\"n\":{\"2\":4}}\n```\n\"no\":\n";
        let expected = Sample {
            command: "x --y".to_owned(),
            fields: ["\"e\":", "\"n\":", "\"2\":"].map(str::to_owned).to_vec(),
        };
        assert_eq!(samples(page), [expected]);
    }

    #[test]
    fn a_sample_is_replaced_and_nothing_else() {
        let page = "a\n<!-- sample: x -->\n```\nold\n```\nb\n```\nc\n```\n";
        let expected = "a\n<!-- sample: x -->\n```\nn\new\n```\nb\n```\nc\n```\n";
        assert_eq!(
            with_sample(page, "x", "n\new\n\n").as_deref(),
            Some(expected)
        );
        assert_eq!(with_sample(page, "y", "new"), None);
    }

    /// A test in guests runs commands of pghot, and nothing else; the tests of `fleet` run its own.
    #[test]
    fn each_block_can_be_run_or_says_why_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let blocks = blocks(&root).unwrap();
        assert!(blocks.len() > 20, "{blocks:#?}");
        for block in blocks {
            let is_ours = |command: &String| {
                let command = command.strip_prefix("target/release/").unwrap_or(command);
                command.starts_with("pghot ") || command.starts_with("pghot-fleet ")
            };
            let all_ours = block.commands.iter().all(is_ours);
            match &block.not_run {
                None => assert!(
                    all_ours,
                    "nobody runs this, and nothing says why: {block:#?}"
                ),
                Some(why) => assert!(
                    !why.trim().is_empty() && !all_ours,
                    "it can run: {block:#?}"
                ),
            }
        }
    }
}
