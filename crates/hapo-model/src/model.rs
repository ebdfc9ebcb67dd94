//! A decoder: its shape, and layers of linears on a device.
//!
//! Purpose: every number of a model is a [`Linear`]'s or a [`Vector`]'s, and the list of them in the order of the layout is
//! all that files, checkpoints, norms and updates know. Sampler and trainer borrow the same weights.

use hapo_core::Refusal;
use hapo_kernels::{
    Buffer, Device, EmbeddingLayout, Held, Matrix, NumberFormat, Numbers, NumbersMut, Placed,
    ReadRows, RmsNorm, Span, SpanMut,
};

use crate::config::decoder::{Norms, QkNorm, angles};
use crate::linear::{Linear, Tensor, TensorMut, Vector};
use crate::param_layout::{
    EMBEDDING, HEAD, NORM, Param, ParamLayout, Projection, Range, unknown_tensor,
};
use crate::{config::Config, families, gradients::Gradients, lora::LoraShape};

#[derive(Debug)]
pub struct Model<D: Device> {
    pub(crate) device: D,
    pub(crate) config: Config,
    layout: ParamLayout,
    held: Held,
    /// Is `None` where it is the head, transposed.
    embedding: Option<Linear<D>>,
    pub(crate) layers: Vec<Layer<D>>,
    pub(crate) norm: Vector<D>,
    pub(crate) head: Linear<D>,
    /// Of each rotary embedding of the decoder.
    angles: Vec<D::Buf>,
    positions: usize,
    adapter: Option<(LoraShape, ParamLayout)>,
    kv_format: NumberFormat,
    /// Bytes of all matrices and vectors as they were loaded, without what decoding packs beside them.
    weight_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Layer<D: Device> {
    pub(crate) attn_norms: [Option<Vector<D>>; 2],
    pub(crate) q: Linear<D>,
    pub(crate) k: Linear<D>,
    pub(crate) v: Linear<D>,
    pub(crate) qk_norm: Option<[Vector<D>; 2]>,
    pub(crate) o: Linear<D>,
    pub(crate) mlp_norms: [Option<Vector<D>>; 2],
    pub(crate) gate: Linear<D>,
    pub(crate) up: Linear<D>,
    pub(crate) down: Linear<D>,
}

impl<D: Device> Layer<D> {
    fn new(
        device: &D,
        layout: &ParamLayout,
        index: usize,
        held: Held,
        norms: Norms,
    ) -> Result<Self, Refusal> {
        let param = |name: &str| layout.get(&format!("model.layers.{index}.{name}"));
        let vector = |name: &str| Vector::new(device, param(name)?);
        let of = |which: Projection, what| param(&format!("{}.{what}", which.module()));
        let mut linears = Vec::new();
        for group in Projection::BESIDE {
            let matrices = group.iter().map(|it| of(*it, "weight"));
            let matrices = matrices.collect::<Result<Vec<_>, _>>()?;
            let biases: Vec<_> = group.iter().filter_map(|it| of(*it, "bias").ok()).collect();
            assert!([0, group.len()].contains(&biases.len()), "biases for all that lie beside");
            linears.extend(Linear::beside(device, [&matrices, &biases], held)?);
        }
        let [q, k, v, o, gate, up, down] =
            linears.try_into().expect("a matrix for each projection");
        let of_heads = ["self_attn.q_norm.weight", "self_attn.k_norm.weight"];
        let qk_norm = match of_heads.map(|name| param(name).is_ok()) {
            [true, true] => Some([vector(of_heads[0])?, vector(of_heads[1])?]),
            _ => None,
        };
        let [before_attention, after_attention, before_mlp, after_mlp] =
            norms.names().map(|name| name.map(vector).transpose());
        Ok(Self {
            attn_norms: [before_attention?, after_attention?],
            q,
            k,
            v,
            qk_norm,
            o,
            mlp_norms: [before_mlp?, after_mlp?],
            gate,
            up,
            down,
        })
    }

    /// Its matrices in the order of [`Projection::ALL`].
    pub(crate) fn linears(&self) -> [&Linear<D>; 7] {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down]
    }

    fn linears_mut(&mut self) -> [&mut Linear<D>; 7] {
        let Self { q, k, v, o, gate, up, down, .. } = self;
        [q, k, v, o, gate, up, down]
    }

    fn tensors(&self) -> impl Iterator<Item = (Range, Tensor<'_, D>)> {
        let norms = self.attn_norms.iter().chain(&self.mlp_norms).flatten();
        let vectors = norms.chain(self.qk_norm.iter().flatten()).map(Vector::tensor);
        self.linears().into_iter().flat_map(Linear::tensors).chain(vectors)
    }

    fn tensors_mut(&mut self) -> impl Iterator<Item = (Range, TensorMut<'_, D>)> {
        let Self { attn_norms, q, k, v, qk_norm, o, mlp_norms, gate, up, down } = self;
        let norms = attn_norms.iter_mut().chain(mlp_norms).flatten();
        let vectors = norms.chain(qk_norm.iter_mut().flatten()).map(Vector::tensor_mut);
        [q, k, v, o, gate, up, down].into_iter().flat_map(Linear::tensors_mut).chain(vectors)
    }
}

struct Found<'a> {
    param: &'a Param,
    index: usize,
    is_adapters: bool,
}

/// A copy of the weights that are trained, as products read them.
#[derive(Debug)]
pub struct WeightsCopy<D: Device>(Vec<Copied<D>>);

#[derive(Debug)]
enum Copied<D: Device> {
    Vector(D::Buf),
    Matrix(D::Weight),
}

impl<D: Device> Model<D> {
    /// A decoder of zeros for sequences of at most `positions` tokens (prompt included), to be trained. Fill it with
    /// [`Model::set_tensor`].
    pub fn new(device: D, config: Config, positions: usize) -> Result<Self, Refusal> {
        Self::held(device, config, positions, Held::Trained)
    }

    /// As [`Model::new`], with matrices for a purpose.
    pub fn held(device: D, config: Config, positions: usize, held: Held) -> Result<Self, Refusal> {
        config.check()?;
        families::check_run(&config, device.caps(), None)?;
        // An embedding that is looked up only is held by tokens if it is trained, else as the head is.
        let (layout, looked_up) = match held {
            Held::Frozen(NumberFormat::Bf16) => (ParamLayout::transposed(&config), held),
            _ => (ParamLayout::of(&config), Held::Plain),
        };
        let layout = layout.on(device.caps());
        let matrix = |name: &str, held| Linear::new(&device, layout.get(name)?, held);
        let embedding = if config.tied { None } else { Some(matrix(EMBEDDING, looked_up)?) };
        let head = matrix(if config.tied { EMBEDDING } else { HEAD }, held)?;
        let norms = config.decoder.norms;
        let layer = |index| Layer::new(&device, &layout, index, held, norms);
        let layers = (0..config.layers).map(layer);
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let norm = Vector::new(&device, layout.get(NORM)?)?;
        let angles = config.decoder.ropes.iter().map(|it| {
            let table = angles(&config, it, positions);
            let mut angles = device.alloc(table.len(), NumberFormat::F32)?;
            device.upload(&table, angles.first_mut(table.len()));
            Ok::<_, Refusal>(angles)
        });
        let angles = angles.collect::<Result<Vec<_>, _>>()?;
        let kv_format = device.caps().attention(config.attention_shape());
        let mut model = Self {
            device,
            config,
            layout,
            held,
            embedding,
            layers,
            norm,
            head,
            angles,
            positions,
            adapter: None,
            kv_format,
            weight_bytes: 0,
        };
        model.weight_bytes = model.tensors().iter().map(bytes_of::<D>).sum();
        Ok(model)
    }

    /// Names the tokens that end its answers, as written folders have them.
    pub fn set_eos(&mut self, eos: &[u32]) {
        self.config.eos = eos.to_vec();
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Rounds keys and values to the format of the caches. Every one is rounded before anything reads it, so sampled
    /// tokens do not depend on earlier contents of the cache. A tape reads them unrounded, so in bf16 its
    /// log-probabilities differ from the sampler's, unless the device's attention rounds them anyway: then caches are
    /// in bf16 from the start, at no loss.
    pub fn round_keys_and_values_to(&mut self, format: NumberFormat) {
        self.kv_format = match format {
            NumberFormat::F32 => self.device.caps().attention(self.config.attention_shape()),
            NumberFormat::Bf16 => format,
        };
    }

    pub fn kv_format(&self) -> NumberFormat {
        self.kv_format
    }

    /// The place of every parameter, without an adapter's.
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    /// The place of every parameter that is trained: the adapter's where there is one, else all.
    pub fn trained_layout(&self) -> &ParamLayout {
        self.adapter.as_ref().map_or(&self.layout, |(_, layout)| layout)
    }

    /// Numbers of the weights that are trained, laid out as [`Model::trained_layout`] says.
    pub fn trained_len(&self) -> usize {
        self.trained_layout().len()
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    /// Longest sequence, prompt included.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Bytes of its buffers, an adapter's included.
    pub fn bytes(&self) -> usize {
        let pairs = self.pairs().iter().map(bytes_of::<D>).sum::<usize>();
        let angles = self.angles.iter().map(Buffer::bytes).sum::<usize>();
        self.tensors().iter().map(bytes_of::<D>).sum::<usize>() + pairs + angles
    }

    /// Bytes of the weights that a step of decoding reads.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Prepares the matrices for decoding where that changes no bit of a result; whether all of them are faster.
    pub fn pack_for_decode(&mut self) -> Result<bool, Refusal> {
        let Self { device, layers, head, .. } = self;
        let mut all = true;
        for linear in layers.iter_mut().flat_map(Layer::linears_mut).chain([head]) {
            all &= linear.weight.pack_for_decode(device)?;
        }
        Ok(all)
    }

    /// Loads a tensor given in its published order, the model's or the adapter's.
    pub fn set_tensor(&mut self, name: &str, published: &[f32]) -> Result<(), Refusal> {
        let found = self.find(name)?;
        let param = found.param.clone();
        let (is_adapters, index) = (found.is_adapters, found.index);
        let device = self.device.clone();
        let mut tensors = if is_adapters { self.pairs_mut() } else { self.tensors_mut() };
        param.check(published.len())?;
        let row = param.len / param.shape[0];
        fill(&device, &param, &mut tensors[index], 1, &|rows, take| {
            take(&published[rows.start * row..rows.end * row]);
            Ok(())
        })
    }

    /// A tensor in its published order.
    pub fn tensor(&self, name: &str) -> Result<Vec<f32>, Refusal> {
        let Found { param, index, is_adapters } = self.find(name)?;
        let tensors = if is_adapters { self.pairs() } else { self.tensors() };
        Ok(param.published(|first, to| read(&self.device, &tensors[index], first, to)))
    }

    fn find(&self, name: &str) -> Result<Found<'_>, Refusal> {
        let adapters = self.adapter.as_ref().map(|(_, layout)| (layout, true));
        for (layout, is_adapters) in adapters.into_iter().chain([(&self.layout, false)]) {
            if let Some(index) = layout.position(name) {
                return Ok(Found { param: &layout.params()[index], index, is_adapters });
            }
        }
        Err(unknown_tensor(name))
    }

    /// The same of any buffer laid out as the trained parameters: gradients, moments.
    pub fn published(&self, buffer: &D::Buf, name: &str) -> Result<Vec<f32>, Refusal> {
        let param = self.trained_layout().get(name)?;
        Ok(param.published(|first, to| {
            self.device.download(buffer.at(param.offset + first, to.len()), to);
        }))
    }

    /// Copies the trained weights from `offset` on to the host; gaps between tensors are 0.
    ///
    /// # Panics
    /// When the part goes beyond the layout.
    pub fn read_trained(&self, offset: usize, to: &mut [f32]) {
        self.read_part(self.trained_layout(), &self.trained(), offset, to);
    }

    /// The same of all weights without an adapter's, laid out as [`Model::layout`] says.
    pub fn read_weights(&self, offset: usize, to: &mut [f32]) {
        self.read_part(&self.layout, &self.tensors(), offset, to);
    }

    fn read_part(
        &self,
        layout: &ParamLayout,
        tensors: &[Tensor<'_, D>],
        offset: usize,
        to: &mut [f32],
    ) {
        assert!(offset + to.len() <= layout.len(), "a part inside the weights");
        to.fill(0.0);
        for (index, first, within) in layout.parts(offset, to.len()) {
            read(&self.device, &tensors[index], first, &mut to[within]);
        }
    }

    /// Overwrites the trained weights from `offset` on that `part` has.
    ///
    /// # Panics
    /// When the part goes beyond the layout.
    pub fn write_trained(&mut self, offset: usize, part: &[f32]) {
        assert!(offset + part.len() <= self.trained_len(), "a part inside the weights");
        let parts: Vec<_> = self.trained_layout().parts(offset, part.len()).collect();
        let device = self.device.clone();
        let mut tensors = self.trained_mut();
        for (index, first, within) in parts {
            write(&device, &mut tensors[index], first, &part[within]);
        }
    }

    pub fn gradients(&self) -> Result<Gradients<D>, Refusal> {
        let of_heads = match self.config.decoder.qk_norm {
            Some(QkNorm::Row) => self.config.attention_shape().q_dim(),
            _ => self.config.head_dim,
        };
        let longest = self.config.hidden.max(of_heads);
        let unread = if self.adapter.is_some() { longest } else { 0 };
        Gradients::zeros(&self.device, self.trained_len(), unread)
    }

    /// Squared norm of every trained tensor's gradient, in the order of the layout; zeros when cleared.
    pub fn gradient_norms(&self, gradients: &Gradients<D>) -> Vec<f64> {
        let params = self.trained_layout().params();
        if gradients.is_cleared() {
            return vec![0.0; params.len()];
        }
        let span = |at, len| Numbers::Span(gradients.buf().at(at, len));
        let tensors: Vec<Tensor<'_, D>> = params.iter().map(|it| span(it.offset, it.len)).collect();
        self.device.enter(|| self.device.squared_norms(&tensors))
    }

    /// Squared norm of every tensor that is trained, in the order of the layout.
    pub fn trained_squared_norms(&self) -> Vec<f64> {
        let tensors = self.trained();
        self.device.enter(|| self.device.squared_norms(&tensors))
    }

    pub(crate) fn placed(&mut self) -> Vec<Placed<'_, D::Buf, D::Weight>> {
        let places: Vec<_> = self.trained_layout().params().iter().map(Param::place).collect();
        let placed = places.into_iter().zip(self.trained_mut());
        placed.map(|((at, len), numbers)| Placed { at, len, numbers }).collect()
    }

    /// A copy of the weights that are trained, for [`Model::swap_trained`].
    pub fn copy_trained(&self) -> Result<WeightsCopy<D>, Refusal> {
        let copy = |tensor: Tensor<'_, D>| match tensor {
            Numbers::Weight(it) => Ok(Copied::Matrix(it.copy_of(&self.device)?)),
            Numbers::Span(it) => {
                let mut to = self.device.alloc(it.len, NumberFormat::F32)?;
                self.device.copy(it, to.first_mut(it.len));
                Ok(Copied::Vector(to))
            }
        };
        let copies = self.trained().into_iter().map(copy).collect::<Result<_, Refusal>>()?;
        self.device.check()?;
        Ok(WeightsCopy(copies))
    }

    /// Exchanges the weights that are trained, as products read them, with a copy.
    pub fn swap_trained(&mut self, other: &mut WeightsCopy<D>) {
        let device = self.device.clone();
        for (here, there) in self.trained_mut().into_iter().zip(&mut other.0) {
            match (here, there) {
                // Where it lies, since biases lie beside each other.
                (NumbersMut::Span(mut here), Copied::Vector(there)) => {
                    let [mut ours, mut theirs] = [vec![0.0; here.len], vec![0.0; here.len]];
                    device.download(here.buf.at(here.offset, here.len), &mut ours);
                    device.download(there.first(here.len), &mut theirs);
                    device.upload(&theirs, here.again());
                    device.upload(&ours, there.first_mut(here.len));
                }
                (NumbersMut::Weight(here), Copied::Matrix(there)) => here.swap(&device, there),
                _ => debug_assert!(false, "a copy of this model"),
            }
        }
    }

    /// Puts an adapter of zeros beside the weights, in the place of the one before; updates then leave the weights as they
    /// are. Fill it with [`Model::set_tensor`].
    pub fn add_adapter(&mut self, shape: LoraShape) -> Result<(), Refusal> {
        families::check_run(&self.config, self.device.caps(), Some(&shape))?;
        let layout = shape.layout(&self.config).on(self.device.caps());
        let mut places = layout.params().iter().map(Param::place);
        for layer in &mut self.layers {
            let mut all = layer.linears_mut().into_iter().zip(Projection::ALL);
            for group in Projection::BESIDE {
                let mut linears: Vec<_> = all.by_ref().take(group.len()).collect();
                Linear::add_pairs(&self.device, &shape, &mut linears, &mut places)?;
            }
        }
        drop(places);
        self.adapter = Some((shape, layout));
        Ok(())
    }

    pub fn adapter(&self) -> Option<&LoraShape> {
        self.adapter.as_ref().map(|(shape, _)| shape)
    }

    /// Its rank; 0 without an adapter.
    pub(crate) fn rank(&self) -> usize {
        self.adapter().map_or(0, |it| it.rank)
    }

    /// Adds the adapter to the weights, W + s·A·B, and drops it.
    pub fn merge_adapter(&mut self) -> Result<(), Refusal> {
        if self.held == Held::Frozen(NumberFormat::Bf16) {
            let problem = "the weights are held in bf16 alone and take no sum with an adapter";
            return Err(Refusal::bug(problem.to_owned()));
        }
        for linear in self.layers.iter_mut().flat_map(Layer::linears_mut) {
            linear.merge_pair(&self.device)?;
        }
        self.adapter = None;
        Ok(self.device.check()?)
    }

    fn tensors(&self) -> Vec<Tensor<'_, D>> {
        let linears = self.embedding.iter().chain([&self.head]).flat_map(Linear::tensors);
        let of_layers = self.layers.iter().flat_map(Layer::tensors);
        in_order(linears.chain(of_layers).chain([self.norm.tensor()]))
    }

    pub(crate) fn tensors_mut(&mut self) -> Vec<TensorMut<'_, D>> {
        let Self { embedding, layers, norm, head, .. } = self;
        let linears = embedding.iter_mut().chain([head]).flat_map(Linear::tensors_mut);
        let of_layers = layers.iter_mut().flat_map(Layer::tensors_mut);
        in_order(linears.chain(of_layers).chain([norm.tensor_mut()]))
    }

    fn pairs(&self) -> Vec<Tensor<'_, D>> {
        self.layers.iter().flat_map(Layer::linears).flat_map(Linear::pair).collect()
    }

    fn pairs_mut(&mut self) -> Vec<TensorMut<'_, D>> {
        self.layers.iter_mut().flat_map(Layer::linears_mut).flat_map(Linear::pair_mut).collect()
    }

    fn trained(&self) -> Vec<Tensor<'_, D>> {
        if self.adapter.is_some() { self.pairs() } else { self.tensors() }
    }

    fn trained_mut(&mut self) -> Vec<TensorMut<'_, D>> {
        if self.adapter.is_some() { self.pairs_mut() } else { self.tensors_mut() }
    }

    /// Where tokens are looked up: a matrix of its own, or the head.
    fn embedding(&self) -> &Linear<D> {
        self.embedding.as_ref().unwrap_or(&self.head)
    }

    fn embedding_layout(&self) -> EmbeddingLayout {
        let is_transposed = self.layout.get(EMBEDDING).is_ok_and(|it| it.transposed);
        if is_transposed {
            EmbeddingLayout::Columns { vocabulary: self.config.vocab_size }
        } else {
            EmbeddingLayout::Rows { width: self.config.hidden }
        }
    }

    pub(crate) fn angles(&self, layer: usize) -> Option<Span<'_, D::Buf>> {
        let which = self.config.decoder.kind(layer).rope?;
        Some(self.angles[which].first(self.angles[which].len()))
    }

    /// Embeddings of tokens, the input of the first layer.
    pub(crate) fn embed(&self, device: &D, tokens: &D::Table<u32>, mut x: SpanMut<D::Buf>) {
        let embedding = Numbers::Weight(&self.embedding().weight);
        device.gather_rows(self.embedding_layout(), tokens, embedding, x.again());
        times(device, x, self.config.decoder.multipliers.embedding);
    }

    /// The final norm of rows, times the factor of the logits.
    pub(crate) fn final_norm(
        &self,
        device: &D,
        x: Span<'_, D::Buf>,
        mut y: SpanMut<'_, D::Buf>,
        inverse_rms: SpanMut<'_, D::Buf>,
    ) {
        let Config { rms_eps: eps, decoder, .. } = &self.config;
        device.rms_norm(RmsNorm {
            eps: *eps,
            offset: decoder.norm_offset(),
            x,
            w: self.norm.all(),
            y: y.again(),
            inverse_rms,
            residual: None,
        });
        times(device, y, decoder.multipliers.logits);
    }

    /// Adds the embedding's gradient after the head's; overwrites `dx`.
    pub(crate) fn embed_grad(
        &self,
        tokens: &D::Table<u32>,
        mut dx: SpanMut<D::Buf>,
        gradients: &mut Gradients<D>,
    ) {
        times(&self.device, dx.again(), self.config.decoder.multipliers.embedding);
        let dx = dx.buf.at(dx.offset, dx.len);
        if !gradients.are_of_weights() {
            return;
        }
        let place = self.embedding().place;
        let to = match self.embedding {
            // The head's gradient is there already.
            None => gradients.at_mut(place),
            Some(_) => gradients.cleared(&self.device, place),
        };
        self.device.embed_grad(self.embedding_layout(), tokens, dx, to);
    }
}

impl<D: Device> WeightsCopy<D> {
    pub fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|it| match it {
            Copied::Vector(it) => it.bytes(),
            Copied::Matrix(it) => it.bytes(),
        });
        bytes.sum::<usize>() as u64
    }
}

/// Tensors in the order of the layout.
fn in_order<T>(tensors: impl Iterator<Item = (Range, T)>) -> Vec<T> {
    let mut all: Vec<_> = tensors.collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, it)| it).collect()
}

fn bytes_of<D: Device>(tensor: &Tensor<'_, D>) -> usize {
    match tensor {
        Numbers::Span(it) => it.buf.bytes(),
        Numbers::Weight(it) => it.bytes(),
    }
}

/// Multiplies every number, where the factor is not 1.
pub(crate) fn times<D: Device>(device: &D, x: SpanMut<D::Buf>, factor: f64) {
    if factor != 1.0 {
        device.scale(x, factor as f32);
    }
}

fn read<D: Device>(device: &D, tensor: &Tensor<'_, D>, first: usize, to: &mut [f32]) {
    match tensor {
        Numbers::Span(it) => device.download(it.part(first, to.len()), to),
        Numbers::Weight(it) => it.read(device, first, to),
    }
}

/// A whole tensor, of which `read` hands over rows in their published order, `together` or a multiple of it.
pub(crate) fn fill<D: Device>(
    device: &D,
    param: &Param,
    tensor: &mut TensorMut<'_, D>,
    together: usize,
    read: ReadRows<'_>,
) -> Result<(), Refusal> {
    match tensor {
        NumbersMut::Span(it) => read(0..param.shape[0], &mut |values| {
            device.upload(values, it.buf.at_mut(it.offset, values.len()));
        }),
        NumbersMut::Weight(it) => {
            it.write_published(device, param.published_matrix(together), read)
        }
    }
}

pub(crate) fn write<D: Device>(
    device: &D,
    tensor: &mut TensorMut<'_, D>,
    first: usize,
    from: &[f32],
) {
    match tensor {
        NumbersMut::Span(it) => device.upload(from, it.buf.at_mut(it.offset + first, from.len())),
        NumbersMut::Weight(it) => it.write(device, first, from),
    }
}
