//! A weight matrix on a GPU: in f32, in bf16, or in bf16 with tails that make up the f32.
//!
//! All forms have the order of the f32, so an update walks them alike. Tensor cores read the bf16 numbers.

use hapo_core::RngStream;
use hapo_kernels::{
    AdamW, Beside, Buffer, Compute, Device, Held, MatShape, Matrix, MomentsMut, NumberFormat,
    Numbers, NumbersMut, Placed, Span,
};

use crate::device::{CudaBuf, CudaDevice, at, f32_arg, shared_format, to};
use crate::launch::{Launcher, Matrix as Factors, Memory, Operation, Result};
use crate::plan;

/// A matrix `[inputs, outputs]`, held as published: a row for each output.
#[derive(Debug)]
pub struct CudaWeight<L: Launcher> {
    shape: [usize; 2],
    /// In f32 or in bf16. Behind each row there is room for a row of its own B and of its neighbours'.
    numbers: CudaBuf<L>,
    /// The low 16 bits that the bf16 numbers lack of f32, if the matrix is trained.
    tails: Option<CudaBuf<L>>,
    /// Of a B: its copy behind the rows of the matrix, which products read.
    behind: Option<CudaBuf<L>>,
}

impl<L: Launcher> Matrix<CudaDevice<L>> for CudaWeight<L> {
    fn bytes(&self) -> usize {
        self.numbers.bytes() + self.tails.as_ref().map_or(0, Buffer::bytes)
    }

    fn zeros(device: &CudaDevice<L>, shape: [usize; 2], held: Held) -> Result<Self> {
        Ok(Self::zeros_beside(device, &[shape], held)?.remove(0))
    }

    fn zeros_beside(
        device: &CudaDevice<L>,
        shapes: &[[usize; 2]],
        held: Held,
    ) -> Result<Vec<Self>> {
        let is_bf16 = device.inner.products == Compute::Bf16 && held != Held::Plain;
        let has_tails = is_bf16 && held != Held::Frozen(NumberFormat::Bf16);
        let format = if is_bf16 { NumberFormat::Bf16 } else { NumberFormat::F32 };
        let memory = device.memory(shapes.iter().map(|it| it[0] * it[1]).sum(), format)?;
        let mut first = 0;
        let matrix = |&[inputs, outputs]: &[usize; 2]| {
            let numbers = CudaBuf::part(&memory, first, [outputs, inputs, inputs], format);
            first += numbers.len;
            let tails = has_tails.then(|| device.alloc(numbers.len, format)).transpose()?;
            Ok(Self { shape: [inputs, outputs], numbers, tails, behind: None })
        };
        shapes.iter().map(matrix).collect()
    }

    fn pairs(
        device: &CudaDevice<L>,
        rank: usize,
        of: Vec<Beside<'_, Self>>,
    ) -> Result<Vec<[Self; 2]>> {
        let n = of.iter().filter(|it| it.has_pair).count();
        if n == 0 {
            return Ok(Vec::new());
        }
        let (inputs, format) = (of[0].shape[0], of[0].weight.numbers.format);
        let stride = device.caps().row_stride(inputs, n * rank);
        let outputs: usize = of.iter().map(|it| it.shape[1]).sum();
        let memory = device.memory(outputs * stride, format)?;
        let mut a = Self::zeros_beside(device, &vec![[inputs, rank]; n], Held::Pair)?.into_iter();
        let (mut first, mut pairs) = (0, Vec::with_capacity(n));
        for Beside { weight, shape: [_, outputs], has_pair } in of {
            let numbers = CudaBuf::part(&memory, first, [outputs, inputs, stride], format);
            let from = weight.numbers.rows_at(inputs);
            let (all, ends) = (0..weight.len(), [from, numbers.rows_at(inputs)]);
            device.run(|| device.copy_rows(format, all, inputs, ends));
            weight.numbers = numbers;
            if has_pair {
                let mut b = Self::zeros(device, [rank, outputs], Held::Pair)?;
                let behind = first + inputs + pairs.len() * rank;
                b.behind = Some(CudaBuf::part(&memory, behind, [outputs, rank, stride], format));
                pairs.push([a.next().expect("an A for each"), b]);
            }
            first += outputs * stride;
        }
        Ok(pairs)
    }

    fn copy_of(&self, device: &CudaDevice<L>) -> Result<Self> {
        let len = self.len();
        let mut numbers = device.alloc(len, self.numbers.format)?;
        device.copy(self.all(), numbers.first_mut(len));
        Ok(Self { shape: self.shape, numbers, tails: None, behind: None })
    }

    // What lies beside others stays there.
    fn swap(&mut self, device: &CudaDevice<L>, copy: &mut Self) {
        if self.numbers.is_beside_others() {
            let len = self.len();
            let bytes = len * shared_format([&self.numbers, &copy.numbers]).bytes();
            let [here, there] = [&mut *self, copy].map(|it| to(&it.numbers.first_mut(len)));
            let moved = |from, to| device.begin(Operation::Copy { from, to, bytes });
            device.run(|| {
                device.with_scratch(bytes, |scratch| {
                    moved(here, scratch)?;
                    moved(there, here)?;
                    moved(scratch, there)
                })
            });
        } else {
            std::mem::swap(&mut self.numbers, &mut copy.numbers);
        }
        self.put_behind(device);
    }

    fn write(&mut self, device: &CudaDevice<L>, first: usize, from: &[f32]) {
        if let Some(tails) = &self.tails {
            let bits = || from.iter().map(|it| it.to_bits());
            let upper: Vec<u16> = bits().map(|it| (it.wrapping_add(0x8000) >> 16) as u16).collect();
            let lower: Vec<u16> = bits().map(|it| it as u16).collect();
            for (half, to) in [(upper, &self.numbers), (lower, tails)] {
                device.run(|| device.put(bytemuck::cast_slice(&half), first, to));
            }
        } else {
            device.upload(from, self.numbers.at_mut(first, from.len()));
        }
        self.put_behind(device);
    }

    fn read(&self, device: &CudaDevice<L>, first: usize, dst: &mut [f32]) {
        let numbers = self.numbers.at(first, dst.len());
        let Some(tails) = &self.tails else { return device.download(numbers, dst) };
        let [mut upper, mut lower] = [vec![0_u16; dst.len()], vec![0_u16; dst.len()]];
        for (half, from) in [(&mut upper, &self.numbers), (&mut lower, tails)] {
            device.run(|| device.get(from, first, bytemuck::cast_slice_mut(half)));
        }
        let below = |it: u16| i32::from(it.cast_signed()).cast_unsigned();
        for (to, (upper, lower)) in dst.iter_mut().zip(upper.into_iter().zip(lower)) {
            *to = f32::from_bits((u32::from(upper) << 16).wrapping_add(below(lower)));
        }
        if device.fault().is_some() {
            // Old contents must not pass for the result.
            dst.fill(f32::NAN);
        }
    }
}

impl<L: Launcher> CudaWeight<L> {
    fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    pub(crate) fn all(&self) -> Span<'_, CudaBuf<L>> {
        self.numbers.first(self.len())
    }

    /// Copies a B to where products read it.
    fn put_behind(&self, device: &CudaDevice<L>) {
        let (rank, format) = (self.shape[0], self.numbers.format);
        if let Some(behind) = &self.behind {
            let ends = [self.numbers.rows_at(rank), behind.rows_at(rank)];
            device.run(|| device.copy_rows(format, 0..self.len(), rank, ends));
        }
    }

    /// True if it is a B whose copy begins at the column `first` of a matrix's rows.
    pub(crate) fn lies_behind(&self, matrix: &Self, first: usize) -> bool {
        let at = matrix.numbers.address() + (first * matrix.numbers.format.bytes()) as u64;
        self.behind.as_ref().is_some_and(|it| it.address() == at)
    }

    /// As the left factor of a product of a shape, by columns.
    pub(crate) fn for_product(&self, shape: MatShape) -> Factors {
        assert_eq!([shape.inputs, shape.outputs], self.shape, "w is [inputs, outputs]");
        let (address, stride) = self.numbers.rows_at(shape.inputs);
        Factors { address, stride, transposed: false }
    }
}

/// Blocks of one launch for squared norms: kernel, addresses, blocks.
type Norms = (&'static str, Vec<u64>, Vec<[u64; 2]>);

impl<L: Launcher> CudaDevice<L> {
    /// Squared norms; one launch covers all numbers in f32.
    pub(crate) fn norms(&self, of: &[Numbers<'_, CudaBuf<L>, CudaWeight<L>>]) -> Vec<f64> {
        // NaN marks a norm that was not computed, so that nobody takes it for a small one.
        let mut norms = vec![f64::NAN; of.len()];
        // Ranges in f32 count from the lowest address.
        let spans = of.iter().map(|it| match it {
            Numbers::Span(it) => (*it, None),
            Numbers::Weight(it) => (it.all(), it.tails.as_ref()),
        });
        let is_flat = |it: &Span<CudaBuf<L>>| it.buf.format == NumberFormat::F32;
        let flat = spans.clone().map(|it| it.0).filter(is_flat).map(at).min().unwrap_or(0);
        let mut launches: Vec<Norms> = vec![("squared_norms", vec![flat], Vec::new())];
        // The launch and the first block of each.
        let mut places = Vec::with_capacity(of.len());
        for (span, tails) in spans {
            if let Some(tails) = tails {
                let numbers = vec![at(span), at(tails.first(tails.len))];
                places.push((launches.len(), 0));
                let blocks = plan::blocks_of_range(0, span.len);
                launches.push(("squared_norms_split", numbers, blocks));
                continue;
            }
            assert!(is_flat(&span), "numbers that are trained");
            let first = (at(span) - flat) as usize / size_of::<f32>();
            let blocks = &mut launches[0].2;
            places.push((0, blocks.len()));
            blocks.extend(plan::blocks_of_range(first, span.len));
        }
        self.run(|| {
            let parts = self.parts_of_norms(&launches)?;
            for ((norm, (launch, first)), it) in norms.iter_mut().zip(places).zip(of) {
                let len = match it {
                    Numbers::Span(it) => it.len,
                    Numbers::Weight(it) => it.len(),
                };
                let before: usize = launches[..launch].iter().map(|it| it.2.len()).sum();
                let blocks = len.div_ceil(plan::PER_BLOCK);
                *norm = parts[before + first..][..blocks].iter().sum();
            }
            Ok(())
        });
        norms
    }

    fn parts_of_norms(&self, launches: &[Norms]) -> Result<Vec<f64>> {
        let blocks: usize = launches.iter().map(|it| it.2.len()).sum();
        let mut parts = vec![0.0_f64; blocks];
        let tables = launches.iter().map(|it| self.upload_items(&it.2));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        self.with_scratch(size_of_val(&parts[..]), |scratch| {
            let mut to = scratch;
            for ((kernel, numbers, blocks), table) in launches.iter().zip(&tables) {
                let args = [&[table.address()], &numbers[..], &[to]].concat();
                let grid = self.grid(blocks.len(), 1, 1)?;
                self.launch(kernel, grid, plan::reduction_bytes(8), &args)?;
                to += (blocks.len() * size_of::<f64>()) as u64;
            }
            if blocks == 0 {
                return Ok(());
            }
            self.inner.launcher.download(scratch, bytemuck::cast_slice_mut(&mut parts))
        })?;
        Ok(parts)
    }

    pub(crate) fn update(
        &self,
        step: AdamW,
        gradient: &CudaBuf<L>,
        mut moments: MomentsMut<'_, CudaBuf<L>>,
        parameters: Vec<Placed<'_, CudaBuf<L>, CudaWeight<L>>>,
    ) {
        // The kernels take them in their order.
        let factors: [f32; 9] = bytemuck::cast(step.factors());
        for Placed { at: first, len, mut numbers } in parameters {
            let mut args: Vec<u64> = factors.into_iter().map(f32_arg).collect();
            args.push(at(gradient.at(first, len)));
            let kernels = match &mut numbers {
                NumbersMut::Span(span) => {
                    assert_eq!(span.len, len, "parameters as long as the gradient");
                    args.push(to(span));
                    ["adamw", "adamw_bf16"]
                }
                NumbersMut::Weight(it) => {
                    assert_eq!(it.len(), len, "the gradient is as long as the matrix");
                    args.push(to(&it.numbers.first_mut(len)));
                    match &mut it.tails {
                        None => {
                            assert_eq!(it.numbers.format, NumberFormat::F32, "it is trained");
                            ["adamw", "adamw_bf16"]
                        }
                        Some(tails) => {
                            args.push(to(&tails.first_mut(len)));
                            ["adamw_split", "adamw_split_bf16"]
                        }
                    }
                }
            };
            self.run(|| match &mut moments {
                MomentsMut::F32(both) => {
                    args.extend(both.each_mut().map(|it| to(&it.at_mut(first, len))));
                    self.over(kernels[0], len, &args)
                }
                MomentsMut::Bf16 { buffers, seed } => {
                    let end = first + len;
                    let held = buffers.each_ref().map(|it| 2 * it.len);
                    assert!(held.iter().all(|it| end <= *it), "moments of all elements");
                    args.extend(buffers.each_ref().map(|it| it.address()));
                    args.extend([first as u64, len as u64]);
                    args.extend([*seed, u64::from(RngStream::Moments.code()), step.step]);
                    let counters = end.div_ceil(8) - first / 8;
                    self.over(kernels[1], if len == 0 { 0 } else { counters }, &args)
                }
            });
            if let NumbersMut::Weight(it) = numbers {
                it.put_behind(self);
            }
        }
    }
}
