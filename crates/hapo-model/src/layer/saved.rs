//! Values that a layer saves from its forward to its backward pass, and buffers that all layers use in turn.

use hapo_core::Refusal;
use hapo_kernels::{BufferSize, Device, NumberFormat};

use crate::config::Config;

/// Buffers that all layers use in turn.
#[derive(Debug)]
pub(crate) struct Scratch<D: Device> {
    pub(crate) mlp_hidden: D::Buf,
    /// s·x·A, `[rows, rank]`, of a matrix.
    pub(crate) low: D::Buf,
    /// Queries, keys and values in f32, where attention reads another format.
    pub(crate) heads: Option<[D::Buf; 3]>,
    /// A block's output, where it is not added as it is.
    pub(crate) block: Option<D::Buf>,
}

/// Results of products of one x.
fn beside<D: Device, const N: usize>(
    device: &D,
    rows: usize,
    widths: [usize; N],
    format: NumberFormat,
) -> Result<[D::Buf; N], Refusal> {
    let buffers = device.alloc_beside(rows, &widths, format)?;
    Ok(buffers.try_into().expect("a buffer for each width"))
}

fn where_needed<D: Device>(
    device: &D,
    is_needed: bool,
    len: usize,
) -> Result<Option<D::Buf>, Refusal> {
    let buf = is_needed.then(|| device.alloc(len, NumberFormat::F32));
    Ok(buf.transpose()?)
}

impl<D: Device> Scratch<D> {
    pub(crate) fn new(
        device: &D,
        config: &Config,
        rows: usize,
        rank: usize,
    ) -> Result<Self, Refusal> {
        let factors = device.caps().factors();
        let mlp_hidden =
            device.alloc(BufferSize { rows, width: config.ffn, room: rank }, factors)?;
        let shape = config.attention_shape();
        let widths = [shape.q_dim(), shape.kv_dim(), shape.kv_dim()];
        let wide = |width: usize| device.alloc(rows * width, NumberFormat::F32);
        let heads = match (device.caps().attention(shape), config.decoder.qk_norm) {
            (NumberFormat::F32, _) => None,
            (NumberFormat::Bf16, None) => Some(beside(device, rows, widths, NumberFormat::F32)?),
            // A norm writes queries and keys, the products of which go elsewhere.
            (NumberFormat::Bf16, Some(_)) => {
                let [q, k, v] = widths.map(wide);
                Some([q?, k?, v?])
            }
        };
        let decoder = &config.decoder;
        let is_changed = decoder.norms.are_after() || decoder.multipliers.residual != 1.0;
        let block = where_needed(device, is_changed, rows * config.hidden)?;
        let low = device.alloc(rows * rank, factors)?;
        Ok(Self { mlp_hidden, low, heads, block })
    }
}

/// Activations of one layer that its gradient reads; in decoding, the keys and values of all layers.
#[derive(Debug)]
pub(crate) struct LayerActivations<D: Device> {
    pub(crate) attn_norm: D::Buf,
    pub(crate) attn_norm_inverse: D::Buf,
    /// q and k before the norm of their heads, where there is one.
    pub(crate) raw_heads: Option<[NormInput<D>; 2]>,
    pub(crate) qkv: [D::Buf; 3],
    pub(crate) attn_out: D::Buf,
    pub(crate) log_sums: D::Buf,
    /// The outputs of attention and of the MLP before the norms after them.
    pub(crate) blocks: Option<[NormInput<D>; 2]>,
    pub(crate) resid_mid: D::Buf,
    pub(crate) mlp_norm: D::Buf,
    pub(crate) mlp_norm_inverse: D::Buf,
    pub(crate) gate: D::Buf,
    pub(crate) up: D::Buf,
}

/// What a norm reads, and the inverse that it multiplies by, for its gradient.
#[derive(Debug)]
pub(crate) struct NormInput<D: Device> {
    pub(crate) x: D::Buf,
    pub(crate) inverse: D::Buf,
}

impl<D: Device> LayerActivations<D> {
    /// Buffers for keys and values of `kv_layers` layers, and for one layer of all else; `rank` is an adapter's or 0.
    pub(crate) fn new(
        device: &D,
        config: &Config,
        rows: usize,
        rank: usize,
        kv_layers: usize,
    ) -> Result<Self, Refusal> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim, kv_width) = (shape.q_dim(), shape.kv_dim(), kv_layers * shape.kv_dim());
        let (factors, attention) = (device.caps().factors(), device.caps().attention(shape));
        let buf = |width: usize| device.alloc(rows * width, NumberFormat::F32);
        let of_attention = |width: usize| device.alloc(rows * width, attention);
        let input = |width: usize, inverses: usize| {
            Ok::<_, Refusal>(NormInput { x: buf(width)?, inverse: buf(inverses)? })
        };
        // Some matrices with pairs read a norm's output together.
        let normed = |pairs: usize| {
            let size = BufferSize { rows, width: config.hidden, room: pairs * rank };
            device.alloc(size, factors)
        };
        let [gate, up] = beside(device, rows, [config.ffn; 2], factors)?;
        Ok(Self {
            attn_norm: normed(3)?,
            attn_norm_inverse: buf(1)?,
            raw_heads: match config.decoder.qk_norm {
                Some(_) => Some([input(q_dim, config.heads)?, input(kv_dim, config.kv_heads)?]),
                None => None,
            },
            qkv: [of_attention(q_dim)?, of_attention(kv_width)?, of_attention(kv_width)?],
            attn_out: device.alloc(BufferSize { rows, width: q_dim, room: rank }, attention)?,
            log_sums: buf(config.heads)?,
            blocks: if config.decoder.norms.are_after() {
                Some([input(config.hidden, 1)?, input(config.hidden, 1)?])
            } else {
                None
            },
            resid_mid: buf(config.hidden)?,
            mlp_norm: normed(2)?,
            mlp_norm_inverse: buf(1)?,
            gate,
            up,
        })
    }
}

/// Gradients of the activations of one layer, used by all layers in turn.
#[derive(Debug)]
pub(crate) struct LayerGradients<D: Device> {
    /// Of the residual stream: first of the layer's output, last of its input.
    pub(crate) resid: D::Buf,
    pub(crate) norm: D::Buf,
    /// Of a block's output before the norm after it.
    pub(crate) block: Option<D::Buf>,
    pub(crate) attn_out: D::Buf,
    pub(crate) qkv: [D::Buf; 3],
}

impl<D: Device> LayerGradients<D> {
    pub(crate) fn new(device: &D, config: &Config, rows: usize) -> Result<Self, Refusal> {
        let shape = config.attention_shape();
        let (q_dim, kv_dim) = (shape.q_dim(), shape.kv_dim());
        let format = device.caps().attention(shape);
        let buf = |width: usize| device.alloc(rows * width, NumberFormat::F32);
        let of_attention = |width: usize| device.alloc(rows * width, format);
        Ok(Self {
            resid: buf(config.hidden)?,
            norm: buf(config.hidden)?,
            block: where_needed(device, config.decoder.norms.are_after(), rows * config.hidden)?,
            attn_out: of_attention(q_dim)?,
            qkv: [of_attention(q_dim)?, of_attention(kv_dim)?, of_attention(kv_dim)?],
        })
    }
}
