//! The arithmetic of launches: grids, tiles, shared memory. Pure functions of shapes and tables.

use hapo_kernels::{AttentionShape, CacheRow, SegmentRow};

use crate::launch::THREADS;

/// A number that a kernel takes in 32 bits, or a grid's limit, is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) what: &'static str,
    pub(crate) got: usize,
    pub(crate) limit: usize,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}, the limit is {}", self.got, self.what, self.limit)
    }
}

/// Shared memory that every kernel may use without asking, the system's own share included.
const ALWAYS_SHARED: u32 = 48 * 1024;

/// Shared memory to allow before a launch of a kernel with `fixed` bytes of its own and `asked` more, out of `limit`
/// bytes per block; `None` if the default 48 KiB suffice.
pub(crate) fn shared_to_allow(asked: u32, fixed: u32, limit: u32) -> Result<Option<u32>, TooLarge> {
    if asked + fixed <= ALWAYS_SHARED {
        return Ok(None);
    }
    let limit = limit.saturating_sub(fixed);
    if asked > limit {
        let (got, limit) = (asked as usize, limit as usize);
        return Err(TooLarge { what: "bytes of shared memory", got, limit });
    }
    Ok(Some(asked))
}

pub(crate) fn narrow(what: &'static str, n: usize) -> Result<u32, TooLarge> {
    u32::try_from(n).map_err(|_| TooLarge { what, got: n, limit: u32::MAX as usize })
}

/// Blocks of a grid in y.
pub(crate) const MOST_IN_Y: usize = 65_535;

/// A grid within CUDA's limits: 2³¹ − 1 blocks in x, 65,535 in y and z.
pub(crate) fn grid(x: usize, y: usize, z: usize) -> Result<[u32; 3], TooLarge> {
    let checked = |what, n: usize, limit: usize| {
        if n > limit { Err(TooLarge { what, got: n, limit }) } else { Ok(n as u32) }
    };
    Ok([
        checked("blocks in x", x, i32::MAX as usize)?,
        checked("blocks in y", y, MOST_IN_Y)?,
        checked("blocks in z", z, 65_535)?,
    ])
}

/// Blocks for `n` elements, one per thread; beyond 2¹⁶ blocks threads take several.
pub(crate) fn elements(n: usize) -> [u32; 3] {
    [n.div_ceil(THREADS as usize).clamp(1, 1 << 16) as u32, 1, 1]
}

/// Of a norm's kernels for narrow and for wide rows those for a width, and the blocks of so many rows: a row of up to
/// 512 numbers has a warp, a longer one a block.
pub(crate) fn norm_rows<T>(width: usize, rows: usize, [narrow, wide]: [T; 2]) -> (T, usize) {
    if width <= 512 { (narrow, rows.div_ceil(THREADS as usize / 32)) } else { (wide, rows) }
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

/// Elements that a block of `squared_norms` takes.
pub(crate) const PER_BLOCK: usize = 1 << 16;

/// Blocks of a range of numbers, as first elements and counts.
pub(crate) fn blocks_of_range(first: usize, len: usize) -> Vec<[u64; 2]> {
    let block = |at| [(first + at) as u64, PER_BLOCK.min(len - at) as u64];
    (0..len).step_by(PER_BLOCK).map(block).collect()
}

/// Tokens whose weights a draw adds up at a time.
const DRAW_BLOCK: usize = 256;

/// Bytes of shared memory of a draw from `usable` tokens: a sum for each block of them.
pub(crate) fn draw_bytes(usable: usize) -> u32 {
    reduction_bytes(8) + (usable.div_ceil(DRAW_BLOCK) * 8) as u32
}

/// The kernels of attention for heads of up to one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionPlan {
    /// Forward, for the gradients of queries, and of keys and values.
    pub(crate) kernels: [&'static str; 3],
    /// Bytes of shared memory of each.
    pub(crate) shared: [u32; 3],
    /// Queries of a block of the first two, and of those that the third works on at a time.
    pub(crate) queries: [usize; 3],
    /// Keys of a block of the third.
    pub(crate) keys: usize,
    /// The tensor cores' kernel to decode, and its bytes.
    pub(crate) decode: Option<(&'static str, u32)>,
}

/// The tensor cores' queries of a block, forward and for their gradient.
const TILE_QUERIES: usize = 128;
/// Their keys that are worked on at a time, and of a block of their gradient.
const TILE_KEYS: usize = 64;
/// Their queries that pass by a block of keys at a time.
const TILE_STAGE: usize = 32;
/// Their query heads of a block in decoding.
pub(crate) const TILE_HEADS: usize = 16;

/// A width, and the kernels made for it.
macro_rules! kernels {
    ($name:literal, $width:literal) => {
        (
            $width,
            [
                concat!($name, "_", $width),
                concat!($name, "_grad_q_", $width),
                concat!($name, "_grad_kv_", $width),
            ],
        )
    };
}

impl AttentionPlan {
    /// The smallest that hold a head; `None` beyond 256.
    pub(crate) fn of(head_dim: usize) -> Option<Self> {
        let widths = [
            kernels!("attention", 32),
            kernels!("attention", 64),
            kernels!("attention", 128),
            kernels!("attention", 256),
        ];
        let (width, kernels) = widths.into_iter().find(|&(width, _)| head_dim <= width)?;
        // Queries and keys of a tile, forward and backward.
        let (t, u) = if width == 256 { (32, 16) } else { (64, 32) };
        // Queries, keys or values, probabilities.
        let forward = 4 * (2 * t * (width + 1) + t * (t + 1));
        // Four tiles of rows, two of scores, two numbers per query.
        let backward = 4 * (4 * u * (width + 1) + 2 * u * (u + 1) + 2 * u);
        let shared = [forward, backward, backward].map(|it| it as u32);
        Some(Self { kernels, shared, queries: [t, u, u], keys: u, decode: None })
    }

    /// The smallest of the tensor cores, for numbers in bf16.
    pub(crate) fn of_tensor_cores(shape: AttentionShape) -> Option<Self> {
        let widths = [
            (kernels!("attention_tiles", 32), "attention_tiles_decode_32"),
            (kernels!("attention_tiles", 64), "attention_tiles_decode_64"),
            (kernels!("attention_tiles", 128), "attention_tiles_decode_128"),
        ];
        let fits = |width| shape.fits_tensor_cores() && shape.head_dim <= width;
        let ((width, kernels), decode) = widths.into_iter().find(|&((it, _), _)| fits(it))?;
        // Rows are longer by eight numbers.
        let row = (width + 8) * size_of::<u16>();
        // Keys and values of two stages.
        let forward = 2 * 2 * TILE_KEYS * row;
        // These, queries and their outputs' gradients of two stages, and two numbers of each query.
        let of_keys = (2 * TILE_KEYS + 2 * 2 * TILE_STAGE) * row + 2 * 2 * TILE_STAGE * 4;
        // As forward, and of every head two numbers for each key, in f32 and bf16, and one for each warp; of every key
        // two addresses in each stage.
        let of_head = (TILE_KEYS + 8) * 6 + THREADS as usize / 32 * 4;
        let to_decode = forward + TILE_HEADS * of_head + 2 * 2 * TILE_KEYS * 8;
        Some(Self {
            kernels,
            shared: [forward, forward, of_keys].map(|it| it as u32),
            queries: [TILE_QUERIES, TILE_QUERIES, TILE_STAGE],
            keys: TILE_KEYS,
            decode: Some((decode, to_decode as u32)),
        })
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

const CHUNK_QUERIES: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyChunks {
    /// `[row, rows, first segment, end segment, first tile of queries, end, part]`: a tile of keys and a part of the
    /// queries that see it. The segments are those of the prefix group, which are adjacent. Those with the most tiles
    /// of queries come first.
    pub(crate) chunks: Vec<u32>,
    /// `[row, rows, first part, end part]` of every tile of keys.
    pub(crate) tiles: Vec<u32>,
    pub(crate) parts: usize,
}

/// Tiles of `tile` keys, each with the queries that see it, in tiles of `queries`, in chunks. Every response of a group
/// sees a prompt's tile, so one block for all of them would hold up the backward pass.
pub(crate) fn key_chunks(segments: &[SegmentRow], tile: usize, queries: usize) -> KeyChunks {
    let most = (CHUNK_QUERIES / queries) as u32;
    let (mut chunks, mut all): (Vec<[u32; 7]>, KeyChunks) = (Vec::new(), KeyChunks::default());
    let mut first = 0;
    for prefix_group in segments.chunk_by(|a, b| a.prefix_group == b.prefix_group) {
        let end = first + prefix_group.len() as u32;
        for segment in prefix_group {
            for at in (0..segment.len).step_by(tile) {
                let row = segment.start + at;
                let rows = (segment.len - at).min(tile as u32);
                let seen: u32 =
                    prefix_group.iter().map(|it| tiles_of(it, row, rows, queries)).sum();
                let first_part = all.parts as u32;
                for from in (0..seen).step_by(most as usize) {
                    let to = seen.min(from + most);
                    chunks.push([row, rows, first, end, from, to, all.parts as u32]);
                    all.parts += 1;
                }
                all.tiles.extend([row, rows, first_part, all.parts as u32]);
            }
        }
        first = end;
    }
    chunks.sort_by_key(|it| std::cmp::Reverse(it[5] - it[4]));
    all.chunks = chunks.concat();
    all
}

pub(crate) fn key_tiles(segments: &[SegmentRow], tile: usize) -> usize {
    segments.iter().map(|it| (it.len as usize).div_ceil(tile)).sum()
}

/// Tiles of queries of a segment that see some of the keys at packed rows, counted as the kernel goes through them.
fn tiles_of(segment: &SegmentRow, row: u32, rows: u32, tile: usize) -> u32 {
    let meets = |start: u32, len: u32| row < start + len && row + rows > start;
    let first = if meets(segment.prefix_start, segment.prefix_len) {
        0
    } else if meets(segment.start, segment.len) {
        row.saturating_sub(segment.start) / tile as u32 * tile as u32
    } else {
        return 0;
    };
    (segment.len - first).div_ceil(tile as u32)
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
    pub(crate) ids: Vec<u32>,
    pub(crate) starts: Vec<u32>,
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
        assert_eq!(norm_rows(128, 17, ["narrow", "wide"]), ("narrow", 3));
        assert_eq!(norm_rows(896, 17, ["narrow", "wide"]), ("wide", 17));
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
            let (_, width) = plan.kernels[0].rsplit_once('_').unwrap();
            assert!(width.parse::<usize>().unwrap() >= head_dim);
            assert!(plan.shared.into_iter().all(|it| it <= LEAST_SHARED), "{plan:?}");
        }
        assert_eq!(AttentionPlan::of(257), None);
        assert_eq!(AttentionPlan::of(128).unwrap().shared, [82_688, 74_752, 74_752]);
    }

    #[test]
    fn tensor_cores_take_heads_of_whole_16_bytes() {
        let of = |head_dim| AttentionPlan::of_tensor_cores(AttentionShape::new(1, 1, head_dim));
        let kernel = |head_dim| of(head_dim).map(|it| it.kernels[0]);
        assert_eq!(kernel(16), Some("attention_tiles_32"));
        assert_eq!(kernel(80), Some("attention_tiles_128"));
        assert_eq!((kernel(20), kernel(192)), (None, None));
        let largest = of(128).unwrap();
        assert_eq!(largest.shared, [69_632, 69_632, 70_144]);
        // The queries lie where the second stage comes to lie, and half of the keys' gradients where queries lay.
        assert_eq!(TILE_QUERIES * (128 + 8) * 2, largest.shared[0] as usize / 2);
        const { assert!(TILE_KEYS * 128 * 4 <= 2 * 2 * TILE_STAGE * (128 + 8) * 2) };
        assert_eq!(largest.decode, Some(("attention_tiles_decode_128", 79_104)));
        assert!(largest.shared[2].max(79_104) <= LEAST_SHARED);
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
        // Of the first segment rows 0..4 are seen by its two tiles of queries and one of the second's, row 4 by one of
        // each; the other two by themselves.
        let found = key_chunks(&segments, 4, 4);
        assert_eq!(
            found.chunks.as_chunks::<7>().0,
            [
                [0, 4, 0, 2, 0, 3, 0],
                [4, 1, 0, 2, 0, 2, 1],
                [5, 3, 0, 2, 0, 1, 2],
                [8, 4, 2, 3, 0, 1, 3]
            ]
        );
        assert_eq!(found.tiles, [0, 4, 0, 1, 4, 1, 1, 2, 5, 3, 2, 3, 8, 4, 3, 4]);
        assert_eq!(found.parts, 4);
        // The same keys with tiles of two queries: of the first segment's five rows, rows 0..4 are seen by three tiles of
        // its own and two of the second's.
        let found = key_chunks(&segments, 4, 2);
        assert_eq!(found.chunks[..7], [0, 4, 0, 2, 0, 5, 0]);
        assert!(query_tiles(&[], 4).is_empty());
        assert_eq!(key_chunks(&[], 4, 4), KeyChunks::default());
    }

    #[test]
    fn a_prompt_that_many_responses_see_is_in_chunks_of_equal_work() {
        // Eight responses of 1,000 tokens on a prompt of 200.
        let mut segments = vec![segment(0, 200, (0, 0), 0)];
        segments.extend((0..8).map(|i| segment(200 + 1000 * i, 1000, (0, 200), 0)));
        let found = key_chunks(&segments, 32, 32);
        let chunks = found.chunks.as_chunks::<7>().0;
        let most = chunks.iter().map(|it| it[5] - it[4]).max();
        assert_eq!(most, Some(128), "4,096 queries");
        // Seven tiles of the prompt and 8 times 32 of the responses. The prompt's first tile is seen by 7 + 8 * 32
        // tiles of queries.
        assert_eq!(found.tiles.len() / 4, 7 + 8 * 32);
        let of_first: Vec<_> =
            chunks.iter().filter(|it| it[0] == 0).map(|it| (it[4], it[5])).collect();
        assert_eq!(of_first, [(0, 128), (128, 256), (256, 263)]);
        let parts: Vec<u32> = chunks.iter().map(|it| it[6]).collect();
        let mut sorted = parts.clone();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            (0..found.parts as u32).collect::<Vec<_>>(),
            "each part is written once"
        );
    }

    #[test]
    fn ranges_are_cut_from_their_own_beginning() {
        assert_eq!(blocks_of_range(5, 65_537), [[5, 65_536], [65_541, 1]]);
        assert!(blocks_of_range(9, 0).is_empty());
    }

    #[test]
    fn a_draw_of_the_largest_vocabularies_fits() {
        assert_eq!(draw_bytes(151_936), 64 + 594 * 8);
        assert!(draw_bytes(1_000_000) < 48 * 1024);
    }

    #[test]
    fn shared_memory_is_allowed_where_it_is_needed() {
        assert_eq!(shared_to_allow(48 * 1024, 0, 232_448), Ok(None));
        // Hopper's system takes a kilobyte of every block.
        assert_eq!(shared_to_allow(48 * 1024, 1024, 232_448), Ok(Some(48 * 1024)));
        assert_eq!(shared_to_allow(82_688, 1024, 232_448), Ok(Some(82_688)));
        assert_eq!(shared_to_allow(231_424, 1024, 232_448), Ok(Some(231_424)));
        let refused = shared_to_allow(232_448, 1024, 232_448).unwrap_err();
        assert_eq!(refused.to_string(), "232448 bytes of shared memory, the limit is 231424");
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
