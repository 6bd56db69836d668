//! How well a model predicts: its errors, whether it knows which of two neighbouring cells is more,
//! and whether it knows more than who says that nothing makes a difference.

use std::fmt;

use pghot_workloads::spread::median;

use super::{Cell, Table};

/// A prediction and how far it is off, as a share of what was published.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss {
    /// Row and column.
    pub cell: String,
    /// Positive if the model says too much.
    pub error: f64,
}

/// A prediction against the figure of its row, or else of its column, that the model was made to
/// fit: by how much it differs, as a share of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// As published. Who says that nothing makes a difference is off by so much.
    pub published: f64,
    /// As modelled.
    pub model: f64,
}

/// Over some tables. Cells that the model was made to fit do not count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    /// Predictions, the worst first.
    pub misses: Vec<Miss>,
    /// Pairs of neighbours, one at least a prediction, that differ by more than the noise.
    pub neighbours: usize,
    /// Of these, the pairs that differ the same way in the model.
    pub agreeing: usize,
    /// Predictions beside a figure that was fitted.
    pub effects: Vec<Effect>,
}

impl Score {
    /// Of all these tables together.
    pub fn of<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Score {
        let mut score = Score::default();
        for table in tables {
            score.add(table);
        }
        let size = |miss: &Miss| miss.error.abs();
        score.misses.sort_by(|a, b| size(b).total_cmp(&size(a)));
        score
    }

    /// Half of the predictions are off by less than this; zero without predictions.
    pub fn median_error(&self) -> f64 {
        median(self.misses.iter().map(|miss| miss.error.abs())).unwrap_or(0.0)
    }

    /// How far off it is to say that nothing makes a difference, and how far off the model's
    /// difference is: the medians of [`Score::effects`].
    pub fn median_effect_errors(&self) -> (f64, f64) {
        let effects = self.effects.iter();
        let of_model = |effect: &Effect| (effect.model - effect.published).abs();
        (
            median(effects.clone().map(|effect| effect.published.abs())).unwrap_or(0.0),
            median(effects.map(of_model)).unwrap_or(0.0),
        )
    }

    fn add(&mut self, table: &Table) {
        for cell in table.cells.iter().filter(|cell| !cell.is_calibration) {
            if let Some(error) = cell.error() {
                self.misses.push(Miss {
                    cell: format!("{}, {}", cell.row, cell.column),
                    error,
                });
            }
            self.effects.extend(effect(table, cell));
        }
        let rows = in_order(table, |cell| &cell.row);
        let columns = in_order(table, |cell| &cell.column);
        let at = |row: &str, column: &str| {
            let is_it = |cell: &&Cell| cell.row == row && cell.column == column;
            table.cells.iter().find(is_it)
        };
        let noise = table.noise_percent.unwrap_or(0.0) / 100.0;
        for pair in columns.windows(2) {
            for row in &rows {
                self.compare(at(row, pair[0]), at(row, pair[1]), noise);
            }
        }
        for pair in rows.windows(2) {
            for column in &columns {
                self.compare(at(pair[0], column), at(pair[1], column), noise);
            }
        }
    }

    fn compare(&mut self, a: Option<&Cell>, b: Option<&Cell>, noise: f64) {
        let (Some(a), Some(b)) = (a, b) else {
            return;
        };
        let published = b.published - a.published;
        let is_noise = published.abs() <= noise * a.published.abs().max(b.published.abs());
        if is_noise || (a.is_calibration && b.is_calibration) {
            return;
        }
        self.neighbours += 1;
        self.agreeing += usize::from(published * (b.model - a.model) > 0.0);
    }
}

/// None without a fitted figure beside it.
fn effect(table: &Table, cell: &Cell) -> Option<Effect> {
    let fitted = || table.cells.iter().filter(|other| other.is_calibration);
    let base = fitted()
        .find(|other| other.row == cell.row)
        .or_else(|| fitted().find(|other| other.column == cell.column))?;
    let is_number = base.published != 0.0 && base.model != 0.0;
    is_number.then(|| Effect {
        published: cell.published / base.published - 1.0,
        model: cell.model / base.model - 1.0,
    })
}

/// Names of rows or columns, each once, as they come.
fn in_order(table: &Table, name: impl Fn(&Cell) -> &String) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &table.cells {
        let name = name(cell).as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(worst) = self.misses.first() else {
            return write!(f, "No cell is a prediction.");
        };
        write!(
            f,
            "{} predictions, half of them off by less than {:.1} %; the worst by {:+.1} % ({}). \
             {} of {} differences between neighbours have the right sign.",
            self.misses.len(),
            self.median_error() * 100.0,
            worst.error * 100.0,
            worst.cell,
            self.agreeing,
            self.neighbours,
        )?;
        if self.effects.is_empty() {
            return Ok(());
        }
        let (nothing, model) = self.median_effect_errors();
        write!(
            f,
            " Against a fitted figure beside it, half of {} differ by less than {:.1} %, which \
             is the error of who says that they do not; the model's difference is off by {:.1} \
             points.",
            self.effects.len(),
            nothing * 100.0,
            model * 100.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(noise_percent: Option<f64>, cells: &[(&str, &str, f64, f64, bool)]) -> Table {
        let cell =
            |&(row, column, published, model, is_calibration): &(&str, &str, _, _, _)| Cell {
                row: row.into(),
                column: column.into(),
                published,
                model,
                is_calibration,
            };
        Table {
            title: String::new(),
            source: String::new(),
            unit: String::new(),
            noise_percent,
            cells: cells.iter().map(cell).collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn only_predictions_have_errors() {
        let table = table(
            None,
            &[
                ("a", "1", 10.0, 30.0, true),
                ("a", "2", 10.0, 11.0, false),
                ("b", "1", 10.0, 6.0, false),
                ("b", "2", 10.0, 12.0, false),
                ("b", "3", 0.0, 1.0, false),
            ],
        );
        let score = Score::of([&table]);
        assert_eq!(score.misses.len(), 3);
        assert!((score.median_error() - 0.2).abs() < 1e-9);
        assert_eq!(score.misses[0].cell, "b, 1");
        let both = Score::of([&table, &table]);
        assert_eq!(both.misses.len(), 6);
        assert!((both.median_error() - 0.2).abs() < 1e-9);
        assert_eq!(Score::default().median_error(), 0.0);
    }

    #[test]
    fn who_says_that_nothing_makes_a_difference_is_scored_too() {
        let table = table(
            None,
            &[
                ("a", "1", 10.0, 10.0, true),
                ("a", "2", 8.0, 9.0, false),
                ("b", "1", 12.0, 11.0, false),
                ("b", "2", 20.0, 20.0, false),
            ],
        );
        let score = Score::of([&table]);
        assert_eq!(score.effects.len(), 2, "b2 has none beside it");
        let (nothing, model) = score.median_effect_errors();
        assert!((nothing - 0.2).abs() < 1e-9 && (model - 0.1).abs() < 1e-9);
        let said = score.to_string();
        assert!(
            said.contains("half of 2 differ by less than 20.0 %"),
            "{said}"
        );
    }

    #[test]
    fn neighbours_are_beside_and_below_and_noise_is_no_difference() {
        let cells = [
            ("a", "1", 10.0, 10.0, true),
            ("a", "2", 20.0, 15.0, true),
            ("b", "1", 12.0, 9.0, false),
            ("b", "2", 20.5, 16.0, false),
            ("c", "2", 30.0, 16.0, false),
        ];
        // Calibrated both: a1-a2. Right: b1-b2, a2-b2. Wrong: a1-b1, and b2-c2, which the model
        // does not tell apart.
        let score = Score::of([&table(None, &cells)]);
        assert_eq!((score.agreeing, score.neighbours), (2, 4));
        let score = Score::of([&table(Some(5.0), &cells)]);
        assert_eq!((score.agreeing, score.neighbours), (1, 3), "a2-b2 is noise");
    }
}
