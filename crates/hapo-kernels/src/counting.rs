//! A device that counts bytes and computes nothing.
//!
//! Purpose: the real code plans its own memory. A model, its tape and its cache on this device take the bytes that they
//! take on a device of the same [`DeviceCaps`], in host vectors of tokens only. Price: every number is 0. What a GPU
//! holds between the kernels of one operation is not counted.

use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{
    Attention, AttentionDecode, AttentionGrad, CacheAppend, Device, HeadGrad, HeadStats, RmsNorm,
    RmsNormGrad, Rotation,
};
use crate::memory_counter::{Counted, MemoryCounter};
use crate::shapes::{
    Accumulate, Activation, AdamW, BufferSize, DrawRow, DrawnToken, EmbeddingLayout, MatShape,
    MomentsMut, TableItem,
};
use crate::span::{Buffer, Span, SpanMut};
use crate::weight::{Beside, Held, Matrix, Numbers, Output, Pair, Placed};
use crate::{cpu::Form, device_caps::DeviceCaps, error::Result, number_format::NumberFormat};

/// A device that counts bytes as one with some caps would take them.
#[derive(Clone, Debug)]
pub struct Counting {
    caps: DeviceCaps,
    tally: MemoryCounter,
    /// The copy that a CPU's products keep, and its numbers.
    copy: Arc<Mutex<Option<(usize, Counted)>>>,
}

/// The bytes of a buffer.
#[derive(Debug)]
pub struct CountedBuf {
    len: usize,
    bytes: usize,
    _counted: Counted,
}

impl Buffer for CountedBuf {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The bytes of a matrix.
#[derive(Debug)]
pub struct CountedWeight {
    shape: [usize; 2],
    form: Form,
    bytes: usize,
    counted: Counted,
}

impl Matrix<Counting> for CountedWeight {
    fn zeros(device: &Counting, shape: [usize; 2], held: Held) -> Result<Self> {
        let form = Form::of(&device.caps, held);
        let is_widened = form == Form::Panels && !device.caps.is_cpu();
        Ok(device.counted(shape, if is_widened { Form::F32 } else { form }))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn copy_of(&self, device: &Counting) -> Result<Self> {
        Ok(device.counted(self.shape, self.form.copied()))
    }

    // On a GPU there is room for all B's behind the rows of every matrix, beside the B's themselves.
    fn pairs(device: &Counting, rank: usize, of: Vec<Beside<'_, Self>>) -> Result<Vec<[Self; 2]>> {
        let n = of.iter().filter(|it| it.has_pair).count();
        let mut made = Vec::with_capacity(n);
        for Beside { weight, shape: [inputs, outputs], has_pair } in of {
            if n > 0 && !device.caps.is_cpu() {
                let width = device.caps.row_stride(inputs, n * rank);
                let bytes = device.weight_bytes([width, outputs], weight.form);
                (weight.bytes, weight.counted) = (bytes, device.tally.add(bytes));
            }
            if has_pair {
                let zeros = |shape| Self::zeros(device, shape, Held::Pair);
                made.push([zeros([inputs, rank])?, zeros([rank, outputs])?]);
            }
        }
        Ok(made)
    }

    fn write(&mut self, _: &Counting, _: usize, _: &[f32]) {}

    fn read(&self, _: &Counting, _: usize, to: &mut [f32]) {
        to.fill(0.0);
    }
}

impl Counting {
    /// One with these caps, without a buffer.
    pub fn new(caps: DeviceCaps) -> Self {
        Self { caps, tally: MemoryCounter::default(), copy: Arc::default() }
    }

    /// The bytes of its buffers.
    pub fn tally(&self) -> &MemoryCounter {
        &self.tally
    }

    /// Bytes of the copy that a CPU's products keep.
    pub fn copied_bytes(&self) -> usize {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        copy.as_ref().map_or(0, |it| it.0 * size_of::<f32>())
    }

    /// Bytes of a matrix: a GPU has whole ones in the order of the f32.
    fn weight_bytes(&self, shape: [usize; 2], form: Form) -> usize {
        if self.caps.is_cpu() {
            return form.words(shape).into_iter().sum::<usize>() * size_of::<f32>();
        }
        let bytes = match form {
            Form::F32 | Form::Split => 4,
            Form::Pairs | Form::Panels => 2,
        };
        shape[0] * shape[1] * bytes
    }

    fn counted(&self, shape: [usize; 2], form: Form) -> CountedWeight {
        let bytes = self.weight_bytes(shape, form);
        CountedWeight { shape, form, bytes, counted: self.tally.add(bytes) }
    }

    /// A product copies `numbers`, and keeps the room for the next one.
    fn copies(&self, numbers: usize) {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if self.caps.is_cpu() && numbers > copy.as_ref().map_or(0, |it| it.0) {
            *copy = None;
            *copy = Some((numbers, self.tally.add(numbers * size_of::<f32>())));
        }
    }
}

type ToRead<'a> = Span<'a, CountedBuf>;
type ToWrite<'a> = SpanMut<'a, CountedBuf>;
type Onto<'a> = Accumulate<'a, CountedBuf>;

/// Operations that take no memory of their own, by what they are given.
macro_rules! nothing {
    ($($operation:ident($($given:ty),*);)*) => {
        $(fn $operation(&self, $(_: $given),*) {})*
    };
}

impl Device for Counting {
    type Buf = CountedBuf;
    type Weight = CountedWeight;
    type Table<T: TableItem> = Vec<T>;

    nothing! {
        upload(&[f32], ToWrite);
        copy(ToRead, ToWrite);
        fill(ToWrite, f32);
        scale(ToWrite, f32);
        add_column_sums(usize, ToRead, ToWrite);
        add(f32, ToRead, ToWrite);
        rms_norm(RmsNorm<'_, Self>);
        rms_norm_grad(RmsNormGrad<'_, Self>);
        rope(Rotation<'_, Self>);
        attention(Attention<'_, Self>);
        attention_grad(AttentionGrad<'_, Self>);
        attention_decode(AttentionDecode<'_, Self>);
        round_to_bf16(ToWrite);
        cache_append(CacheAppend<'_, Self>);
        gated(Activation, ToRead, ToRead, ToWrite);
        gated_grad(Activation, ToWrite, ToWrite, ToWrite);
        gather_rows(EmbeddingLayout, &Vec<u32>, Numbers<'_, CountedBuf, CountedWeight>, ToWrite);
        embed_grad(EmbeddingLayout, &Vec<u32>, ToRead, ToWrite);
        scatter_rows(usize, &Vec<u32>, ToRead, ToWrite);
        head(HeadStats<'_, Self>);
        head_grad(HeadGrad<'_, Self>);
        adamw(
            AdamW, &CountedBuf, MomentsMut<'_, CountedBuf>,
            Vec<Placed<'_, CountedBuf, CountedWeight>>
        );
    }

    fn caps(&self) -> DeviceCaps {
        self.caps
    }

    fn alloc(&self, size: impl Into<BufferSize>, format: NumberFormat) -> Result<CountedBuf> {
        let size = size.into();
        let bytes = size.rows * self.caps.row_stride(size.width, size.room) * format.bytes();
        Ok(CountedBuf { len: size.len(), bytes, _counted: self.tally.add(bytes) })
    }

    fn table<T: TableItem>(&self, items: &[T]) -> Vec<T> {
        items.to_vec()
    }

    fn download(&self, _: ToRead, dst: &mut [f32]) {
        dst.fill(0.0);
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn product(
        &self,
        _: ToRead,
        _: Option<&mut CountedBuf>,
        to: Vec<Output<'_, CountedBuf, CountedWeight>>,
    ) {
        for Output { shape: MatShape { rows, inputs, .. }, weight, pair, .. } in to {
            self.copies(weight.form.product_copy([rows, inputs]));
            if let Some(Pair { a, b, rank, .. }) = pair {
                self.copies(a.form.product_copy([rows, inputs]));
                self.copies(b.form.product_copy([rows, rank]));
            }
        }
    }

    fn product_input_grad(&self, of: MatShape, _: ToRead, w: &CountedWeight, _: Onto, _: ToWrite) {
        self.copies(w.form.product_copy([of.rows, of.outputs]));
    }

    fn product_weight_grad(&self, shape: MatShape, _: ToRead, _: ToRead, _: Onto, _: ToWrite) {
        let factors = Form::of(&self.caps, Held::Trained);
        self.copies(factors.product_copy([shape.inputs, shape.rows]));
    }

    fn draw(&self, _: usize, _: usize, rows: &[DrawRow], _: ToRead) -> Vec<DrawnToken> {
        vec![DrawnToken::default(); rows.len()]
    }

    fn squared_norms(&self, of: &[Numbers<'_, CountedBuf, CountedWeight>]) -> Vec<f64> {
        vec![0.0; of.len()]
    }
}
