//! The rules in the order in which they are tried.

mod failures;
mod notes;
mod peak;
mod structure;

use super::Rule;

const PARTS: [&[Rule]; 4] = [failures::RULES, structure::RULES, peak::RULES, notes::RULES];
const NUMBER: usize = PARTS[0].len() + PARTS[1].len() + PARTS[2].len() + PARTS[3].len();

/// Every rule, by class.
pub const RULES: &[Rule] = &joined();

const fn joined() -> [Rule; NUMBER] {
    let mut all = [PARTS[0][0]; NUMBER];
    let (mut part, mut at, mut next) = (0, 0, 0);
    while next < NUMBER {
        if at == PARTS[part].len() {
            (part, at) = (part + 1, 0);
        } else {
            all[next] = PARTS[part][at];
            (at, next) = (at + 1, next + 1);
        }
    }
    all
}
