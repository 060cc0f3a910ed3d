//! [`Model`]: the law of every request of a program, derived from recordings at several sizes.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::align::align;
use super::law::{Fit, Law, Quantities, Sure};
use super::open::Open;
use super::predict::Answered;
use super::program::{NEVER, Program};
use super::reduce::{self, MULTIPROCESSORS};
use super::refuse::{Parting, part};
use super::unseen::{self, Growth, Unseen};
use crate::anatomy::Role;
use crate::inference::scripted::Ask;

/// The laws of one recording's requests.
#[derive(Clone, Debug)]
pub struct Model {
    /// The recording that provides the requests and their order.
    pub program: Arc<Program>,
    /// Names of the quantities, in the order used for all lists of values.
    pub names: Vec<String>,
    /// The distinct laws; rows share them.
    pub fits: Vec<Fit>,
    /// Index in [`fits`](Self::fits) of each row's law.
    pub of: Vec<u32>,
    /// True if there is only one recording; the anatomy then decides what is likely to grow.
    pub is_single: bool,
    /// What a single recording leaves open, for notes.
    pub(super) told: Open,
    /// Scratch memory of reductions that occurs only at larger sizes.
    pub(super) unseen: Vec<Unseen>,
    /// Predictions made so far, shared by clones of the model.
    pub(super) answered: Answered,
}

/// Requests with one place and one law, for lists of unexplained requests.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Unexplained {
    /// Where they are made.
    pub place: String,
    /// Their role.
    #[serde(serialize_with = "role_name")]
    pub role: crate::anatomy::Role,
    /// Number of these requests in the recording.
    pub requests: u64,
    /// The size of one of them in each recording, in the order of the recordings; `None` where it is missing.
    #[serde(skip)]
    pub sizes: Vec<Option<u64>>,
    /// The most bytes they hold at once.
    pub bytes: u64,
}

fn role_name<S: serde::Serializer>(role: &crate::anatomy::Role, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(role.name())
}

#[derive(Default)]
pub(super) struct Laws {
    all: Vec<Fit>,
    ids: FxHashMap<Fit, u32>,
}

impl Laws {
    /// The index of a law; adds it if it is new.
    pub(super) fn id(&mut self, fit: Fit) -> u32 {
        *self.ids.entry(fit).or_insert_with_key(|fit| {
            self.all.push(fit.clone());
            self.all.len() as u32 - 1
        })
    }
}

impl Model {
    /// Finds the laws of the requests of `programs[base]`.
    ///
    /// # Errors
    /// [`Parting`] if the recordings are not of one program.
    pub fn of(programs: &[Arc<Program>], base: usize, names: &[String]) -> Result<Self, Box<Parting>> {
        let program = &programs[base];
        let at: Vec<Vec<u64>> = programs.iter().map(|p| p.at.values(names).unwrap_or_default()).collect();
        let quantities = Quantities::of(names, &at);
        let mut maps: Vec<(usize, Vec<u32>)> = Vec::new();
        for (i, other) in programs.iter().enumerate().filter(|(i, _)| *i != base) {
            let map = align(program, other);
            if let Some(parting) = part(program, other, &map) {
                return Err(Box::new(parting));
            }
            maps.push((i, map));
        }
        let samples_of = |row: usize| -> Vec<(&[u64], u64)> {
            let mut samples = vec![(at[base].as_slice(), program.rows[row].size)];
            for (i, map) in &maps {
                if let Some(other) = programs[*i].rows.get(map[row] as usize) {
                    samples.push((at[*i].as_slice(), other.size));
                }
            }
            // The nearest recording comes last, because sizes without a law are extrapolated from it.
            samples.sort_by_key(|(at, _)| at.iter().fold(1u128, |all, &v| all.saturating_mul(u128::from(v))));
            samples
        };
        // For each recording, the size of the request right after a row.
        let next_of = |row: u32| -> Vec<(&[u64], u64)> {
            let next = |p: &Program, row: u32| p.rows.get(row.checked_add(1)? as usize).map(|r| r.size);
            let mine = next(program, row).map(|size| (at[base].as_slice(), size));
            let others = maps.iter().filter_map(|(i, map)| {
                let other = map.get(row as usize).copied().filter(|r| *r != NEVER)?;
                Some((at[*i].as_slice(), next(&programs[*i], other)?))
            });
            mine.into_iter().chain(others).collect()
        };
        let cache = if maps.is_empty() { super::server::cache(program, names) } else { FxHashSet::default() };
        let (mut laws, mut of, told) = if maps.is_empty() {
            super::one_recording::fit(program, &quantities, &at[base], &cache)
        } else {
            let (laws, of) = of_several(program, &quantities, &at[base], &samples_of);
            (laws, of, Open::default())
        };
        let cards = find_reductions(program, &mut laws, &mut of, &samples_of);
        let mut model = Model {
            program: Arc::clone(program),
            names: names.to_vec(),
            fits: laws.all,
            of,
            is_single: maps.is_empty() && cache.is_empty(),
            told,
            unseen: Vec::new(),
            answered: Answered::default(),
        };
        model.find_unseen(&cards, &next_of);
        Ok(model)
    }

    /// Finds reductions that are too small for a buffer in the recordings. `next_of`: what each recording requests after a row.
    fn find_unseen<'s>(&mut self, cards: &[u64], next_of: &impl Fn(u32) -> Vec<(&'s [u64], u64)>) {
        let program = Arc::clone(&self.program);
        let of_law = |law: &Law| matches!(law, Law::Sum { .. }) && !law.is_constant();
        let growth = |fit: &Fit| match () {
            () if of_law(&fit.law) => Growth::Likely,
            // With one recording, only the role shows what grows.
            () if self.is_single && fit.others.iter().any(of_law) => Growth::Maybe,
            () => Growth::None,
        };
        let growths: Vec<Growth> = self.fits.iter().map(growth).collect();
        let sums = unseen::sums(&program, |row| growths[self.of[row as usize] as usize]);
        let law_of = |row: u32| {
            let fit = self.fit(row as usize);
            let law = std::iter::once(&fit.law).chain(&fit.others).find(|law| of_law(law))?;
            (self.is_single || fit.sure != Sure::Guessed).then(|| (law.clone(), of_law(&fit.law)))
        };
        // A recording that is large enough for the buffer must contain it.
        let is_wrong = |output: u32, reduce: &reduce::Reduce| {
            next_of(output).iter().enumerate().any(|(i, (at, next))| {
                let bytes = reduce.bytes(at);
                bytes > 0 && (i == 0 || bytes != *next)
            })
        };
        self.unseen = unseen::laws(&program, &sums, cards, law_of, is_wrong);
    }

    /// The law of a row.
    pub fn fit(&self, row: usize) -> &Fit {
        &self.fits[self.of[row] as usize]
    }

    /// Bytes of every row at these values.
    pub fn sizes(&self, at: &[u64]) -> Vec<u64> {
        let by_fit: Vec<u64> = self.fits.iter().map(|f| f.law.bytes(at)).collect();
        self.of.iter().map(|&id| by_fit[id as usize]).collect()
    }

    /// For each law, the lowest and highest bytes at these values; `None` if they are equal.
    pub(super) fn spans(&self, at: &[u64]) -> Vec<Option<[u64; 2]>> {
        let span = |f: &Fit| {
            let all = || std::iter::once(&f.law).chain(&f.others).map(|l| l.bytes(at));
            let (low, high) = (all().min()?, all().max()?);
            (low != high).then_some([low, high])
        };
        self.fits.iter().map(span).collect()
    }

    /// At the recording's peak, bytes of requests that follow a law; at any moment, the most bytes of requests that follow none.
    pub fn explained(&self) -> (u64, u64) {
        let rows = &self.program.rows;
        let is_guess = |row: u32| usize::from(self.fit(row as usize).sure == Sure::Guessed);
        let mut live = [0u64; 2];
        for row in 0..self.program.older as u32 {
            live[is_guess(row)] += rows[row as usize].size;
        }
        let (mut peak, mut at_peak, mut open) = (live[0] + live[1], live[0], live[1]);
        for ask in &self.program.asks {
            match *ask {
                Ask::Alloc(row) => live[is_guess(row)] += rows[row as usize].size,
                Ask::Free(row) | Ask::FreeLater(row) if (row as usize) < rows.len() => {
                    let live = &mut live[is_guess(row)];
                    *live = live.saturating_sub(rows[row as usize].size);
                }
                _ => {}
            }
            open = open.max(live[1]);
            if live[0] + live[1] > peak {
                (peak, at_peak) = (live[0] + live[1], live[0]);
            }
        }
        (at_peak, open)
    }

    /// The unexplained requests, most bytes at once first.
    pub fn unexplained(&self) -> Vec<Unexplained> {
        let mut groups: FxHashMap<(u64, u32), (usize, u64, u64, u64)> = FxHashMap::default();
        for ask in &self.program.asks {
            match *ask {
                Ask::Alloc(row) if self.fit(row as usize).sure == Sure::Guessed => {
                    let r = &self.program.rows[row as usize];
                    let group = groups.entry((r.key, self.of[row as usize])).or_insert((row as usize, 0, 0, 0));
                    group.1 += 1;
                    group.2 += r.size;
                    group.3 = group.3.max(group.2);
                }
                Ask::Free(row) | Ask::FreeLater(row) if (row as usize) < self.of.len() => {
                    let r = &self.program.rows[row as usize];
                    if let Some(group) = groups.get_mut(&(r.key, self.of[row as usize])) {
                        group.2 = group.2.saturating_sub(r.size);
                    }
                }
                _ => {}
            }
        }
        let mut out: Vec<Unexplained> = groups
            .into_values()
            .map(|(row, requests, _, bytes)| {
                let r = &self.program.rows[row];
                Unexplained { place: self.program.place(r), role: r.role, requests, sizes: vec![Some(r.size)], bytes }
            })
            .collect();
        out.sort_by(|a, b| (b.bytes, &a.place).cmp(&(a.bytes, &b.place)));
        out
    }
}

/// The laws of a program's rows, derived from several recordings, and the law of each row. `here` are this recording's values.
fn of_several<'s>(
    program: &Program,
    quantities: &Quantities,
    here: &[u64],
    samples_of: &impl Fn(usize) -> Vec<(&'s [u64], u64)>,
) -> (Laws, Vec<u32>) {
    let mut laws = Laws::default();
    let mut of = vec![u32::MAX; program.rows.len()];
    let mut known: FxHashMap<(Vec<u64>, bool), u32> = FxHashMap::default();
    let mut alone = Vec::new();
    for row in 0..program.rows.len() {
        let samples = samples_of(row);
        let has_other = samples.iter().any(|(a, _)| *a != here);
        if !has_other {
            alone.push(row);
            continue;
        }
        let is_short = program.rows[row].life() < 64;
        let key: Vec<u64> = samples.iter().flat_map(|(a, s)| [a.as_ptr() as u64, *s]).collect();
        of[row] = match known.get(&(key.clone(), is_short)) {
            Some(&id) => id,
            None => {
                let id = laws.id(quantities.fit(&samples, is_short));
                known.insert((key, is_short), id);
                id
            }
        };
    }
    // A request that only this recording has gets the law of another request of its size, from the same stack if possible.
    let mut like: FxHashMap<(u64, u64), u32> = FxHashMap::default();
    let mut sizes: FxHashMap<u64, FxHashMap<u32, u32>> = FxHashMap::default();
    for (row, &id) in program.rows.iter().zip(&of).filter(|(_, id)| **id != u32::MAX) {
        if laws.all[id as usize].sure != Sure::Guessed {
            like.entry((row.size, row.key)).or_insert(id);
            *sizes.entry(row.size).or_default().entry(id).or_default() += 1;
        }
    }
    for row in alone {
        let r = &program.rows[row];
        let same_stack = if r.key == 0 { None } else { like.get(&(r.size, r.key)) };
        let most = || sizes.get(&r.size).and_then(|ids| ids.iter().max_by_key(|(id, n)| (**n, **id)).map(|(id, _)| id));
        of[row] = match same_stack.or_else(most) {
            Some(&id) => id,
            None => laws.id(quantities.alone(here, r.size)),
        };
    }
    for (row, fit) in of_older(program, &laws.all, &of) {
        of[row] = laws.id(fit);
    }
    (laws, of)
}

/// Finds reductions' buffers, which follow their own law. Returns the cards (numbers of multiprocessors) that match most buffers.
fn find_reductions<'s>(
    program: &Program,
    laws: &mut Laws,
    of: &mut [u32],
    samples_of: &impl Fn(usize) -> Vec<(&'s [u64], u64)>,
) -> Vec<u64> {
    let found = reduce::find(program);
    let samples: Vec<Vec<(&[u64], u64)>> = found.iter().map(|(row, _)| samples_of(*row)).collect();
    let law_of = |row: u32| {
        let fit = &laws.all[of[row as usize] as usize];
        (fit.sure != Sure::Guessed).then(|| fit.law.clone())
    };
    let counts: Vec<usize> = MULTIPROCESSORS
        .iter()
        .map(|&m| found.iter().zip(&samples).filter(|((_, f), s)| f.reduce(program, m, s, law_of).is_some()).count())
        .collect();
    let best = counts.iter().copied().max().unwrap_or(0);
    if best == 0 {
        return MULTIPROCESSORS.to_vec();
    }
    let cards: Vec<u64> = MULTIPROCESSORS.iter().zip(&counts).filter(|(_, c)| **c == best).map(|(m, _)| *m).collect();
    let mut decided = Vec::new();
    for ((row, f), samples) in found.iter().zip(&samples) {
        let mut possible: Vec<_> = cards.iter().filter_map(|&m| f.reduce(program, m, samples, law_of)).map(Arc::new).collect();
        if possible.is_empty() {
            continue;
        }
        let first = possible.remove(0);
        let counters = program.rows[f.counters].size;
        let sure = if samples.len() > 1 { Sure::Verified } else { Sure::Determined };
        let fit = |law: Law, others: Vec<Law>| Fit { law, sure, others };
        let beside = fit(Law::BesideReduce(Arc::clone(&first), counters), Vec::new());
        let others = possible.into_iter().map(Law::Reduce).collect();
        decided.push((*row, f.counters, fit(Law::Reduce(first), others), beside));
    }
    for (row, counters, buffer, beside) in decided {
        of[row] = laws.id(buffer);
        of[counters] = laws.id(beside);
    }
    cards
}

/// The laws of blocks left by a pass before the recording. Such a block has no stack, and at the recorded sizes, blocks with
/// different laws may be equally large. The recorded pass makes the same blocks with stacks, which shows for each role and size how
/// many have which law; the older blocks are divided likewise. If the numbers do not match, a block may have any of the laws.
fn of_older(program: &Program, fits: &[Fit], of: &[u32]) -> Vec<(usize, Fit)> {
    let comes_and_goes = |row: usize| matches!(program.rows[row].role, Role::Activations | Role::Temporaries);
    let kind = |row: usize| (program.rows[row].role, program.rows[row].size);
    let mut older: FxHashMap<(Role, u64), Vec<usize>> = FxHashMap::default();
    for row in (0..program.older).filter(|&row| comes_and_goes(row) && program.rows[row].loose == 0) {
        older.entry(kind(row)).or_default().push(row);
    }
    let mut laws: FxHashMap<(Role, u64), Vec<u32>> = FxHashMap::default();
    let is_known = |row: &usize| of[*row] != u32::MAX && fits[of[*row] as usize].sure != Sure::Guessed;
    for row in (program.older..program.rows.len()).filter(is_known).filter(|&row| program.rows[row].loose != 0) {
        if older.contains_key(&kind(row)) {
            laws.entry(kind(row)).or_default().push(of[row]);
        }
    }
    let mut decided = Vec::new();
    for (kind, rows) in older {
        let Some(mut laws) = laws.remove(&kind) else { continue };
        laws.sort_unstable();
        let mut distinct = laws.clone();
        distinct.dedup();
        // If whole passes were recorded, the proportions are exact.
        if laws.len().is_multiple_of(rows.len()) {
            distinct.clear();
        }
        let fit = |id: u32| {
            let others = distinct.iter().filter(|&&other| other != id).map(|&other| fits[other as usize].law.clone());
            Fit { others: others.collect(), ..fits[id as usize].clone() }
        };
        decided.extend(rows.iter().enumerate().map(|(i, &row)| (row, fit(laws[i * laws.len() / rows.len()]))));
    }
    decided
}
