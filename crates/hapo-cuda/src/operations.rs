//! [`Device`] over a [`Launcher`]: which kernels an operation is, on which grid, with which arguments.

use std::sync::Mutex;

use half::bf16;
use hapo_kernels::{
    Accumulate, Activation, AdamW, Attention, AttentionDecode, AttentionGrad, AttentionShape,
    BufferSize, CacheAppend, Compute, Device, DeviceCaps, DrawRow, DrawnToken, EmbeddingLayout,
    HeadGrad, HeadStats, Heads, MatShape, MomentsMut, NumberFormat, Numbers, Output, Pair, Placed,
    RmsNorm, RmsNormGrad, Rotation, Span, SpanMut, TableItem,
};

use crate::device::{
    CudaBuf, CudaDevice, CudaTable, Derived, Factor, at, at_row, bytes_of, f32_arg, of_format,
    shared_format, to, to_row,
};
use crate::launch::{Launcher, Matrix, Memory, Operation, Product, Result, THREADS};
use crate::plan;
use crate::weight::CudaWeight;

type Read<'a, L> = Span<'a, CudaBuf<L>>;
type Write<'a, L> = SpanMut<'a, CudaBuf<L>>;
type Onto<'a, L> = Accumulate<'a, CudaBuf<L>>;
type Ids<L> = CudaTable<L, u32>;
type Kept<'a, L> = Numbers<'a, CudaBuf<L>, CudaWeight<L>>;

type Out = (Matrix, NumberFormat);

/// Why some operations of the CPU are not here.
const ON_CPU: &str = "a decoder that needs it is refused on a GPU";

impl<L: Launcher> Device for CudaDevice<L> {
    type Buf = CudaBuf<L>;
    type Weight = CudaWeight<L>;
    type Table<T: TableItem> = CudaTable<L, T>;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps::gpu(self.inner.products)
    }

    fn alloc(&self, size: impl Into<BufferSize>, format: NumberFormat) -> Result<CudaBuf<L>> {
        let size = size.into();
        let stride = self.caps().row_stride(size.width, size.room);
        let memory = self.memory(size.rows * stride, format)?;
        Ok(CudaBuf::part(&memory, 0, [size.rows, size.width, stride], format))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.launcher.free_bytes()
    }

    fn peak_bytes(&self) -> Option<u64> {
        self.inner.launcher.peak_bytes()
    }

    fn refused_products(&self) -> Option<u64> {
        self.inner.launcher.refused_products()
    }

    fn table<T: TableItem>(&self, items: &[T]) -> CudaTable<L, T> {
        let pending = self.fault().clone();
        let memory = pending.map_or_else(|| self.upload_items(items), Err);
        if let Err(error) = &memory {
            self.fault().get_or_insert_with(|| error.clone());
        }
        CudaTable { items: items.to_vec(), memory, derived: Mutex::new(Vec::new()) }
    }

    fn upload(&self, src: &[f32], dst: Write<L>) {
        assert_eq!(src.len(), dst.len, "equal lengths");
        self.run(|| match dst.buf.format {
            NumberFormat::F32 => self.put(bytemuck::cast_slice(src), dst.offset, dst.buf),
            NumberFormat::Bf16 => {
                let halves: Vec<bf16> = src.iter().copied().map(bf16::from_f32).collect();
                self.put(bytemuck::cast_slice(&halves), dst.offset, dst.buf)
            }
        });
    }

    fn download(&self, src: Read<L>, dst: &mut [f32]) {
        assert_eq!(src.len, dst.len(), "equal lengths");
        self.run(|| match src.buf.format {
            NumberFormat::F32 => self.get(src.buf, src.offset, bytemuck::cast_slice_mut(dst)),
            NumberFormat::Bf16 => {
                let mut halves = vec![bf16::ZERO; dst.len()];
                self.get(src.buf, src.offset, bytemuck::cast_slice_mut(&mut halves))?;
                dst.iter_mut().zip(halves).for_each(|(to, half)| *to = half.to_f32());
                Ok(())
            }
        });
        if self.fault().is_some() {
            // Old contents must not pass for the result.
            dst.fill(f32::NAN);
        }
    }

    fn copy(&self, src: Read<L>, dst: Write<L>) {
        assert_eq!(src.len, dst.len, "equal lengths");
        let bytes = bytes_of(src, &dst);
        let copy = Operation::Copy { from: at_row(src), to: to_row(&dst), bytes };
        self.run(|| self.begin(copy));
    }

    fn fill(&self, dst: Write<L>, value: f32) {
        assert_eq!(dst.buf.format, NumberFormat::F32, "f32 numbers");
        self.run(|| self.over("fill", dst.len, &[f32_arg(value), to(&dst)]));
    }

    fn scale(&self, x: Write<L>, factor: f32) {
        assert_eq!(x.buf.format, NumberFormat::F32, "f32 numbers");
        self.run(|| self.over("scale", x.len, &[f32_arg(factor), to(&x)]));
    }

    fn check(&self) -> Result<()> {
        self.fault().take().map_or(Ok(()), Err)
    }

    fn repeated(&self, work: impl FnOnce()) {
        let begun = self.inner.launcher.repeated(work);
        self.run(|| begun);
    }

    fn alloc_beside(
        &self,
        rows: usize,
        widths: &[usize],
        format: NumberFormat,
    ) -> Result<Vec<CudaBuf<L>>> {
        let stride: usize = widths.iter().sum();
        let (memory, mut first) = (self.memory(rows * stride, format)?, 0);
        let part = |&width: &usize| {
            let part = CudaBuf::part(&memory, first, [rows, width, stride], format);
            first += width;
            part
        };
        Ok(widths.iter().map(part).collect())
    }

    // Behind a row of x lies the s·(x·A) of every pair, and behind the rows of W its B: one product of a longer inner
    // dimension adds up both, and rounds once.
    fn product(
        &self,
        x: Read<L>,
        _: Option<&mut CudaBuf<L>>,
        to: Vec<Output<'_, CudaBuf<L>, CudaWeight<L>>>,
    ) {
        let inputs = to[0].shape.inputs;
        let (stride, mut k, mut lows) = (x.buf.stride(inputs), inputs, Vec::new());
        for Output { shape, weight, pair, .. } in &to {
            let Some(Pair { a, b, rank, scale }) = *pair else { continue };
            let at = at_row(x) + (k * x.buf.format.bytes()) as u64;
            let (out, onto) = ((plain(at, stride), x.buf.format), Accumulate::Multiplied(scale));
            let shape = MatShape { outputs: rank, ..*shape };
            lows.push((a, Self::forward(shape, x, a, &onto, out)));
            assert!(b.lies_behind(weight, k), "a pair for each of the products");
            k += rank;
        }
        assert!(k <= stride, "room for x·A behind the rows of x");
        self.products(lows, x);
        let product = |it: &Output<'_, CudaBuf<L>, _>| {
            let out = Self::out(it.shape, &it.y);
            Product { k, ..Self::forward(it.shape, x, it.weight, &it.onto, out) }
        };
        self.products(to.iter().map(|it| (it.weight, product(it))), x);
    }

    fn product_input_grad(
        &self,
        MatShape { rows, inputs, outputs }: MatShape,
        dy: Read<L>,
        w: &CudaWeight<L>,
        onto: Onto<L>,
        dx: Write<L>,
    ) {
        assert_eq!(dy.len, rows * outputs, "dy is [rows, outputs]");
        assert_eq!(dx.len, rows * inputs, "dx is [rows, inputs]");
        // By columns: dxᵀ = wᵀ · dyᵀ.
        let left = w.for_product(MatShape { rows, inputs, outputs });
        let right = plain(at_row(dy), dy.buf.stride(outputs));
        let out = (plain(to_row(&dx), dx.buf.stride(inputs)), dx.buf.format);
        let product = by_columns([inputs, rows, outputs], left, right, &onto, out);
        self.run(|| self.product(product, Factor::Numbers(w.all()), Factor::Again(dy)));
    }

    fn product_weight_grad(
        &self,
        shape: MatShape,
        x: Read<L>,
        dy: Read<L>,
        onto: Onto<L>,
        dw: Write<L>,
    ) {
        let MatShape { rows, inputs, outputs } = shape;
        assert_eq!(x.len, rows * inputs, "x is [rows, inputs]");
        assert_eq!(dy.len, rows * outputs, "dy is [rows, outputs]");
        assert_eq!(dw.len, inputs * outputs, "dw is [outputs, inputs]");
        // By columns: dwᵀ = xᵀ · dy.
        let left = plain(at_row(x), x.buf.stride(inputs));
        let right = plain(at_row(dy), dy.buf.stride(outputs));
        let right = Matrix { transposed: true, ..right };
        let out = (plain(to(&dw), inputs), dw.buf.format);
        let product = by_columns([inputs, outputs, rows], left, right, &onto, out);
        self.run(|| self.product(product, Factor::Numbers(x), Factor::Again(dy)));
    }

    fn add_column_sums(&self, width: usize, dy: Read<L>, out: Write<L>) {
        assert!(
            out.len == width && dy.len.is_multiple_of(width),
            "dy is [rows, width], out [width]"
        );
        let numbers = (dy.buf.format, [at(dy), 0, 0]);
        self.run(|| self.column_sums(dy.len / width, width, numbers, to(&out)));
    }

    fn add(&self, _: f32, _: Read<L>, _: Write<L>) {
        unreachable!("{ON_CPU}");
    }

    fn rms_norm(&self, it: RmsNorm<Self>) {
        let RmsNorm { eps, offset, x, w, y, inverse_rms, residual } = it;
        let (width, rows) = (w.len, inverse_rms.len);
        assert!(offset == 0.0, "{ON_CPU}");
        assert!(x.len == rows * width && y.len == rows * width, "x and y are [rows, width]");
        let residual = residual.map_or(0, |it| {
            assert_eq!(it.len, rows * width, "residual is [rows, width]");
            to(&it)
        });
        self.run(|| {
            let narrow = ["rms_norm_narrow", "rms_norm_narrow_bf16"];
            let wide = ["rms_norm_wide", "rms_norm_wide_bf16"];
            let (kernels, blocks) = plan::norm_rows(width, rows, [narrow, wide]);
            let kernel = of_format(y.buf.format, kernels);
            let (rows, columns) = (self.word("rows", rows)?, self.word("columns", width)?);
            let stride = self.word("columns", y.buf.stride(width))?;
            let (eps, inverse) = (f32_arg(eps), to(&inverse_rms));
            let args = [rows, columns, eps, at(x), at(w), to_row(&y), stride, inverse, residual];
            self.launch(kernel, self.grid(blocks, 1, 1)?, plan::reduction_bytes(4), &args)
        });
    }

    fn rms_norm_grad(&self, it: RmsNormGrad<Self>) {
        let RmsNormGrad { offset, x, w, inverse_rms, dy, onto, dx, dw } = it;
        let (width, rows) = (w.len, inverse_rms.len);
        assert!(offset == 0.0, "{ON_CPU}");
        assert!(
            x.len == rows * width && dy.len == x.len && dx.len == x.len,
            "x, dy and dx are [rows, width]"
        );
        assert_eq!(dw.len, width, "dw is [width]");
        self.run(|| {
            let format = shared_format([dy.buf, &*dx.buf]);
            let numbers = (format, [at(dy), at(x), at(inverse_rms)]);
            self.column_sums(rows, width, numbers, to(&dw))?;
            let narrow = ["rms_norm_grad_narrow", "rms_norm_grad_narrow_bf16"];
            let wide = ["rms_norm_grad_wide", "rms_norm_grad_wide_bf16"];
            let (kernels, blocks) = plan::norm_rows(width, rows, [narrow, wide]);
            let kernel = of_format(format, kernels);
            let (rows, columns) = (self.word("rows", rows)?, self.word("columns", width)?);
            let add = u64::from(matches!(onto, Accumulate::Existing));
            let args = [rows, columns, add, at(x), at(w), at(inverse_rms), at(dy), to(&dx)];
            self.launch(kernel, self.grid(blocks, 1, 1)?, plan::reduction_bytes(4), &args)
        });
    }

    fn rope(&self, Rotation { shape, angles, positions, heads }: Rotation<Self>) {
        assert!(shape.rotated == shape.head_dim, "{ON_CPU}");
        let (direction, both) = match heads {
            Heads::Stored { from, to } => {
                return self.store_heads(shape, at(angles), positions, from, &to);
            }
            Heads::Forward(both) => (1.0, both),
            Heads::Backward(both) => (-1.0, both),
        };
        for x in both {
            self.turn(shape.head_dim, direction, at(angles), positions, &x);
        }
    }

    fn attention(&self, it: Attention<Self>) {
        let Attention { shape, segments, qkv: [q, k, v], out, log_sums } = it;
        assert!(shape.window.is_none(), "{ON_CPU}");
        let rows = log_sums.len / shape.heads;
        shape.expect_rows(rows, &[q.len, out.len], &[k.len, v.len]);
        let format = shared_format([q.buf, k.buf, v.buf, &*out.buf]);
        self.run(|| {
            let plan = self.attention_plan(shape, format)?;
            let tiles = self.query_tiles(segments, plan.queries[0])?;
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let args = [
                Self::table_at(segments)?,
                tiles.memory.address(),
                heads,
                kv_heads,
                head_dim,
                scale,
                at(q),
                at(k),
                at(v),
                to_row(&out),
                self.word("columns", out.buf.stride(shape.q_dim()))?,
                to(&log_sums),
            ];
            let grid = self.grid(tiles.words / 2, shape.heads, 1)?;
            self.launch(plan.kernels[0], grid, plan.shared[0], &args)
        });
    }

    fn attention_grad(&self, it: AttentionGrad<Self>) {
        let AttentionGrad { shape, segments, qkv, out, log_sums, dout, dqkv } = it;
        let ([q, k, v], [dq, dk, dv]) = (qkv, dqkv);
        assert!(shape.window.is_none(), "{ON_CPU}");
        let rows = log_sums.len / shape.heads;
        let of_queries = [q.len, out.len, dout.len, dq.len];
        shape.expect_rows(rows, &of_queries, &[k.len, v.len, dk.len, dv.len]);
        let formats = [q.buf, k.buf, v.buf, out.buf, dout.buf, &*dq.buf, &*dk.buf, &*dv.buf];
        let format = shared_format(formats);
        self.run(|| {
            let tiles = self.attention_plan(shape, format)?;
            let [_, queries, step] = tiles.queries;
            let queries = self.query_tiles(segments, queries)?;
            let keys = self.derived(segments, Derived::KeyChunks(tiles.keys, step), |it| {
                let made = plan::key_chunks(it, tiles.keys, step);
                ([made.tiles, made.chunks].concat(), made.parts)
            })?;
            let key_tiles = plan::key_tiles(&segments.items, tiles.keys);
            let chunks_at = keys.memory.address() + (4 * key_tiles * size_of::<u32>()) as u64;
            let chunks = (keys.words - 4 * key_tiles) / 7;
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let row_heads = rows * shape.heads;
            // A number for each row and head, then the parts of keys' and values' gradients.
            let parts_at = (row_heads * size_of::<f32>()).next_multiple_of(256);
            let part_len = 2 * shape.heads * tiles.keys * shape.head_dim;
            let bytes = parts_at + keys.groups * part_len * size_of::<f32>();
            self.with_scratch(bytes, |deltas| {
                let parts = deltas + parts_at as u64;
                let warps = THREADS as usize / 32;
                let grid = self.grid(row_heads.div_ceil(warps), 1, 1)?;
                let n = self.word("heads of all rows", row_heads)?;
                let stride = self.word("columns", out.buf.stride(shape.q_dim()))?;
                let args = [n, heads, head_dim, at_row(out), stride, at(dout), deltas];
                let kernel = of_format(format, ["attention_deltas", "attention_deltas_bf16"]);
                self.launch(kernel, grid, 0, &args)?;
                let table = Self::table_at(segments)?;
                let numbers = [at(q), at(k), at(v), at(log_sums), deltas, at(dout)];
                let args = |work: u64, to: u64| {
                    [&[table, work, heads, kv_heads, head_dim, scale], &numbers[..], &[to]].concat()
                };
                let of_queries = args(queries.memory.address(), to(&dq));
                let grid = self.grid(queries.words / 2, shape.heads, 1)?;
                self.launch(tiles.kernels[1], grid, tiles.shared[1], &of_queries)?;
                let of_keys = args(chunks_at, parts);
                let grid = self.grid(chunks, shape.heads, 1)?;
                self.launch(tiles.kernels[2], grid, tiles.shared[2], &of_keys)?;
                let work = [keys.memory.address(), tiles.keys as u64];
                let sums = [heads, kv_heads, head_dim, parts, to(&dk), to(&dv)];
                let grid = self.grid(key_tiles, shape.kv_heads, 1)?;
                let kernel = of_format(format, ["attention_add_kv", "attention_add_kv_bf16"]);
                self.launch(kernel, grid, 0, &[&work[..], &sums].concat())
            })
        });
    }

    fn attention_decode(&self, it: AttentionDecode<Self>) {
        let AttentionDecode { shape, layer, rows, pages, cache, qkv: [q, k, v], out } = it;
        assert!(shape.window.is_none(), "{ON_CPU}");
        let n = rows.items.len();
        shape.expect_rows(n, &[q.len, out.len], &[k.len, v.len]);
        if n == 0 {
            return;
        }
        let format = shared_format([q.buf, k.buf, v.buf, &*out.buf]);
        self.run(|| {
            let [heads, kv_heads, head_dim, scale] = Self::shape_args(shape);
            let (table, pages) = (Self::table_at(rows)?, Self::table_at(pages)?);
            let place = [layer.index as u64, layer.count as u64];
            let numbers = [cache.address(), at(q), at(k), at(v)];
            let shape_args = [heads, kv_heads, head_dim, scale];
            let stride = self.word("columns", out.buf.stride(shape.q_dim()))?;
            let args = [&[table, pages], &place[..], &shape_args, &numbers].concat();
            let to = to_row(&out);
            let blocks = |most: usize| shape.kv_heads * shape.group().div_ceil(most);
            // Widths beyond its do not fit into shared memory.
            if let Some((kernel, shared)) = self.attention_plan(shape, format)?.decode {
                let grid = self.grid(n, blocks(plan::TILE_HEADS), 1)?;
                let args = [&args[..], &[to, stride]].concat();
                return self.launch(kernel, grid, shared, &args);
            }
            let parts = plan::decode_parts(&rows.items);
            let bytes = n * shape.heads * parts * (shape.head_dim + 2) * size_of::<f32>();
            self.with_scratch(bytes, |scratch| {
                let grid = self.grid(n, blocks(plan::DECODE_GROUP), parts)?;
                let shared = plan::decode_bytes(shape.head_dim);
                let kernel = of_format(layer.format, ["decode_parts", "decode_parts_rounded"]);
                self.launch(kernel, grid, shared, &[&args[..], &[scratch]].concat())?;
                let args = [table, heads, head_dim, parts as u64, scratch, to, stride];
                self.launch("decode_sum", self.grid(n, shape.heads, 1)?, 0, &args)
            })
        });
    }

    fn cache_append(&self, it: CacheAppend<Self>) {
        let CacheAppend { shape, first, cells, kv: [k, v], cache } = it;
        assert!(
            k.len.is_multiple_of((cells.items.len() * shape.kv_dim()).max(1)) && v.len == k.len,
            "k and v are [layers, cells, kv_heads · head_dim]"
        );
        self.run(|| {
            let (table, n) = (Self::table_at(cells)?, self.word("cells", cells.items.len())?);
            let (index, count) = (first.index as u64, first.count as u64);
            let [_, kv_heads, head_dim, _] = Self::shape_args(shape);
            let args = [table, n, index, count, kv_heads, head_dim, at(k), at(v), cache.address()];
            let kernel = match (shared_format([k.buf, v.buf]), first.format) {
                (NumberFormat::F32, NumberFormat::F32) => "cache_append",
                (NumberFormat::F32, NumberFormat::Bf16) => "cache_append_rounded",
                (NumberFormat::Bf16, NumberFormat::Bf16) => "cache_append_bf16",
                (NumberFormat::Bf16, NumberFormat::F32) => {
                    panic!("a cache of bf16 numbers is in bf16")
                }
            };
            self.over_32(kernel, k.len, &args)
        });
    }

    fn round_to_bf16(&self, x: Write<L>) {
        if x.buf.format == NumberFormat::F32 {
            self.run(|| self.over("round_in_place", x.len, &[to(&x)]));
        }
    }

    fn gated(&self, f: Activation, gate: Read<L>, up: Read<L>, h: Write<L>) {
        assert!(f == Activation::Silu, "{ON_CPU}");
        assert!(gate.len == h.len && up.len == h.len, "equal shapes");
        let format = shared_format([gate.buf, up.buf, &*h.buf]);
        let kernel = of_format(format, ["swiglu", "swiglu_bf16"]);
        let to = (&*h.buf, to_row(&h));
        let of = [(gate.buf, at_row(gate)), (up.buf, at_row(up)), to];
        self.run(|| self.over_fours(kernel, of, h.len));
    }

    fn gated_grad(&self, f: Activation, gate: Write<L>, up: Write<L>, dh: Write<L>) {
        assert!(f == Activation::Silu, "{ON_CPU}");
        assert!(gate.len == dh.len && up.len == dh.len, "equal shapes");
        let format = shared_format([&*gate.buf, &*up.buf, &*dh.buf]);
        let kernel = of_format(format, ["swiglu_grad", "swiglu_grad_bf16"]);
        let of = [&gate, &up, &dh].map(|it| (&*it.buf, to_row(it)));
        self.run(|| self.over_fours(kernel, of, dh.len));
    }

    fn gather_rows(&self, layout: EmbeddingLayout, rows: &Ids<L>, from: Kept<L>, y: Write<L>) {
        let numbers = match from {
            Numbers::Span(it) => it,
            Numbers::Weight(it) => it.all(),
        };
        let kernel = of_format(numbers.buf.format, ["gather_rows", "gather_rows_bf16"]);
        let width = width_of(layout);
        assert_eq!(y.len, rows.items.len() * width, "y is [rows, width]");
        self.run(|| {
            let args = [self.word("columns", width)?, Self::table_at(rows)?, at(numbers), to(&y)];
            self.over_32(kernel, y.len, &args)
        });
    }

    fn embed_grad(&self, layout: EmbeddingLayout, tokens: &Ids<L>, dx: Read<L>, grad: Write<L>) {
        let width = width_of(layout);
        assert_eq!(dx.len, tokens.items.len() * width, "dx is [tokens, width]");
        self.run(|| {
            let groups = self.derived(tokens, Derived::TokenGroups, |it| {
                let groups = plan::token_groups(it);
                let words = [&groups.ids[..], &groups.starts, &groups.rows].concat();
                (words, groups.ids.len())
            })?;
            let ids = groups.memory.address();
            let starts = ids + (groups.groups * size_of::<u32>()) as u64;
            let rows = starts + ((groups.groups + 1) * size_of::<u32>()) as u64;
            let args = [self.word("columns", width)?, ids, starts, rows, at(dx), to(&grad)];
            let grid = self.grid(groups.groups, 1, 1)?;
            self.launch("embed_grad", grid, 0, &args)
        });
    }

    fn scatter_rows(&self, width: usize, rows: &Ids<L>, y: Read<L>, x: Write<L>) {
        assert_eq!(y.len, rows.items.len() * width, "y is [rows, width]");
        self.run(|| {
            self.begin(Operation::Zero { at: to(&x), bytes: x.len * size_of::<f32>() })?;
            let width = self.word("columns", width)?;
            let args = [width, Self::table_at(rows)?, at(y), to(&x)];
            self.over_32("scatter_rows", y.len, &args)
        });
    }

    fn head(&self, it: HeadStats<Self>) {
        let HeadStats { vocabulary, targets, part, logits, stats } = it;
        assert_eq!(logits.len, part.rows * vocabulary, "logits are [rows, vocabulary]");
        assert_eq!(stats.len, targets.items.len() * 6, "stats are [targets, 6]");
        self.run(|| {
            let words = self.word("tokens", vocabulary)?;
            let [row, target] = [part.first_row, part.first_target].map(|it| it as u64);
            let args = [words, row, target, Self::table_at(targets)?, at(logits), to(&stats)];
            let grid = self.grid(part.targets, 1, 1)?;
            self.launch("head", grid, plan::reduction_bytes(8), &args)
        });
    }

    fn head_grad(&self, it: HeadGrad<Self>) {
        let HeadGrad { vocabulary, targets, part, stats, gradients, logits } = it;
        assert_eq!(logits.len, part.rows * vocabulary, "logits are [rows, vocabulary]");
        self.run(|| {
            let words = self.word("tokens", vocabulary)?;
            let of_part = [part.first_row, part.first_target, part.targets].map(|it| it as u64);
            let ([row, target, n], table) = (of_part, Self::table_at(targets)?);
            let args = [words, row, target, n, table, at(stats), at(gradients), to(&logits)];
            self.launch("head_grad", self.grid(part.rows, 1, 1)?, 0, &args)
        });
    }

    fn draw(
        &self,
        vocabulary: usize,
        usable: usize,
        rows: &[DrawRow],
        logits: Read<L>,
    ) -> Vec<DrawnToken> {
        assert!(
            rows.iter().all(|it| (it.row as usize + 1) * vocabulary <= logits.len),
            "logits are [rows, vocabulary]"
        );
        // After a failure no token was drawn; the pass ends with its error.
        let none = DrawnToken { log_prob: f32::NAN, ..DrawnToken::default() };
        let mut drawn = vec![none; rows.len()];
        self.run(|| {
            if rows.is_empty() {
                return Ok(());
            }
            let usable = usable.min(vocabulary);
            let words = [self.word("tokens", vocabulary)?, self.word("tokens", usable)?];
            let table = self.upload_items(rows)?;
            let grid = self.grid(rows.len(), 1, 1)?;
            self.with_scratch(size_of_val(&drawn[..]), |scratch| {
                let args = [words[0], words[1], table.address(), at(logits), scratch];
                self.launch("draw", grid, plan::draw_bytes(usable), &args)?;
                self.inner.launcher.download(scratch, bytemuck::cast_slice_mut(&mut drawn))
            })
        });
        drawn
    }

    fn squared_norms(&self, of: &[Kept<L>]) -> Vec<f64> {
        self.norms(of)
    }

    fn adamw(
        &self,
        step: AdamW,
        gradient: &CudaBuf<L>,
        moments: MomentsMut<'_, CudaBuf<L>>,
        parameters: Vec<Placed<'_, CudaBuf<L>, CudaWeight<L>>>,
    ) {
        self.update(step, gradient, moments, parameters);
    }
}

impl<L: Launcher> CudaDevice<L> {
    fn out(MatShape { rows, outputs, .. }: MatShape, y: &Write<L>) -> Out {
        assert_eq!(y.len, rows * outputs, "y is [rows, outputs]");
        (plain(to_row(y), y.buf.stride(outputs)), y.buf.format)
    }

    /// Products of one x. Those of matrices that lie one below the other, to columns beside each other, are one.
    fn products<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a CudaWeight<L>, Product)>,
        x: Read<L>,
    ) {
        let mut joined: Vec<(&CudaWeight<L>, Product)> = Vec::new();
        for (weight, next) in all {
            let bytes = weight.all().buf.format.bytes();
            match joined.last_mut() {
                Some((_, last)) if is_joined(last, &next, bytes) => last.m += next.m,
                _ => joined.push((weight, next)),
            }
        }
        for (weight, it) in joined {
            self.run(|| self.product(it, Factor::Numbers(weight.all()), Factor::Numbers(x)));
        }
    }

    /// `out = onto + x · w`.
    fn forward(
        shape: MatShape,
        x: Read<L>,
        w: &CudaWeight<L>,
        onto: &Onto<L>,
        out: Out,
    ) -> Product {
        let MatShape { rows, inputs, outputs } = shape;
        assert_eq!(x.len, rows * inputs, "x is [rows, inputs]");
        let bias = match onto {
            Accumulate::Bias(bias) => {
                assert_eq!(bias.len, outputs, "a bias is [outputs]");
                assert!(
                    inputs > 0 && out.1 == NumberFormat::F32,
                    "a product with a bias, stored in f32"
                );
                Some(at(*bias))
            }
            _ => None,
        };
        // By columns: yᵀ = w · xᵀ.
        let left = Matrix { transposed: true, ..w.for_product(shape) };
        let right = plain(at_row(x), x.buf.stride(inputs));
        let product = by_columns([outputs, rows, inputs], left, right, onto, out);
        // Sampler and trainer make the same rows in batches of other sizes.
        Product { whole: true, bias, ..product }
    }

    fn turn(&self, head_dim: usize, direction: f32, angles: u64, positions: &Ids<L>, x: &Write<L>) {
        let rows = positions.items.len();
        if rows == 0 {
            return;
        }
        let width = x.len / rows;
        assert!(
            width * rows == x.len && width.is_multiple_of(head_dim),
            "x is [positions, heads · head_dim]"
        );
        self.run(|| {
            let heads = self.word("heads", width / head_dim)?;
            let (half, table) = (self.word("columns", head_dim / 2)?, Self::table_at(positions)?);
            let args = [heads, half, f32_arg(direction), angles, table, to(x)];
            self.over_32(of_format(x.buf.format, ["rope", "rope_bf16"]), x.len / 2, &args)
        });
    }

    /// Queries, keys and values in f32 to the format of attention, the heads of the first two turned.
    fn store_heads(
        &self,
        shape: AttentionShape,
        angles: u64,
        positions: &Ids<L>,
        from: [Read<L>; 3],
        stored: &[Write<L>; 3],
    ) {
        let rows = positions.items.len();
        let [q, k, v] = from.map(|it| it.len);
        shape.expect_rows(rows, &[q, stored[0].len], &[k, v, stored[1].len, stored[2].len]);
        assert_eq!(shared_format(from.map(|it| it.buf)), NumberFormat::F32, "f32 numbers");
        assert_eq!(
            shared_format(stored.each_ref().map(|it| &*it.buf)),
            NumberFormat::Bf16,
            "bf16 numbers"
        );
        self.run(|| {
            let mut args = vec![
                self.word("heads", shape.heads)?,
                self.word("heads", shape.kv_heads)?,
                self.word("columns", shape.head_dim / 2)?,
                angles,
                Self::table_at(positions)?,
            ];
            let [q_dim, kv_dim] = [shape.q_dim(), shape.kv_dim()];
            for (from, width) in from.into_iter().zip([q_dim, kv_dim, kv_dim]) {
                args.extend([at_row(from), from.buf.stride(width) as u64]);
            }
            args.extend(stored.each_ref().map(to));
            let pairs = rows * (shape.heads + 2 * shape.kv_heads) * (shape.head_dim / 2);
            self.over_32("store_heads", pairs, &args)
        });
    }
}

/// `[m, n] = onto + left [m, k] · right [k, n]`.
fn by_columns<B>(
    [m, n, k]: [usize; 3],
    left: Matrix,
    right: Matrix,
    onto: &Accumulate<B>,
    (out, format): Out,
) -> Product {
    Product {
        m,
        n,
        k,
        number: Compute::F32,
        left,
        right,
        factor: if let Accumulate::Multiplied(factor) = onto { *factor } else { 1.0 },
        add: matches!(onto, Accumulate::Existing),
        whole: false,
        out,
        out_is_bf16: format == NumberFormat::Bf16,
        bias: None,
    }
}

/// The next product is of the rows below those of the last, to the columns beside them.
fn is_joined(last: &Product, next: &Product, bytes: usize) -> bool {
    let after = |it: Matrix, bytes: usize| Matrix { address: it.address + bytes as u64, ..it };
    let of_result = if last.out_is_bf16 { size_of::<u16>() } else { size_of::<f32>() };
    let bias = last.bias.map(|it| it + (last.m * size_of::<f32>()) as u64);
    let left = after(last.left, last.m * last.left.stride * bytes);
    let out = after(last.out, last.m * of_result);
    last.m + next.m <= out.stride && *next == Product { m: next.m, left, out, bias, ..*last }
}

fn width_of(layout: EmbeddingLayout) -> usize {
    match layout {
        EmbeddingLayout::Rows { width } => width,
        EmbeddingLayout::Columns { .. } => unreachable!("a GPU holds embeddings by rows"),
    }
}

fn plain(address: u64, stride: usize) -> Matrix {
    Matrix { address, stride, transposed: false }
}
