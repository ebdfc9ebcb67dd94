//! The matrices in bf16: a second copy for decoding, or all that products read.
//!
//! Purpose: a decode step reads every weight once, so its time is their memory traffic; bf16 halves it.
//! Sums stay in f32 and in the order of every other product. Where all matrices are bf16 numbers (a
//! folder in bf16, not trained further) the copy changes no bit: the log-probabilities of sampled
//! tokens stay those of [`Model::forward`](crate::Model::forward). Otherwise weights are rounded, and what is sampled is
//! another, nearby model; only who asks for it gets it.
//!
//! Where products are of bf16 factors there is no copy: the matrices are held packed, and beside them tails with what a
//! bf16 number lacks of the f32 that an update moves (`Device::splits_weights`).
//!
//! Price: 2 bytes per parameter. Norms and biases stay f32, and so does an embedding that is no product's factor, but
//! beside an adapter. Weights that change make a copy stale; it is not used until it is made again.

use hapo_kernels::{Buffer, Compute, Cpu, Device, NumberFormat, Span, SpanMut};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::params::{EMBEDDING, HEAD, Matrices, Projection, Range, Roles, transpose};

/// How the bf16 copy relates to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// There is no copy: decoding reads the f32 weights.
    No,
    /// Every matrix is equal to its copy: decoding gives the same bits, faster.
    Exact,
    /// Weights are rounded in the copy: decoding samples another, nearby model.
    Rounded,
    /// There are no other weights: every product reads it.
    Alone,
}

/// The copy, and where each matrix is in it.
#[derive(Debug)]
pub(crate) struct PackedWeights<D: Device> {
    buf: D::Buf,
    /// What the packed numbers lack of f32, laid out as they are, where they are trained.
    tails: Option<D::Buf>,
    /// Inputs and outputs of all matrices.
    shapes: Vec<[usize; 2]>,
    /// Of all matrices, in the order of [`matrices`].
    ranges: Vec<Range>,
    pub(crate) layers: Vec<Matrices>,
    pub(crate) head: Range,
    /// Where embeddings are looked up; only where there are no other weights.
    pub(crate) embedding: Range,
    pub(crate) state: Packed,
}

/// Rows up to which an exact copy is read: with 8 and with 64 rows it was the faster one.
const FEW_ROWS: usize = 64;

/// Published rows that are packed at a time: memory for them is there twice in f32 meanwhile.
const PIECE: usize = 4096;

impl<D: Device> PackedWeights<D> {
    /// The copy of the matrices of `params`, in the memory of `old` where there is one. Is `None` where
    /// the device has no packed form of a matrix.
    pub(crate) fn of(
        device: &D,
        config: &Config,
        roles: &Roles,
        params: &D::Buf,
        state: Packed,
        old: Option<Self>,
    ) -> Result<Option<Self>, ComputeError> {
        let matrices = products(config);
        let old = old.map(|it| it.buf);
        let Some(mut packed) = Self::zeros(device, config, &matrices, state, old)? else {
            return Ok(None);
        };
        device.enter(|| {
            for ((matrix, range), to) in
                matrices.iter().zip(ranges(roles)).zip(packed.ranges.clone())
            {
                let (shape, to) = ([matrix.inputs, matrix.outputs], packed.buf.at_mut(to.0, to.1));
                device.pack(shape, 0, params.at(range.0, range.1), to);
            }
        });
        Ok(Some(packed))
    }

    /// Zeros that stand for all matrices of a model that has no other. Is `None` where the device does not compute with
    /// packed weights alone.
    pub(crate) fn alone(device: &D, config: &Config) -> Result<Option<Self>, ComputeError> {
        if !device.computes_packed() {
            return Ok(None);
        }
        Self::zeros(device, config, &matrices(config), Packed::Alone, None)
    }

    /// Zeros that stand for the matrices of products of a model under training. Is `None` where the device does not split
    /// weights.
    pub(crate) fn split(device: &D, config: &Config) -> Result<Option<Self>, ComputeError> {
        if !device.splits_weights() {
            return Ok(None);
        }
        let mut packed = Self::zeros(device, config, &products(config), Packed::Alone, None)?;
        if let Some(it) = &mut packed {
            it.tails = Some(device.alloc(it.buf.len())?);
        }
        Ok(packed)
    }

    fn zeros(
        device: &D,
        config: &Config,
        matrices: &[Matrix],
        state: Packed,
        old: Option<D::Buf>,
    ) -> Result<Option<Self>, ComputeError> {
        let mut end = 0;
        let mut ranges = Vec::with_capacity(matrices.len());
        for it in matrices {
            let Some(len) = device.packed_len(it.inputs, it.outputs) else {
                return Ok(None);
            };
            ranges.push((end, len));
            end += len.next_multiple_of(16);
        }
        let buf = match old {
            Some(it) => it,
            None => device.alloc(end)?,
        };
        let layers = ranges.as_chunks::<7>().0[..config.layers].to_vec();
        let head = ranges[7 * config.layers];
        let embedding = ranges.get(7 * config.layers + 1).copied().unwrap_or(head);
        let shapes = matrices.iter().map(|it| [it.inputs, it.outputs]).collect();
        Ok(Some(Self { buf, tails: None, shapes, ranges, layers, head, embedding, state }))
    }

    pub(crate) fn at(&self, range: Range) -> Span<'_, D::Buf> {
        self.buf.at(range.0, range.1)
    }

    /// The whole buffer.
    pub(crate) fn buf(&self) -> &D::Buf {
        &self.buf
    }

    /// The whole buffer, to write.
    pub(crate) fn buf_mut(&mut self) -> &mut D::Buf {
        &mut self.buf
    }

    /// The tails, where they are trained.
    pub(crate) fn tails(&self) -> Option<&D::Buf> {
        self.tails.as_ref()
    }

    /// A split matrix: its shape, its packed numbers and its tails.
    pub(crate) fn matrix(&self, index: usize) -> Split<Span<'_, D::Buf>> {
        let (at, len) = self.ranges[index];
        let tails = self.tails.as_ref().expect("weights that are split have tails");
        Split { shape: self.shapes[index], packed: self.buf.at(at, len), tails: tails.at(at, len) }
    }

    /// Squared norms of all matrices that are split.
    pub(crate) fn squared_norms(&self, device: &D) -> Vec<f64> {
        let tails = self.tails.as_ref().expect("weights that are split have tails");
        device.squared_norms_split(&self.buf, tails, &self.ranges)
    }

    /// The same to write.
    pub(crate) fn matrix_mut(&mut self, index: usize) -> Split<SpanMut<'_, D::Buf>> {
        let (at, len) = self.ranges[index];
        let tails = self.tails.as_mut().expect("weights that are split have tails");
        Split {
            shape: self.shapes[index],
            packed: self.buf.at_mut(at, len),
            tails: tails.at_mut(at, len),
        }
    }

    /// Whether sampling `rows` rows reads the copy.
    pub(crate) fn is_read_for(&self, rows: usize) -> bool {
        match self.state {
            Packed::No => false,
            Packed::Exact => rows <= FEW_ROWS,
            Packed::Rounded | Packed::Alone => true,
        }
    }

    /// Packs the published rows of a matrix from `first` on, a multiple of 64; false where no matrix has this name.
    pub(crate) fn set_rows(
        &mut self,
        device: &D,
        config: &Config,
        (name, first): (&str, usize),
        rows: &[f32],
    ) -> Result<bool, ComputeError> {
        let all = matrices(config);
        let Some((i, &Matrix { inputs, outputs, .. })) =
            all.iter().enumerate().find(|it| it.1.name == name)
        else {
            return Ok(false);
        };
        if !rows.len().is_multiple_of(inputs) || first + rows.len() / inputs > outputs {
            let (name, got) = (name.to_owned(), first * inputs + rows.len());
            return Err(ComputeError::TensorLength { name, expected: inputs * outputs, got });
        }
        let (at, len) = self.ranges[i];
        for (piece, rows) in rows.chunks(PIECE * inputs).enumerate() {
            let n = rows.len() / inputs;
            let columns = transpose(rows, n, inputs);
            let mut w = device.alloc(columns.len())?;
            device.upload(&columns, w.first_mut(columns.len()));
            let (first, to) = (first + piece * PIECE, self.buf.at_mut(at, len));
            device.pack([inputs, outputs], first, w.first(columns.len()), to);
        }
        Ok(true)
    }

    /// A matrix in its published order, where it has this name.
    pub(crate) fn published(
        &self,
        device: &D,
        config: &Config,
        name: &str,
    ) -> Result<Option<Vec<f32>>, ComputeError> {
        let all = matrices(config);
        let Some((i, it)) = all.iter().enumerate().find(|it| it.1.name == name) else {
            return Ok(None);
        };
        let mut w = device.alloc(it.inputs * it.outputs)?;
        let len = w.len();
        device.unpack(it.inputs, it.outputs, self.at(self.ranges[i]), w.first_mut(len));
        let mut columns = vec![0.0; len];
        device.download(w.first(len), &mut columns);
        Ok(Some(transpose(&columns, it.inputs, it.outputs)))
    }
}

/// A matrix that is split.
pub(crate) struct Split<S> {
    /// Inputs and outputs.
    pub(crate) shape: [usize; 2],
    pub(crate) packed: S,
    pub(crate) tails: S,
}

/// Who packs matrices: each device in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// In panels, padded to whole ones.
    Cpu,
    /// In the order of the f32.
    Gpu,
}

/// Bytes of the matrices of a model that are held in bf16 alone.
pub(crate) fn bytes_alone(config: &Config, compute: Compute, by: Packing) -> u64 {
    bytes_of(&matrices(config), compute, by)
}

/// Bytes of the packed matrices of a model under training, and of their tails again.
pub(crate) fn bytes_split(config: &Config, by: Packing) -> u64 {
    bytes_of(&products(config), Compute::Bf16, by)
}

fn bytes_of(all: &[Matrix], compute: Compute, by: Packing) -> u64 {
    let words = |it: &Matrix| match by {
        Packing::Cpu => Cpu::packed_words(compute, it.inputs, it.outputs),
        Packing::Gpu => NumberFormat::Bf16.words(it.inputs * it.outputs),
    };
    let words: usize = all.iter().map(|it| words(it).next_multiple_of(16)).sum();
    (words * size_of::<f32>()) as u64
}

/// The published names of the matrices of products, in the order of [`PackedWeights::matrix`].
pub(crate) fn product_names(config: &Config) -> impl Iterator<Item = String> {
    products(config).into_iter().map(|it| it.name)
}

/// Whether every matrix consists of bf16 numbers.
pub(crate) fn is_exact<D: Device>(device: &D, roles: &Roles, params: &D::Buf) -> bool {
    device.enter(|| ranges(roles).all(|it| device.is_bf16(params.at(it.0, it.1))))
}

/// Ranges of every product's matrix in the parameters.
fn ranges(roles: &Roles) -> impl Iterator<Item = Range> {
    roles.layers.iter().flat_map(|it| it.matrices).chain([roles.head])
}

/// A matrix by its published name.
struct Matrix {
    name: String,
    inputs: usize,
    outputs: usize,
}

/// The matrices of products, layer by layer, the head last.
fn products(config: &Config) -> Vec<Matrix> {
    let of_layer = |i: usize| {
        Projection::ALL.map(|it| {
            let (inputs, outputs) = it.shape(config);
            Matrix { name: format!("model.layers.{i}.{}.weight", it.module()), inputs, outputs }
        })
    };
    let head = Matrix {
        name: if config.tied { EMBEDDING } else { HEAD }.to_owned(),
        inputs: config.hidden,
        outputs: config.vocab_size,
    };
    (0..config.layers).flat_map(of_layer).chain([head]).collect()
}

/// As [`products`], and the embedding where it is not the head.
fn matrices(config: &Config) -> Vec<Matrix> {
    let embedding = (!config.tied).then(|| Matrix {
        name: EMBEDDING.to_owned(),
        inputs: config.hidden,
        outputs: config.vocab_size,
    });
    products(config).into_iter().chain(embedding).collect()
}
