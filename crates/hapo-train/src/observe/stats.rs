//! Numbers of the updates, named where they are computed: one call to [`Stats`] is one metric of a step.
//!
//! A micro-batch's numbers are merged into those of its mini-batch, and these into those of the step, so that a sum is
//! always made in the same order. The price is a search by name for each call, a few for every sequence.

/// Which updates of a step a number is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The first update: only there are the weights those that sampled.
    FirstUpdate,
    /// The first pass, which visits every mini-batch once.
    FirstPass,
    AllPasses,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    /// A sum over tokens by their number.
    Mean { sum: f64, count: usize },
    /// A sum over a mini-batch, a mean over mini-batches.
    Total(f64),
    /// The largest part, at least 0.
    Max(f64),
}

/// Named numbers of a micro-batch, a mini-batch or a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    entries: Vec<(&'static str, Over, Value)>,
    /// Tokens run forward and backward, prompts included.
    pub tokens: usize,
}

impl Stats {
    /// A mean over tokens or the like: `sum` over `count` more of them; no number over none.
    pub fn mean(&mut self, name: &'static str, over: Over, sum: f64, count: usize) {
        self.add(name, over, Value::Mean { sum, count });
    }

    /// A part of a mini-batch's total; over a step, the mean of its mini-batches' totals.
    pub fn total(&mut self, name: &'static str, over: Over, part: f64) {
        self.add(name, over, Value::Total(part));
    }

    pub fn max(&mut self, name: &'static str, over: Over, value: f64) {
        self.add(name, over, Value::Max(value));
    }

    fn add(&mut self, name: &'static str, over: Over, more: Value) {
        let known = self.entries.iter_mut().find(|it| it.0 == name);
        let Some((_, _, value)) = known else { return self.entries.push((name, over, more)) };
        match (value, more) {
            (Value::Mean { sum, count }, Value::Mean { sum: s, count: c }) => {
                *sum += s;
                *count += c;
            }
            (Value::Total(total), Value::Total(part)) => *total += part,
            (Value::Max(largest), Value::Max(it)) => *largest = largest.max(it),
            _ => panic!("{name} is recorded as two kinds of number"),
        }
    }

    /// Takes a number away that is not of all that it would be named for.
    pub(crate) fn forget(&mut self, name: &str) {
        self.entries.retain(|it| it.0 != name);
    }

    /// Adds the numbers of a part of the same mini-batch.
    pub fn merge(&mut self, part: &Self) {
        for (name, over, value) in &part.entries {
            self.add(name, *over, *value);
        }
        self.tokens += part.tokens;
    }

    /// Adds the numbers of a mini-batch to those of the step: `update` counts the step's updates and
    /// `pass` its passes, both from 0.
    pub fn merge_update(&mut self, mini_batch: &Self, pass: usize, update: usize) {
        for (name, over, value) in &mini_batch.entries {
            let counts = match over {
                Over::FirstUpdate => update == 0,
                Over::FirstPass => pass == 0,
                Over::AllPasses => true,
            };
            if counts {
                let value = match *value {
                    Value::Total(sum) => Value::Mean { sum, count: 1 },
                    other => other,
                };
                self.add(name, *over, value);
            }
        }
        self.tokens += mini_batch.tokens;
    }

    pub fn value(&self, name: &str) -> Option<f64> {
        self.find(name)?.number()
    }

    /// The denominator of the mean `name`; 0 for any other number.
    pub fn count(&self, name: &str) -> usize {
        let Some(Value::Mean { count, .. }) = self.find(name) else { return 0 };
        count
    }

    /// The numbers in the order in which their names came first.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.entries.iter().filter_map(|it| Some((it.0, it.2.number()?)))
    }

    fn find(&self, name: &str) -> Option<Value> {
        self.entries.iter().find(|it| it.0 == name).map(|it| it.2)
    }
}

impl Value {
    fn number(self) -> Option<f64> {
        match self {
            Self::Mean { count: 0, .. } => None,
            Self::Mean { sum, count } => Some(sum / count as f64),
            Self::Total(it) | Self::Max(it) => Some(it),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two mini-batches, the second of two micro-batches, visited in two passes.
    #[test]
    fn numbers_are_merged_by_their_kind_and_over_their_updates() {
        let part = |loss: f64, ratio: f64, tokens: usize, gap: f64| {
            let mut it = Stats { tokens: 10, ..Stats::default() };
            it.total("loss", Over::FirstPass, loss);
            it.mean("ratio", Over::AllPasses, ratio, tokens);
            it.max("gap", Over::FirstUpdate, gap);
            it
        };
        let mut second = part(1.0, 4.0, 4, 0.5);
        second.merge(&part(2.0, 3.0, 0, 0.75));
        assert_eq!(second.value("loss"), Some(3.0));
        let mut step = Stats::default();
        for pass in 0..2 {
            step.merge_update(&part(5.0, 2.0, 1, 0.25), pass, 2 * pass);
            step.merge_update(&second, pass, 2 * pass + 1);
        }
        let all: Vec<_> = step.iter().collect();
        assert_eq!(all, [("loss", 4.0), ("ratio", 1.8), ("gap", 0.25)]);
        assert_eq!((step.tokens, step.count("ratio")), (60, 10));
        assert_eq!((step.value("absent"), step.count("gap")), (None, 0));
    }

    #[test]
    fn a_mean_over_nothing_is_no_number() {
        let mut it = Stats::default();
        it.mean("share", Over::FirstPass, 0.0, 0);
        assert_eq!((it.iter().count(), it.value("share")), (0, None));
    }
}
