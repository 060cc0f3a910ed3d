//! [`Budget`]: limits how much is accepted from a sender that might never stop.

use std::time::Instant;

/// A token bucket: a number at once, and a number per second after that.
#[derive(Debug)]
pub(super) struct Budget {
    most: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    /// `(at once, per second)`.
    pub fn new((most, per_second): (f64, f64)) -> Self {
        Budget { most, per_second, left: most, at: Instant::now() }
    }

    /// Takes one if the budget allows it.
    pub fn take(&mut self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + since * self.per_second).min(self.most);
        let is_enough = self.left >= 1.0;
        if is_enough {
            self.left -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_and_a_rate_are_taken_and_no_more() {
        let mut budget = Budget::new((5.0, 10.0));
        let start = Instant::now();
        let taken = |budget: &mut Budget, from: u64, to: u64| {
            (from..to).filter(|ms| budget.take_at(start + Duration::from_millis(*ms))).count()
        };
        assert!((14..=16).contains(&taken(&mut budget, 0, 1000)), "five at once and ten in a second");
        assert!((9..=11).contains(&taken(&mut budget, 1000, 2000)));
        assert!(budget.take_at(start + Duration::from_secs(3600)));
        assert_eq!(taken(&mut budget, 3_600_001, 3_600_050), 4, "an hour of silence saves up no more than the burst");
    }
}
