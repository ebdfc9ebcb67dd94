//! The operations of the CPU, each a kernel of its own file.

use rayon::prelude::*;

use super::attention::{cache, prompt};
use super::buffer::CpuBuf;
use super::pool::{Cpu, Shared};
use super::update::{Moments, Parameter, Rounding};
use super::weight::CpuWeight;
use super::{convert, embedding, gated, head, memory, norm, product, rope, update};
use crate::device::{
    Attention, AttentionDecode, AttentionGrad, CacheAppend, Device, HeadGrad, HeadStats, RmsNorm,
    RmsNormGrad, Rotation,
};
use crate::number_format::{Compute, NumberFormat};
use crate::shapes::{
    Accumulate, Activation, AdamW, BufferSize, DrawRow, DrawnToken, EmbeddingLayout, MatShape,
    MomentsMut, TableItem,
};
use crate::span::{Buffer, Span, SpanMut};
use crate::weight::{Heads, Numbers, NumbersMut, Output, Pair, Placed};
use crate::{device_caps::DeviceCaps, draw::draw, error::Result};

type Read<'a> = Span<'a, CpuBuf>;
type Write<'a> = SpanMut<'a, CpuBuf>;
type Onto<'a> = Accumulate<'a, CpuBuf>;
type Kept<'a> = Numbers<'a, CpuBuf, CpuWeight>;

impl Device for Cpu {
    type Buf = CpuBuf;
    type Weight = CpuWeight;
    type Table<T: TableItem> = Vec<T>;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps::cpu(self.compute(), self.threads())
    }

    fn alloc(&self, size: impl Into<BufferSize>, format: NumberFormat) -> Result<CpuBuf> {
        assert_eq!(format, NumberFormat::F32, "a format that the device names");
        CpuBuf::counted(size.into().len(), self.tally())
    }

    fn table<T: TableItem>(&self, items: &[T]) -> Vec<T> {
        items.to_vec()
    }

    fn free_bytes(&self) -> Option<u64> {
        memory::free_bytes()
    }

    fn upload(&self, src: &[f32], dst: Write) {
        dst.write().copy_from_slice(src);
    }

    fn download(&self, src: Read, dst: &mut [f32]) {
        dst.copy_from_slice(src.read());
    }

    fn copy(&self, src: Read, dst: Write) {
        dst.write().copy_from_slice(src.read());
    }

    fn fill(&self, dst: Write, value: f32) {
        dst.write().fill(value);
    }

    fn scale(&self, x: Write, factor: f32) {
        x.write().iter_mut().for_each(|it| *it *= factor);
    }

    fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.serial { work() } else { self.pool.install(work) }
    }

    fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&Self, &mut T) + Sync) {
        if items.len() <= 1 || self.serial {
            return items.iter_mut().for_each(|item| work(self, item));
        }
        let mut alone = self.clone();
        alone.serial = true;
        self.pool.install(|| {
            items.par_iter_mut().with_max_len(1).for_each(|item| work(&alone, item));
        });
    }

    fn product(
        &self,
        x: Read,
        mut low: Option<&mut CpuBuf>,
        to: Vec<Output<'_, CpuBuf, CpuWeight>>,
    ) {
        for Output { shape, weight, pair, onto, mut y } in to {
            self.multiply(shape, x, weight, &onto, y.again());
            if let Some(Pair { a, b, rank, scale }) = pair {
                let low = low.as_deref_mut().expect("room for x·A");
                let (len, of_a) = (shape.rows * rank, MatShape { outputs: rank, ..shape });
                self.multiply(of_a, x, a, &Accumulate::Multiplied(scale), low.first_mut(len));
                let of_b = MatShape { inputs: rank, ..shape };
                self.multiply(of_b, low.first(len), b, &Accumulate::Existing, y);
            }
        }
    }

    fn product_input_grad(
        &self,
        shape: MatShape,
        dy: Read,
        w: &CpuWeight,
        onto: Onto,
        mut dx: Write,
    ) {
        w.input_grad(self, shape, dy.read(), &onto, dx.again().write());
        if let Accumulate::Multiplied(factor) = onto {
            self.scale(dx, factor);
        }
    }

    fn product_weight_grad(&self, shape: MatShape, x: Read, dy: Read, onto: Onto, dw: Write) {
        let grad = match self.compute() {
            Compute::Bf16 => product::bf16::weight_grad,
            _ => product::f32::weight_grad,
        };
        grad(self, shape, x.read(), dy.read(), &onto, dw.write());
    }

    fn add_column_sums(&self, width: usize, dy: Read, out: Write) {
        norm::add_column_sums(self, width, dy.read(), out.write());
    }

    fn add(&self, factor: f32, x: Read, y: Write) {
        y.write().iter_mut().zip(x.read()).for_each(|(y, &x)| *y += factor * x);
    }

    fn rms_norm(&self, it: RmsNorm<Self>) {
        norm::rms_norm(self, it);
    }

    fn rms_norm_grad(&self, it: RmsNormGrad<Self>) {
        norm::rms_norm_grad(self, it);
    }

    fn rope(&self, Rotation { shape, angles, positions, heads }: Rotation<Self>) {
        let (direction, both) = match heads {
            Heads::Forward(both) => (1.0, both),
            Heads::Backward(both) => (-1.0, both),
            Heads::Stored { from, mut to } => {
                for (from, to) in from.into_iter().zip(&mut to) {
                    self.copy(from, to.again());
                }
                let [q, k, _] = to;
                (1.0, [q, k])
            }
        };
        for x in both {
            rope::rope(self, shape, direction, angles.read(), positions, x.write());
        }
    }

    fn attention(&self, it: Attention<Self>) {
        prompt::forward(self, it);
    }

    fn attention_grad(&self, it: AttentionGrad<Self>) {
        prompt::backward(self, it);
    }

    fn attention_decode(&self, it: AttentionDecode<Self>) {
        cache::attention_decode(self, it);
    }

    fn round_to_bf16(&self, x: Write) {
        convert::round(self, x.write());
    }

    fn cache_append(&self, it: CacheAppend<Self>) {
        cache::append(self, it);
    }

    fn gated(&self, f: Activation, gate: Read, up: Read, h: Write) {
        gated::forward(self, f, gate.read(), up.read(), h.write());
    }

    fn gated_grad(&self, f: Activation, gate: Write, up: Write, dh: Write) {
        gated::backward(self, f, gate.write(), up.write(), dh.write());
    }

    fn gather_rows(&self, layout: EmbeddingLayout, rows: &Vec<u32>, from: Kept, y: Write) {
        match from {
            Numbers::Span(it) => embedding::gather(self, layout, rows, it.read(), y.write()),
            Numbers::Weight(it) => it.gather(self, layout, rows, y.write()),
        }
    }

    fn embed_grad(&self, layout: EmbeddingLayout, tokens: &Vec<u32>, dx: Read, dembedding: Write) {
        embedding::embed_grad(self, layout, tokens, dx.read(), dembedding.write());
    }

    fn scatter_rows(&self, width: usize, rows: &Vec<u32>, y: Read, x: Write) {
        embedding::scatter_rows(self, width, rows, y.read(), x.write());
    }

    fn head(&self, it: HeadStats<Self>) {
        head::forward(self, it);
    }

    fn head_grad(&self, it: HeadGrad<Self>) {
        head::backward(self, it);
    }

    fn draw(
        &self,
        vocabulary: usize,
        usable: usize,
        rows: &[DrawRow],
        logits: Read,
    ) -> Vec<DrawnToken> {
        let logits = logits.read();
        self.map_tasks(rows.len(), |task| {
            let it = rows[task];
            draw(&logits[it.row as usize * vocabulary..][..vocabulary], it, usable)
        })
    }

    fn squared_norms(&self, of: &[Kept]) -> Vec<f64> {
        let norm = |it: &Kept| match it {
            Numbers::Span(it) => norm::squared_norm(self, it.read()),
            Numbers::Weight(it) => it.squared_norm(self),
        };
        of.iter().map(norm).collect()
    }

    fn adamw(
        &self,
        step: AdamW,
        gradient: &CpuBuf,
        moments: MomentsMut<'_, CpuBuf>,
        parameters: Vec<Placed<'_, CpuBuf, CpuWeight>>,
    ) {
        let moments = match moments {
            MomentsMut::F32(both) => Moments::F32(both.map(|it| Shared::new(it.as_mut_slice()))),
            MomentsMut::Bf16 { buffers, seed } => {
                let moments =
                    buffers.map(|it| Shared::new(bytemuck::cast_slice_mut(it.as_mut_slice())));
                Moments::Bf16 { moments, rounding: Rounding { seed, update: step.step } }
            }
        };
        let parameters = parameters.into_iter().map(|it| {
            let parameter = match it.numbers {
                NumbersMut::Span(span) => Parameter::Flat(Shared::new(span.write())),
                NumbersMut::Weight(weight) => weight.parameter(),
            };
            (it.at..it.at + it.len, parameter)
        });
        update::adamw(self, step, gradient.as_slice(), moments, parameters);
    }
}

impl Cpu {
    fn multiply(&self, shape: MatShape, x: Read, w: &CpuWeight, onto: &Onto, mut y: Write) {
        w.product(self, shape, x.read(), onto, y.again().write());
        if let Accumulate::Multiplied(factor) = onto {
            self.scale(y, *factor);
        }
    }
}
