//! A decoder on a device: shape, weights, and the bf16 copy of them.
//!
//! Price: sampler and trainer borrow the same weights, but for the bf16 copy that decoding may read
//! ([`crate::Packed`]). They are plain `f32`; those that do not change, beside an adapter, may be held in bf16 alone, and
//! where products are of bf16 factors matrices are split into bf16 numbers and tails.

use hapo_kernels::{Buffer, Device, EmbeddingLayout, MatShape, NumberFormat, Span, SpanMut};

use crate::adapter::Adapter;
use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::packed::{Packed, PackedWeights, is_exact};
use crate::params::{Param, ParamLayout, Range, Roles};
use crate::rope::{self, rope_frequencies};
use crate::weights::Locations;

/// A decoder: shape, weights, device.
#[derive(Debug)]
pub struct Model<D: Device> {
    pub(crate) device: D,
    pub(crate) config: Config,
    pub(crate) layout: ParamLayout,
    pub(crate) roles: Roles,
    pub(crate) locations: Locations,
    pub(crate) params: D::Buf,
    pub(crate) angles: D::Buf,
    pub(crate) positions: usize,
    pub(crate) packed: Option<PackedWeights<D>>,
    pub(crate) adapter: Option<Adapter<D>>,
    pub(crate) kv_format: NumberFormat,
}

/// How the matrices of a model are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// In f32, or in two parts that together are exactly that, to be trained or merged with an adapter.
    #[default]
    F32,
    /// In bf16 alone, rounded where they are no bf16 numbers, where the device can; they never change.
    Bf16,
}

impl<D: Device> Model<D> {
    /// A decoder of zeros for sequences of at most `positions` tokens (prompt included). Fill it with
    /// [`Model::set_tensor`].
    ///
    /// # Errors
    /// A shape that cannot be computed with, or no memory.
    pub fn new(device: D, config: Config, positions: usize) -> Result<Self, ComputeError> {
        Self::stored(device, config, positions, Storage::F32)
    }

    /// As [`Model::new`], with matrices held as `storage` says.
    ///
    /// # Errors
    /// As there.
    pub fn stored(
        device: D,
        config: Config,
        positions: usize,
        storage: Storage,
    ) -> Result<Self, ComputeError> {
        check(&config)?;
        let packed = match storage {
            Storage::F32 => PackedWeights::split(&device, &config)?,
            Storage::Bf16 => PackedWeights::alone(&device, &config)?,
        };
        let is_split = packed.as_ref().is_some_and(|it| it.tails().is_some());
        let layout = match packed {
            Some(_) if !is_split => ParamLayout::without_matrices(&config),
            _ => ParamLayout::of(&config),
        };
        let roles = Roles::of(&config, &layout)?;
        let locations =
            if is_split { Locations::split(&config, &layout) } else { Locations::flat(&layout) };
        let params = device.alloc(locations.len())?;
        let mut angles = device.alloc(positions * config.head_dim)?;
        let table = rope::angles(&rope_frequencies(&config), positions);
        device.upload(&table, angles.first_mut(table.len()));
        let adapter = None;
        let kv_format = device.attention_format(config.attention_shape());
        Ok(Self {
            device,
            config,
            layout,
            roles,
            locations,
            params,
            angles,
            positions,
            packed,
            adapter,
            kv_format,
        })
    }

    /// The shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Rounds keys and values to a format, in which caches hold them. Every one is rounded before anything reads it, so
    /// that what is sampled does not depend on what was in the cache already; but [`Model::forward`] reads them as they
    /// are, and in bf16 its log-probabilities are others than the sampler's, unless the device's attention rounds
    /// them anyway ([`Device::attention_format`]): then caches are in bf16 from the start, at no loss.
    pub fn round_keys_and_values_to(&mut self, format: NumberFormat) {
        let shape = self.config.attention_shape();
        self.kv_format = match format {
            NumberFormat::F32 => self.device.attention_format(shape),
            NumberFormat::Bf16 => format,
        };
    }

    /// The format of keys and values in caches.
    pub fn kv_format(&self) -> NumberFormat {
        self.kv_format
    }

    /// Location of every parameter but matrices that are held in bf16 alone.
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Longest sequence, prompt included.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Location of every parameter that is trained: the adapter's where there is one, else all.
    pub fn trained_layout(&self) -> &ParamLayout {
        self.adapter.as_ref().map_or(&self.layout, |it| &it.layout)
    }

    /// The weights that are trained, laid out as [`Model::trained_layout`] says but for matrices that are split.
    pub fn trained(&self) -> &D::Buf {
        self.adapter.as_ref().map_or(&self.params, |it| &it.params)
    }

    /// Overwrites the trained weights from `offset` on that `part` has.
    ///
    /// # Panics
    /// When the part goes beyond the buffer.
    pub fn set_trained_at(&mut self, offset: usize, part: &[f32]) {
        match &mut self.adapter {
            Some(it) => self.device.upload(part, it.params.at_mut(offset, part.len())),
            None => self.set_params_at(offset, part),
        }
    }

    /// Buffers with every weight that is not trained: none without an adapter.
    pub fn frozen(&self) -> Vec<&D::Buf> {
        if self.adapter.is_none() {
            return Vec::new();
        }
        let packed = self.packed_alone();
        let (matrices, tails) =
            (packed.map(PackedWeights::buf), packed.and_then(PackedWeights::tails));
        [Some(&self.params), matrices, tails].into_iter().flatten().collect()
    }

    /// All weights, laid out as [`Model::layout`] says but for matrices that are split.
    pub fn params(&self) -> &D::Buf {
        &self.params
    }

    /// The same, to write.
    pub fn params_mut(&mut self) -> &mut D::Buf {
        self.invalidate_packed();
        &mut self.params
    }

    /// Overwrites all weights by a flat buffer laid out as [`Model::layout`] says.
    ///
    /// # Panics
    /// When the buffer has another length.
    pub fn set_params(&mut self, flat: &[f32]) {
        assert_eq!(flat.len(), self.layout.len(), "one number per weight");
        self.set_params_at(0, flat);
    }

    /// As [`Model::set_params`], of the weights from `offset` on that `part` has.
    ///
    /// # Panics
    /// When the part goes beyond the buffer.
    pub fn set_params_at(&mut self, offset: usize, part: &[f32]) {
        if self.split().is_some() {
            return self.write_split(offset, part);
        }
        self.invalidate_packed();
        let to = self.params.at_mut(offset, part.len());
        self.device.upload(part, to);
    }

    /// Loads a tensor given in its published order, the model's or the adapter's.
    ///
    /// # Errors
    /// An unknown name or another number of elements.
    pub fn set_tensor(&mut self, name: &str, published: &[f32]) -> Result<(), ComputeError> {
        if let Some(adapter) = &mut self.adapter
            && let Ok(param) = adapter.layout.get(name)
        {
            let to = adapter.params.at_mut(param.offset, param.len);
            self.device.upload(&param.to_buffer(published)?, to);
            return Ok(());
        }
        if self.split().is_none()
            && let Some(packed) = self.packed.as_mut().filter(|it| it.state == Packed::Alone)
            && packed.set_rows(&self.device, &self.config, (name, 0), published)?
        {
            return Ok(());
        }
        let param = self.layout.get(name)?;
        let (offset, data) = (param.offset, param.to_buffer(published)?);
        self.set_params_at(offset, &data);
        Ok(())
    }

    /// A tensor in its published order.
    ///
    /// # Errors
    /// An unknown name.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, ComputeError> {
        if let Some(adapter) = &self.adapter
            && let Ok(param) = adapter.layout.get(name)
        {
            return Ok(self.read(&adapter.params, param));
        }
        if self.split().is_none()
            && let Some(packed) = self.packed_alone()
            && let Some(it) = packed.published(&self.device, &self.config, name)?
        {
            return Ok(it);
        }
        let param = self.layout.get(name)?;
        Ok(param.published(|first, to| self.read_params(param.offset + first, to)))
    }

    /// The same of any buffer laid out as the trained parameters: gradients, moments.
    ///
    /// # Errors
    /// An unknown name.
    pub fn published(&self, buffer: &D::Buf, name: &str) -> Result<Vec<f32>, ComputeError> {
        Ok(self.read(buffer, self.trained_layout().get(name)?))
    }

    /// Squared norm of every tensor of a buffer laid out as the trained parameters, in the order of the layout.
    pub fn squared_norms(&self, buffer: &D::Buf) -> Vec<f64> {
        let params = self.trained_layout().params().iter();
        let ranges: Vec<Range> = params.map(|it| (it.offset, it.len)).collect();
        self.device.enter(|| self.device.squared_norms(buffer, &ranges))
    }

    fn read(&self, buffer: &D::Buf, param: &Param) -> Vec<f32> {
        param.published(|first, to| {
            self.device.download(buffer.at(param.offset + first, to.len()), to);
        })
    }

    pub(crate) fn param(&self, range: Range) -> Span<'_, D::Buf> {
        let (at, len) = match self.split() {
            Some(_) => self.locations.flat_range(&self.layout, range),
            None => range,
        };
        self.params.at(at, len)
    }

    pub(crate) fn embedding_layout(&self) -> EmbeddingLayout {
        if self.config.tied {
            EmbeddingLayout::Columns { vocabulary: self.config.vocab_size }
        } else {
            EmbeddingLayout::Rows { width: self.config.hidden }
        }
    }

    pub(crate) fn angles(&self) -> Span<'_, D::Buf> {
        self.angles.first(self.angles.len())
    }

    /// Embeddings of tokens, the input of the first layer.
    pub(crate) fn embed(&self, device: &D, tokens: &D::Table<u32>, x: SpanMut<D::Buf>) {
        // A split one that is no product's factor is held in f32.
        if let Some(it) = self.packed_alone().filter(|_| self.config.tied || self.split().is_none())
        {
            return device.embed_packed(self.config.hidden, tokens, it.at(it.embedding), x);
        }
        let embedding = self.param(self.roles.embedding);
        device.embed(self.embedding_layout(), tokens, embedding, x);
    }
}

impl<D: Device> Model<D> {
    /// Makes the bf16 copy if it is exact: results stay the same to the bit.
    ///
    /// # Errors
    /// No memory.
    pub fn pack_exact(&mut self) -> Result<Packed, ComputeError> {
        if self.packed() == Packed::Alone {
            return Ok(Packed::Alone);
        }
        if is_exact(&self.device, &self.roles, &self.params) {
            self.pack(Packed::Exact)?;
        } else {
            self.packed = None;
        }
        Ok(self.packed())
    }

    /// Makes the bf16 copy anew from the weights as they are, rounding them where they are no bf16
    /// numbers. Sampled log-probabilities are then those of the rounded model.
    ///
    /// # Errors
    /// No memory.
    pub fn pack_rounded(&mut self) -> Result<Packed, ComputeError> {
        if self.packed() == Packed::Alone {
            return Ok(Packed::Alone);
        }
        let exact = is_exact(&self.device, &self.roles, &self.params);
        self.pack(if exact { Packed::Exact } else { Packed::Rounded })?;
        Ok(self.packed())
    }

    /// Which weights decoding reads.
    pub fn packed(&self) -> Packed {
        (self.packed.as_ref()).map_or(Packed::No, |it| it.state)
    }

    /// Frees the copy's memory.
    pub fn unpack(&mut self) {
        self.packed.take_if(|it| it.state != Packed::Alone);
    }

    /// The weights have changed.
    pub(crate) fn invalidate_packed(&mut self) {
        if let Some(it) = self.packed.as_mut().filter(|it| it.state != Packed::Alone) {
            it.state = Packed::No;
        }
    }

    /// The matrices, where there are no others than those in bf16.
    pub(crate) fn packed_alone(&self) -> Option<&PackedWeights<D>> {
        self.packed.as_ref().filter(|it| it.state == Packed::Alone)
    }

    /// Bytes of the weights that a step of decoding reads.
    pub(crate) fn weight_bytes(&self) -> usize {
        let packed = self.packed_alone().map_or(0, |it| it.buf().len());
        (self.params.len() + packed) * size_of::<f32>()
    }

    /// The copy, where sampling `rows` rows is to read it.
    pub(crate) fn packed_for(&self, rows: usize) -> Option<&PackedWeights<D>> {
        self.packed.as_ref().filter(|it| it.is_read_for(rows))
    }

    fn pack(&mut self, state: Packed) -> Result<(), ComputeError> {
        let old = self.packed.take();
        let (device, config) = (&self.device, &self.config);
        self.packed = PackedWeights::of(device, config, &self.roles, &self.params, state, old)?;
        Ok(())
    }
}

/// The shape of a product of `rows` rows with a matrix.
pub(crate) fn mat(rows: usize, inputs: usize, outputs: usize) -> MatShape {
    MatShape { rows, inputs, outputs }
}

fn check(config: &Config) -> Result<(), ComputeError> {
    let positive = [
        ("vocab_size", config.vocab_size),
        ("hidden", config.hidden),
        ("layers", config.layers),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("ffn", config.ffn),
    ];
    for (field, got) in positive {
        if got == 0 {
            return Err(ComputeError::Config { field, expected: "at least 1".to_owned(), got });
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return Err(ComputeError::Config {
            field: "kv_heads",
            expected: format!("a divisor of heads = {}", config.heads),
            got: config.kv_heads,
        });
    }
    if !config.head_dim.is_multiple_of(2) {
        return Err(ComputeError::Config {
            field: "head_dim",
            expected: "an even number".to_owned(),
            got: config.head_dim,
        });
    }
    Ok(())
}
