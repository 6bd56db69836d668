//! Lines that belong together, and how they are fitted into a picture.
//!
//! Where blocks do not fit, headings go first, and then the lines of those that matter least.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::look::{Look, Role};

/// Lines that belong together.
#[derive(Debug, Default)]
pub struct Block {
    /// Where not all blocks fit, those of the greatest rank go first.
    pub rank: u8,
    /// The first line is a heading that can be left out.
    pub has_heading: bool,
    /// Its lines.
    pub lines: Vec<Line<'static>>,
    /// As many as still say something.
    pub least: usize,
}

/// A line of pieces, in letters that the terminal has.
pub fn line(look: Look, pieces: impl IntoIterator<Item = (Role, String)>) -> Line<'static> {
    let spans = pieces
        .into_iter()
        .map(|(role, text)| Span::styled(look.letters(&text), look.style(role)));
    Line::from_iter(spans)
}

/// A row that is selected.
pub fn select(line: Line<'static>) -> Line<'static> {
    line.patch_style(Modifier::REVERSED)
}

/// The blocks' lines, as many as fit.
pub fn join(mut blocks: Vec<Block>, height: usize, is_roomy: bool) -> Vec<Line<'static>> {
    let count = |blocks: &[Block]| blocks.iter().map(|block| block.lines.len()).sum::<usize>();
    while count(&blocks) > height {
        let least = |wanted: &dyn Fn(&Block) -> bool| {
            let found = (0..blocks.len()).filter(|at| wanted(&blocks[*at]));
            found.max_by_key(|at| blocks[*at].rank)
        };
        if let Some(at) = least(&|block| block.has_heading) {
            blocks[at].has_heading = false;
            blocks[at].lines.remove(0);
        } else if let Some(at) = least(&|_| true) {
            match blocks[at].lines.len() > blocks[at].least {
                true => drop(blocks[at].lines.pop()),
                false => drop(blocks.remove(at)),
            }
        } else {
            break;
        }
    }
    let gaps = blocks.len().saturating_sub(1);
    let has_gaps = is_roomy && count(&blocks) + gaps <= height;
    let mut lines = Vec::new();
    for block in blocks {
        if has_gaps && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(block.lines);
    }
    lines
}
