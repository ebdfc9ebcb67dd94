//! Free runs of the key/value cache.
//!
//! Price: a run is found by a scan; there are at most as many as sequences.

/// Which end of a free run is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Low,
    High,
}

/// Free runs of tokens, by start, never adjacent.
#[derive(Debug)]
pub(crate) struct FreeList {
    runs: Vec<(usize, usize)>,
}

impl FreeList {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { runs: if capacity == 0 { Vec::new() } else { vec![(0, capacity)] } }
    }

    pub(crate) fn total(&self) -> usize {
        self.runs.iter().map(|&(_, len)| len).sum()
    }

    pub(crate) fn largest(&self) -> usize {
        self.runs.iter().map(|&(_, len)| len).max().unwrap_or(0)
    }

    /// The smallest run that fits, from its low or its high end. Prompts are at the high end and
    /// sequences at the low one, so that short prompts do not fragment the capacity for long sequences.
    pub(crate) fn take(&mut self, len: usize, end: End) -> Option<usize> {
        let fits = self.runs.iter().enumerate().filter(|it| it.1.1 >= len);
        let (index, &(start, free)) = fits.min_by_key(|it| it.1.1)?;
        let rest = free - len;
        let (taken, left) = match end {
            End::Low => (start, (start + len, rest)),
            End::High => (start + rest, (start, rest)),
        };
        if rest == 0 {
            self.runs.remove(index);
        } else {
            self.runs[index] = left;
        }
        Some(taken)
    }

    pub(crate) fn give(&mut self, start: usize, len: usize) {
        let index = self.runs.partition_point(|&(s, _)| s < start);
        self.runs.insert(index, (start, len));
        if index + 1 < self.runs.len() && start + len == self.runs[index + 1].0 {
            self.runs[index].1 += self.runs.remove(index + 1).1;
        }
        if index > 0 && self.runs[index - 1].0 + self.runs[index - 1].1 == start {
            self.runs[index - 1].1 += self.runs.remove(index).1;
        }
    }
}
