//! A weight matrix of the decoder with its bias and adapter: y = x·W + bias + s·(x·A)·B.
//!
//! Purpose: the one place where a layer meets a weight. A linear owns its numbers, in a form of the device's choice,
//! and knows its place among gradients, moments and files. Either W or the pair beside it has a place and is trained;
//! layers do not know which. Price: x·A is computed again in the backward pass, which costs a rank's share of the
//! product itself.

use hapo_core::Refusal;
use hapo_kernels::{
    Accumulate, Beside, Buffer, Device, Held, MatShape, Matrix, NumberFormat, Numbers, NumbersMut,
    Output, Span, SpanMut,
};

use crate::param_layout::{Param, Projection, Range, transpose};
use crate::{gradients::Gradients, lora::LoraShape};

pub(crate) type Tensor<'a, D> = Numbers<'a, <D as Device>::Buf, <D as Device>::Weight>;

pub(crate) type TensorMut<'a, D> = NumbersMut<'a, <D as Device>::Buf, <D as Device>::Weight>;

#[derive(Debug)]
pub(crate) struct Vector<D: Device> {
    numbers: D::Buf,
    pub(crate) place: Range,
}

impl<D: Device> Vector<D> {
    pub(crate) fn new(device: &D, param: &Param) -> Result<Self, Refusal> {
        let numbers = device.alloc(param.len, NumberFormat::F32)?;
        Ok(Self { numbers, place: param.place() })
    }

    /// The biases of some matrices that multiply the same numbers.
    fn beside(device: &D, params: &[&Param]) -> Result<Vec<Self>, Refusal> {
        let lengths: Vec<usize> = params.iter().map(|it| it.len).collect();
        let all = device.alloc_beside(1, &lengths, NumberFormat::F32)?.into_iter().zip(params);
        Ok(all.map(|(numbers, it)| Self { numbers, place: it.place() }).collect())
    }

    pub(crate) fn all(&self) -> Span<'_, D::Buf> {
        self.numbers.first(self.numbers.len())
    }

    pub(crate) fn tensor(&self) -> (Range, Tensor<'_, D>) {
        (self.place, Numbers::Span(self.all()))
    }

    pub(crate) fn tensor_mut(&mut self) -> (Range, TensorMut<'_, D>) {
        let len = self.numbers.len();
        (self.place, NumbersMut::Span(self.numbers.first_mut(len)))
    }
}

#[derive(Debug)]
struct Pair<D: Device> {
    /// `[inputs, rank]`.
    a: D::Weight,
    /// `[rank, outputs]`.
    b: D::Weight,
    inputs: usize,
    rank: usize,
    scale: f32,
    /// Of A and of B.
    places: [Range; 2],
}

#[derive(Debug)]
pub(crate) struct Linear<D: Device> {
    pub(crate) weight: D::Weight,
    /// Inputs and outputs; rows and columns of an embedding that is looked up.
    pub(crate) shape: [usize; 2],
    pub(crate) place: Range,
    pub(crate) bias: Option<Vector<D>>,
    pair: Option<Pair<D>>,
}

/// Input of a forward product, and the room for x·A.
pub(crate) struct Input<'a, D: Device> {
    pub(crate) device: &'a D,
    pub(crate) x: Span<'a, D::Buf>,
    /// Is `None` for a matrix that never has a pair.
    pub(crate) low: Option<&'a mut D::Buf>,
}

pub(crate) struct Backward<'a, D: Device> {
    pub(crate) device: &'a D,
    pub(crate) gradients: &'a mut Gradients<D>,
    /// Room for s·x·A.
    pub(crate) low: &'a mut D::Buf,
    /// s·dy·Bᵀ of the matrix whose gradient by the input was the last.
    pub(crate) d_low: &'a mut D::Buf,
}

impl<D: Device> Linear<D> {
    pub(crate) fn new(device: &D, param: &Param, held: Held) -> Result<Self, Refusal> {
        let shape = param.held_shape();
        let weight = D::Weight::zeros(device, shape, held)?;
        Ok(Self { weight, shape, place: param.place(), bias: None, pair: None })
    }

    /// Those that multiply the same numbers, with their biases if all have one.
    pub(crate) fn beside(
        device: &D,
        [matrices, biases]: [&[&Param]; 2],
        held: Held,
    ) -> Result<Vec<Self>, Refusal> {
        let shapes: Vec<_> = matrices.iter().map(|it| it.held_shape()).collect();
        let weights = D::Weight::zeros_beside(device, &shapes, held)?.into_iter();
        let mut biases = Vector::beside(device, biases)?.into_iter();
        let linear = |((weight, shape), it): ((_, _), &&Param)| {
            let place = it.place();
            Self { weight, shape, place, bias: biases.next(), pair: None }
        };
        Ok(weights.zip(shapes).zip(matrices).map(linear).collect())
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = (Range, Tensor<'_, D>)> {
        let weight = (self.place, Numbers::Weight(&self.weight));
        [weight].into_iter().chain(self.bias.as_ref().map(Vector::tensor))
    }

    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = (Range, TensorMut<'_, D>)> {
        let weight = (self.place, NumbersMut::Weight(&mut self.weight));
        [weight].into_iter().chain(self.bias.as_mut().map(Vector::tensor_mut))
    }

    pub(crate) fn pair(&self) -> impl Iterator<Item = Tensor<'_, D>> {
        self.pair.iter().flat_map(|it| [&it.a, &it.b]).map(Numbers::Weight)
    }

    pub(crate) fn pair_mut(&mut self) -> impl Iterator<Item = TensorMut<'_, D>> {
        self.pair.iter_mut().flat_map(|it| [&mut it.a, &mut it.b]).map(NumbersMut::Weight)
    }

    /// Puts pairs of zeros beside those of some matrices with one input that an adapter is for, at the next places.
    pub(crate) fn add_pairs(
        device: &D,
        adapter: &LoraShape,
        linears: &mut [(&mut Self, Projection)],
        places: &mut impl Iterator<Item = Range>,
    ) -> Result<(), Refusal> {
        let (rank, scale) = (adapter.rank, adapter.scale() as f32);
        let beside = linears.iter_mut().map(|(it, which)| {
            let (shape, has_pair) = (it.shape, adapter.targets.contains(which));
            Beside { weight: &mut it.weight, shape, has_pair }
        });
        let pairs = D::Weight::pairs(device, rank, beside.collect())?;
        let targets = linears.iter_mut().filter(|it| adapter.targets.contains(&it.1));
        for ((linear, _), [a, b]) in targets.zip(pairs) {
            let mut place = || places.next().expect("the layout has every pair");
            let (inputs, places) = (linear.shape[0], [place(), place()]);
            linear.pair = Some(Pair { a, b, inputs, rank, scale, places });
        }
        Ok(())
    }

    /// Adds the pair to the matrix, W + s·A·B, and drops it.
    pub(crate) fn merge_pair(&mut self, device: &D) -> Result<(), Refusal> {
        let Some(Pair { a, b, rank, scale, .. }) = self.pair.take() else { return Ok(()) };
        let [inputs, outputs] = self.shape;
        // Between the order of the device and that of rows, one for each input.
        let is_by_outputs = device.caps().holds_published();
        let turned = |numbers: Vec<f32>, [rows, columns]: [usize; 2]| {
            if is_by_outputs { transpose(&numbers, rows, columns) } else { numbers }
        };
        let read = |weight: &D::Weight, columns: usize| {
            let mut numbers = vec![0.0; inputs * columns];
            weight.read(device, 0, &mut numbers);
            turned(numbers, [columns, inputs])
        };
        let mut factor = read(&a, rank);
        for it in &mut factor {
            *it *= scale;
        }
        let mut numbers = read(&self.weight, outputs);
        let shape = MatShape { rows: inputs, inputs: rank, outputs };
        add_product(device, shape, &factor, &b, &mut numbers)?;
        self.weight.write(device, 0, &turned(numbers, [inputs, outputs]));
        Ok(())
    }

    /// `y = x·W + bias + s·(x·A)·B`.
    pub(crate) fn forward(&self, input: Input<'_, D>, y: SpanMut<D::Buf>) {
        Self::products([(self, y)], input, false);
    }

    /// `y += x·W + s·(x·A)·B`.
    pub(crate) fn add_to(&self, input: Input<'_, D>, y: SpanMut<D::Buf>) {
        Self::products([(self, y)], input, true);
    }

    /// [`Linear::forward`] of one `x` by matrices that were made beside each other.
    pub(crate) fn forward_all<const N: usize>(
        all: [(&Self, SpanMut<D::Buf>); N],
        input: Input<'_, D>,
    ) {
        Self::products(all, input, false);
    }

    /// Products of one `x`, onto what is there if `adds`.
    fn products<const N: usize>(
        all: [(&Self, SpanMut<D::Buf>); N],
        Input { device, x, low }: Input<'_, D>,
        adds: bool,
    ) {
        let outputs = all.map(|(linear, y)| {
            let onto = if adds { Accumulate::Existing } else { linear.bias() };
            let pair = linear.pair.as_ref().map(|Pair { a, b, rank, scale, .. }| {
                hapo_kernels::Pair { a, b, rank: *rank, scale: *scale }
            });
            Output { shape: linear.shape_for(x), weight: &linear.weight, pair, onto, y }
        });
        device.product(x, low, outputs.into());
    }

    fn bias(&self) -> Accumulate<'_, D::Buf> {
        self.bias.as_ref().map_or(Accumulate::Nothing, |it| Accumulate::Bias(it.all()))
    }

    /// `dx = onto + dy·Wᵀ + d_low·Aᵀ` with `d_low = s·dy·Bᵀ`, which [`Linear::weight_grad`] of the same matrix reads.
    pub(crate) fn input_grad(
        &self,
        pass: &mut Backward<'_, D>,
        dy: Span<D::Buf>,
        onto: Accumulate<D::Buf>,
        mut dx: SpanMut<D::Buf>,
    ) {
        let ([inputs, outputs], device) = (self.shape, pass.device);
        let rows = dy.len / outputs;
        let shape = MatShape { rows, inputs, outputs };
        device.product_input_grad(shape, dy, &self.weight, onto, dx.again());
        if let Some(Pair { a, b, rank, scale, .. }) = &self.pair {
            let (rank, len) = (*rank, rows * rank);
            let (shape, to) = (MatShape { rows, inputs: rank, outputs }, pass.d_low.first_mut(len));
            device.product_input_grad(shape, dy, b, Accumulate::Multiplied(*scale), to);
            let shape = MatShape { rows, inputs, outputs: rank };
            device.product_input_grad(shape, pass.d_low.first(len), a, Accumulate::Existing, dx);
        }
    }

    /// Adds the gradient of W, or of A and B: after [`Linear::input_grad`] of the same matrix.
    pub(crate) fn weight_grad(
        &self,
        pass: &mut Backward<'_, D>,
        x: Span<D::Buf>,
        dy: Span<D::Buf>,
    ) {
        let ([inputs, outputs], device) = (self.shape, pass.device);
        if pass.gradients.are_of_weights() {
            pass.gradients.add_product(device, self.place, self.shape_for(x), x, dy);
        }
        if let Some(pair) = &self.pair {
            let rows = x.len / pair.inputs;
            let shape = MatShape { rows, inputs: pair.inputs, outputs: pair.rank };
            let ([a, b], rank) = (pair.places, pair.rank);
            let (onto, y) = (Accumulate::Multiplied(pair.scale), pass.low.first_mut(rows * rank));
            device.product(x, None, vec![Output { shape, weight: &pair.a, pair: None, onto, y }]);
            let (low, d_low) = (pass.low.first(rows * rank), pass.d_low.first(rows * rank));
            let shape = MatShape { rows, inputs: rank, outputs };
            pass.gradients.add_product(device, b, shape, low, dy);
            let shape = MatShape { rows, inputs, outputs: rank };
            pass.gradients.add_product(device, a, shape, x, d_low);
        }
    }

    fn shape_for(&self, x: Span<D::Buf>) -> MatShape {
        let [inputs, outputs] = self.shape;
        MatShape { rows: x.len / inputs, inputs, outputs }
    }
}

/// Adds x·W to numbers, by the product of the decoder.
pub(crate) fn add_product<D: Device>(
    device: &D,
    shape: MatShape,
    x: &[f32],
    weight: &D::Weight,
    numbers: &mut [f32],
) -> Result<(), Refusal> {
    let uploaded = |values: &[f32]| {
        let mut buf = device.alloc(values.len(), NumberFormat::F32)?;
        device.upload(values, buf.first_mut(values.len()));
        Ok::<_, Refusal>(buf)
    };
    let (factor, mut y) = (uploaded(x)?, uploaded(numbers)?);
    let (onto, sum) = (Accumulate::Existing, y.first_mut(numbers.len()));
    let output = Output { shape, weight, pair: None, onto, y: sum };
    device.enter(|| device.product(factor.first(x.len()), None, vec![output]));
    device.download(y.first(numbers.len()), numbers);
    Ok(device.check()?)
}
