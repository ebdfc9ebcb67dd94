//! The arithmetic of launches: grids, tiles, shared memory. Pure functions of shapes and tables.

use hapo_kernels::{CacheRow, SegmentRow};

use crate::launch::THREADS;

/// A number that a kernel takes in 32 bits, or a grid's limit, is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) what: &'static str,
    pub(crate) got: usize,
    pub(crate) limit: usize,
}

/// `n` in 32 bits.
pub(crate) fn narrow(what: &'static str, n: usize) -> Result<u32, TooLarge> {
    u32::try_from(n).map_err(|_| TooLarge { what, got: n, limit: u32::MAX as usize })
}

/// A grid within CUDA's limits: 2³¹ − 1 blocks in x, 65,535 in y and z.
pub(crate) fn grid(x: usize, y: usize, z: usize) -> Result<[u32; 3], TooLarge> {
    let checked = |what, n: usize, limit: usize| {
        if n > limit { Err(TooLarge { what, got: n, limit }) } else { Ok(n as u32) }
    };
    Ok([
        checked("blocks in x", x, i32::MAX as usize)?,
        checked("blocks in y", y, 65_535)?,
        checked("blocks in z", z, 65_535)?,
    ])
}

/// Blocks for `n` elements, one per thread; beyond 2¹⁶ blocks threads take several.
pub(crate) fn elements(n: usize) -> [u32; 3] {
    [n.div_ceil(THREADS as usize).clamp(1, 1 << 16) as u32, 1, 1]
}

/// How rows of a norm are laid on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// A warp each.
    Warp,
    /// A block each.
    Block,
}

impl Rows {
    pub(crate) fn of(width: usize) -> Self {
        if width <= 512 { Rows::Warp } else { Rows::Block }
    }

    pub(crate) fn blocks(self, rows: usize) -> usize {
        match self {
            Rows::Warp => rows.div_ceil(THREADS as usize / 32),
            Rows::Block => rows,
        }
    }
}

/// Bytes in which a block reduces f32, or f64 where `size` is 8.
pub(crate) fn reduction_bytes(size: u32) -> u32 {
    THREADS / 32 * size
}

/// How rows are cut for sums over them: rows of a part, and the number of parts, at most 256.
pub(crate) fn column_parts(rows: usize) -> (usize, usize) {
    let per_part = rows.div_ceil(256).max(64);
    (per_part, rows.div_ceil(per_part))
}

/// Elements that a block of `squared_norm` and of `find_wider` takes.
pub(crate) const PER_BLOCK: usize = 1 << 16;

/// Tiles of the attention kernels of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionPlan {
    /// Columns the kernels are made for.
    pub(crate) width: usize,
    /// Queries and keys of a tile, forward.
    pub(crate) forward: usize,
    /// And backward.
    pub(crate) backward: usize,
    pub(crate) kernels: [&'static str; 3],
}

impl AttentionPlan {
    /// The smallest kernel that holds a head; `None` beyond 256.
    pub(crate) fn of(head_dim: usize) -> Option<Self> {
        const PLANS: [AttentionPlan; 4] = [
            AttentionPlan {
                width: 32,
                forward: 64,
                backward: 32,
                kernels: ["attention_32", "attention_grad_q_32", "attention_grad_kv_32"],
            },
            AttentionPlan {
                width: 64,
                forward: 64,
                backward: 32,
                kernels: ["attention_64", "attention_grad_q_64", "attention_grad_kv_64"],
            },
            AttentionPlan {
                width: 128,
                forward: 64,
                backward: 32,
                kernels: ["attention_128", "attention_grad_q_128", "attention_grad_kv_128"],
            },
            AttentionPlan {
                width: 256,
                forward: 32,
                backward: 16,
                kernels: ["attention_256", "attention_grad_q_256", "attention_grad_kv_256"],
            },
        ];
        PLANS.into_iter().find(|it| head_dim <= it.width)
    }

    /// Bytes of shared memory, forward: queries, keys or values, probabilities.
    pub(crate) fn forward_bytes(self) -> u32 {
        let (t, d) = (self.forward, self.width);
        (4 * (2 * t * (d + 1) + t * (t + 1))) as u32
    }

    /// Bytes of shared memory, backward: four tiles of rows, two of scores, two numbers per query.
    pub(crate) fn backward_bytes(self) -> u32 {
        let (t, d) = (self.backward, self.width);
        (4 * (4 * t * (d + 1) + 2 * t * (t + 1) + 2 * t)) as u32
    }
}

/// Tiles of `tile` queries as `[segment, first query]`, those with the most keys first: the GPU works
/// through them in this order, which changes no bits.
pub(crate) fn query_tiles(segments: &[SegmentRow], tile: usize) -> Vec<u32> {
    let mut tiles: Vec<[u32; 2]> = Vec::new();
    for (index, segment) in (0..).zip(segments) {
        tiles.extend((0..segment.len).step_by(tile).map(|first| [index, first]));
    }
    tiles.sort_by_key(|&[index, first]| {
        std::cmp::Reverse(u64::from(segments[index as usize].prefix_len) + u64::from(first))
    });
    tiles.concat()
}

/// Tiles of `tile` keys as `[row, rows, first segment, end segment]`, those seen by the most queries
/// first. The segments are those of the prefix group, which are adjacent.
pub(crate) fn key_tiles(segments: &[SegmentRow], tile: usize) -> Vec<u32> {
    let mut tiles: Vec<(u64, [u32; 4])> = Vec::new();
    let mut first = 0;
    for prefix_group in segments.chunk_by(|a, b| a.prefix_group == b.prefix_group) {
        let end = first + prefix_group.len() as u32;
        for segment in prefix_group {
            for at in (0..segment.len).step_by(tile) {
                let row = segment.start + at;
                let rows = (segment.len - at).min(tile as u32);
                let seen = prefix_group.iter().map(|it| queries_of(it, row)).sum();
                tiles.push((seen, [row, rows, first, end]));
            }
        }
        first = end;
    }
    tiles.sort_by_key(|it| std::cmp::Reverse(it.0));
    tiles.into_iter().flat_map(|it| it.1).collect()
}

/// Queries of a segment that see the key at a packed row.
fn queries_of(segment: &SegmentRow, row: u32) -> u64 {
    let inside = |start: u32, len: u32| (start..start + len).contains(&row);
    u64::from(if inside(segment.prefix_start, segment.prefix_len) {
        segment.len
    } else if inside(segment.start, segment.len) {
        segment.start + segment.len - row
    } else {
        0
    })
}

/// Positions of a part of a decoded row's context.
pub(crate) const DECODE_PART: usize = 256;
/// Query heads of a block in decoding.
pub(crate) const DECODE_GROUP: usize = 8;

/// Parts of the longest context among `rows`, each row's own key included.
pub(crate) fn decode_parts(rows: &[CacheRow]) -> usize {
    rows.iter().map(|it| it.positions().div_ceil(DECODE_PART)).max().unwrap_or(0)
}

/// Bytes of shared memory of a decoding block: queries, exponentials, partial sums.
pub(crate) fn decode_bytes(head_dim: usize) -> u32 {
    let chains = THREADS as usize / head_dim;
    (4 * (DECODE_GROUP * head_dim
        + DECODE_GROUP * DECODE_PART
        + (chains * DECODE_GROUP * head_dim).max(THREADS as usize / 32))) as u32
}

/// Rows of every token id, for the gradient of the embedding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenGroups {
    /// Distinct ids, ascending.
    pub(crate) ids: Vec<u32>,
    /// Where the rows of each begin, and the end.
    pub(crate) starts: Vec<u32>,
    /// Rows, ascending within an id.
    pub(crate) rows: Vec<u32>,
}

pub(crate) fn token_groups(tokens: &[u32]) -> TokenGroups {
    let mut rows: Vec<u32> = (0..tokens.len() as u32).collect();
    rows.sort_by_key(|&row| tokens[row as usize]);
    let mut groups = TokenGroups::default();
    for (at, &row) in (0..).zip(&rows) {
        let id = tokens[row as usize];
        if groups.ids.last() != Some(&id) {
            groups.ids.push(id);
            groups.starts.push(at);
        }
    }
    groups.starts.push(tokens.len() as u32);
    groups.rows = rows;
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory a block may ask for on every GPU since Ampere, consumer GPUs included.
    const LEAST_SHARED: u32 = 99 * 1024;

    #[test]
    fn grids_end_at_their_limits() {
        assert_eq!(grid(7, 65_535, 1), Ok([7, 65_535, 1]));
        assert!(grid(1 << 31, 1, 1).is_err());
        assert!(grid(1, 65_536, 1).is_err());
        assert!(grid(1, 1, 65_536).is_err());
        assert!(narrow("rows", 1 << 32).is_err());
        assert_eq!(narrow("rows", (1 << 32) - 1), Ok(u32::MAX));
    }

    #[test]
    fn elements_never_make_an_empty_grid() {
        assert_eq!(elements(0), [1, 1, 1]);
        assert_eq!(elements(256), [1, 1, 1]);
        assert_eq!(elements(257), [2, 1, 1]);
        assert_eq!(elements(1 << 40), [1 << 16, 1, 1]);
    }

    #[test]
    fn rows_of_norms() {
        assert_eq!(Rows::of(128).blocks(17), 3);
        assert_eq!(Rows::of(896).blocks(17), 17);
        assert_eq!(reduction_bytes(8), 64);
    }

    #[test]
    fn parts_of_columns_cover_all_rows_and_are_few() {
        for rows in [1, 63, 64, 65, 16_384, 16_385, 131_072, 10_000_000] {
            let (per_part, parts) = column_parts(rows);
            assert!(parts <= 256 && (parts - 1) * per_part < rows && parts * per_part >= rows);
        }
        assert_eq!(column_parts(0).1, 0);
    }

    #[test]
    fn attention_fits_the_smallest_gpu() {
        for head_dim in [2, 16, 32, 48, 64, 80, 96, 128, 192, 256] {
            let plan = AttentionPlan::of(head_dim).unwrap();
            assert!(plan.width >= head_dim);
            assert!(plan.forward_bytes() <= LEAST_SHARED, "{plan:?}");
            assert!(plan.backward_bytes() <= LEAST_SHARED, "{plan:?}");
        }
        assert_eq!(AttentionPlan::of(257), None);
        assert_eq!(AttentionPlan::of(128).unwrap().forward_bytes(), 82_688);
        assert_eq!(AttentionPlan::of(128).unwrap().backward_bytes(), 74_752);
    }

    #[test]
    fn decoding_fits_without_asking_for_more() {
        for head_dim in 1..=256 {
            assert!(decode_bytes(head_dim) <= 48 * 1024, "{head_dim}");
        }
    }

    fn segment(start: u32, len: u32, prefix: (u32, u32), prefix_group: u32) -> SegmentRow {
        SegmentRow { start, len, prefix_start: prefix.0, prefix_len: prefix.1, prefix_group }
    }

    #[test]
    fn tiles_cover_queries_and_keys() {
        let segments =
            [segment(0, 5, (0, 0), 0), segment(5, 3, (0, 5), 0), segment(8, 4, (0, 0), 2)];
        assert_eq!(query_tiles(&segments, 4), [1, 0, 0, 4, 0, 0, 2, 0], "the most keys first");
        assert_eq!(
            key_tiles(&segments, 4),
            // seen by 5 + 3, by 1 + 3, by 4, by 3 queries
            [0, 4, 0, 2, 4, 1, 0, 2, 8, 4, 2, 3, 5, 3, 0, 2]
        );
        assert!(query_tiles(&[], 4).is_empty() && key_tiles(&[], 4).is_empty());
    }

    #[test]
    fn parts_of_decoding() {
        let row = |prompt_len, own_len| CacheRow { first_page: 0, prompt_len, own_len };
        assert_eq!(decode_parts(&[]), 0);
        assert_eq!(decode_parts(&[row(0, 0)]), 1);
        assert_eq!(decode_parts(&[row(200, 55)]), 1);
        assert_eq!(decode_parts(&[row(1, 1), row(200, 56)]), 2);
    }

    #[test]
    fn tokens_keep_their_order_within_an_id() {
        let groups = token_groups(&[7, 2, 7, 7, 2]);
        assert_eq!(groups.ids, [2, 7]);
        assert_eq!(groups.starts, [0, 2, 5]);
        assert_eq!(groups.rows, [1, 4, 0, 2, 3]);
        assert_eq!(token_groups(&[]).starts, [0]);
    }
}
