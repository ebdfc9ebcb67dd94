//! Tiles of a product: some rows by some vectors of columns, whose sums stay in registers.

use crate::lanes::{Lanes, Level, WIDTH};

/// Most rows of a tile and vectors of its columns: as many sums as there are registers.
pub(super) const fn largest<V: Lanes>() -> (usize, usize) {
    if V::REGISTERS == 1 { (8, 3) } else { (6, 1) }
}

/// Rows and steps of a left factor.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) first: *const f32,
    pub(super) row_stride: usize,
    pub(super) step_stride: usize,
}

impl Rows {
    /// The same from a row and a step on.
    pub(super) fn from(self, row: usize, step: usize) -> Self {
        let first = self.first.wrapping_add(row * self.row_stride + step * self.step_stride);
        Self { first, ..self }
    }
}

/// How the columns of a right factor are held.
pub(super) trait Columns: Copy {
    /// `N` vectors of a step.
    ///
    /// # Safety
    /// They lie at `at`.
    unsafe fn load<V: Lanes, const N: usize>(self, step: usize, at: *const f32) -> [V; N];
}

#[derive(Clone, Copy)]
pub(super) struct Numbers;

impl Columns for Numbers {
    #[inline(always)]
    unsafe fn load<V: Lanes, const N: usize>(self, _: usize, at: *const f32) -> [V; N] {
        // SAFETY: the caller's.
        std::array::from_fn(|n| V::load(unsafe { &*at.add(n * WIDTH).cast() }))
    }
}

/// In f32, and copied to where they lie without gaps.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    pub(super) to: *mut f32,
}

impl Columns for Copied {
    #[inline(always)]
    unsafe fn load<V: Lanes, const N: usize>(self, step: usize, at: *const f32) -> [V; N] {
        // SAFETY: the caller's, and of whoever names the place.
        let vectors: [V; N] = unsafe { Numbers.load(step, at) };
        for (n, vector) in vectors.into_iter().enumerate() {
            // SAFETY: as above.
            vector.store(unsafe { &mut *self.to.add((step * N + n) * WIDTH).cast() });
        }
        vectors
    }
}

/// In words of two bf16 numbers, both vectors of them.
#[derive(Clone, Copy)]
pub(super) struct Halves;

impl Columns for Halves {
    #[inline(always)]
    unsafe fn load<V: Lanes, const N: usize>(self, _: usize, at: *const f32) -> [V; N] {
        // SAFETY: the caller's.
        let halves = V::load_halves(unsafe { &*at.cast() });
        std::array::from_fn(|n| halves[n])
    }
}

/// A tile of the result, and where its factors are.
#[derive(Clone, Copy)]
pub(super) struct Tile<C> {
    pub(super) steps: usize,
    pub(super) left: Rows,
    /// The first element and the distance of steps.
    pub(super) right: (*const f32, usize),
    /// Until `near` a step asks for memory [`ahead`] steps on, from then on for the steps from `next` on.
    pub(super) near: usize,
    pub(super) next: *const f32,
    pub(super) to: *mut f32,
    pub(super) stride: usize,
    pub(super) width: usize,
    /// The sums are added to what is there.
    pub(super) adds: bool,
    pub(super) held: C,
}

/// Steps from a request of memory to its use, of `vectors` each.
pub(super) const fn ahead(vectors: usize) -> usize {
    const VECTORS: usize = 144;
    VECTORS / vectors
}

impl<C: Columns> Tile<C> {
    /// The same tile of columns that are held otherwise.
    pub(super) fn held_as<D>(self, held: D) -> Tile<D> {
        let Self { steps, left, right, near, next, to, stride, width, adds, held: _ } = self;
        Tile { steps, left, right, near, next, to, stride, width, adds, held }
    }

    /// Computes `height` rows of `vectors` vectors.
    ///
    /// # Safety
    /// The left factor holds `height` rows of `steps` steps, the right one steps of `vectors` vectors; `to` are `height`
    /// rows of `width` elements that nobody else writes.
    #[inline(always)]
    pub(super) unsafe fn compute<V: Lanes>(self, height: usize, vectors: usize) {
        // SAFETY: the caller's.
        unsafe {
            match (V::REGISTERS, vectors) {
                (_, 1) => self.of_height::<V, 1>(height),
                (1, 2) => self.of_height::<V, 2>(height),
                (1, 3) => self.of_height::<V, 3>(height),
                _ => unreachable!("a tile of `largest`"),
            }
        }
    }

    /// # Safety
    /// That of [`Tile::compute`] for `N` vectors.
    #[inline(always)]
    pub(super) unsafe fn of_height<V: Lanes, const N: usize>(self, height: usize) {
        // SAFETY: the caller's.
        unsafe {
            match height {
                1 => self.sums::<V, 1, N>(),
                2 => self.sums::<V, 2, N>(),
                3 => self.sums::<V, 3, N>(),
                4 => self.sums::<V, 4, N>(),
                5 => self.sums::<V, 5, N>(),
                6 => self.sums::<V, 6, N>(),
                7 => self.sums::<V, 7, N>(),
                _ => self.sums::<V, 8, N>(),
            }
        }
    }

    /// # Safety
    /// That of [`Tile::compute`] for `R` rows and `N` vectors.
    #[inline(always)]
    unsafe fn sums<V: Lanes, const R: usize, const N: usize>(self) {
        let (Rows { first: x, row_stride, step_stride }, (w, far)) = (self.left, self.right);
        let mut sums = [[V::splat(0.0); N]; R];
        let mut asked = w.wrapping_add(ahead(N) * far);
        for step in 0..self.steps {
            if step == self.near {
                asked = self.next;
            }
            for n in 0..N {
                V::prefetch(asked.wrapping_add(n * WIDTH), Level::First);
            }
            asked = asked.wrapping_add(far);
            // SAFETY: the caller's.
            let w: [V; N] = unsafe { self.held.load(step, w.add(step * far)) };
            for r in 0..R {
                let x = x.wrapping_add(r * row_stride + step * step_stride);
                // SAFETY: the caller's.
                let factor = V::splat(unsafe { *x });
                for n in 0..N {
                    sums[r][n] = sums[r][n].add_product(factor, w[n]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            // SAFETY: the caller's.
            let to =
                unsafe { std::slice::from_raw_parts_mut(self.to.add(r * self.stride), self.width) };
            for (to, sum) in to.chunks_mut(WIDTH).zip(sums) {
                let sum = if self.adds { V::load_part(to).add(sum) } else { sum };
                sum.store_part(to);
            }
        }
    }
}
