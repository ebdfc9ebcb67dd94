//! The weights of a model as one flat list of f32, however they are held.
//!
//! Purpose: checkpoints, hashes and optimisers see the layout of the parameters; whether a matrix lies in the flat
//! buffer or is split into packed numbers and tails is decided here.

use hapo_kernels::{Buffer, Device};

use crate::compute_error::ComputeError;
use crate::config::Config;
use crate::model::Model;
use crate::packed::{PackedWeights, product_names};
use crate::params::{Param, ParamLayout, Range};

/// Where a tensor of the layout is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Location {
    /// In the flat buffer, from this element on.
    Flat(usize),
    /// The split matrix of this number.
    Split(usize),
}

/// Where all tensors of a layout are.
#[derive(Clone, Debug)]
pub(crate) struct Locations {
    locations: Vec<Location>,
    len: usize,
}

impl Locations {
    /// All in the flat buffer, as the layout says.
    pub(crate) fn flat(layout: &ParamLayout) -> Self {
        let locations = layout.params().iter().map(|it| Location::Flat(it.offset)).collect();
        Self { locations, len: layout.len() }
    }

    /// The factors of products split, the others in a flat buffer that has no room for those.
    pub(crate) fn split(config: &Config, layout: &ParamLayout) -> Self {
        let products: Vec<String> = product_names(config).collect();
        let mut len = 0;
        let location = |it: &Param| {
            if let Some(index) = products.iter().position(|name| *name == it.name) {
                return Location::Split(index);
            }
            let at = len;
            len += ParamLayout::aligned(it.len);
            Location::Flat(at)
        };
        Self { locations: layout.params().iter().map(location).collect(), len }
    }

    /// The location of each tensor, in the order of the layout.
    pub(crate) fn all(&self) -> &[Location] {
        &self.locations
    }

    /// Elements of the flat buffer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where a range of the layout is in the flat buffer, which holds it.
    pub(crate) fn flat_range(&self, layout: &ParamLayout, range: Range) -> Range {
        let all = layout.params();
        let index = all.partition_point(|it| it.offset + it.len <= range.0);
        match (self.locations.get(index), all.get(index)) {
            (Some(Location::Flat(at)), Some(it)) => (at + range.0 - it.offset, range.1),
            _ => unreachable!("a matrix that is split is read as one"),
        }
    }
}

/// The part of a tensor that lies in a range of the layout.
struct Part {
    location: Location,
    /// First element within the tensor.
    first: usize,
    /// Where it lies in the range.
    within: std::ops::Range<usize>,
}

/// The parts of all tensors in `offset..offset + len`.
fn parts<'a>(
    layout: &'a ParamLayout,
    locations: &'a Locations,
    (offset, len): Range,
) -> impl Iterator<Item = Part> {
    layout.params().iter().zip(&locations.locations).filter_map(move |(param, &location)| {
        let start = param.offset.max(offset);
        let end = (param.offset + param.len).min(offset + len);
        (start < end).then(|| Part {
            location,
            first: start - param.offset,
            within: start - offset..end - offset,
        })
    })
}

/// A copy of the weights that are trained, as products read them.
#[derive(Debug)]
pub struct WeightsCopy<D: Device> {
    flat: D::Buf,
    packed: Option<D::Buf>,
}

impl<D: Device> Model<D> {
    /// Numbers of the weights that are trained, laid out as [`Model::trained_layout`] says.
    pub fn trained_len(&self) -> usize {
        self.trained_layout().len()
    }

    /// Copies the trained weights from `offset` on to the host.
    ///
    /// # Panics
    /// When the part goes beyond the layout.
    pub fn read_trained(&self, offset: usize, to: &mut [f32]) {
        match &self.adapter {
            Some(it) => self.device.download(it.params.at(offset, to.len()), to),
            None => self.read_params(offset, to),
        }
    }

    /// The same of all weights, without an adapter's.
    pub(crate) fn read_params(&self, offset: usize, to: &mut [f32]) {
        let Some(split) = self.split() else {
            return self.device.download(self.params.at(offset, to.len()), to);
        };
        assert!(offset + to.len() <= self.layout.len(), "a part inside the weights");
        // What is between tensors.
        to.fill(0.0);
        for it in parts(&self.layout, &self.locations, (offset, to.len())) {
            let to = &mut to[it.within];
            match it.location {
                Location::Flat(at) => {
                    self.device.download(self.params.at(at + it.first, to.len()), to);
                }
                Location::Split(index) => {
                    let m = split.matrix(index);
                    self.device.download_split(m.shape, it.first, m.packed, m.tails, to);
                }
            }
        }
    }

    /// Overwrites the weights of a model that splits them.
    pub(crate) fn write_split(&mut self, offset: usize, from: &[f32]) {
        assert!(offset + from.len() <= self.layout.len(), "a part inside the weights");
        let Self { device, layout, locations, params, packed, .. } = self;
        let split = packed.as_mut().expect("the weights are split");
        for it in parts(layout, locations, (offset, from.len())) {
            let from = &from[it.within];
            match it.location {
                Location::Flat(at) => device.upload(from, params.at_mut(at + it.first, from.len())),
                Location::Split(index) => {
                    let m = split.matrix_mut(index);
                    device.upload_split(m.shape, it.first, from, m.packed, m.tails);
                }
            }
        }
    }

    /// The matrices that are split, where they are.
    pub(crate) fn split(&self) -> Option<&PackedWeights<D>> {
        self.packed.as_ref().filter(|it| it.tails().is_some())
    }

    /// Squared norm of every tensor that is trained, in the order of the layout.
    pub fn trained_squared_norms(&self) -> Vec<f64> {
        let (device, layout) = (&self.device, self.trained_layout());
        let split = match &self.adapter {
            Some(it) => return self.squared_norms(&it.params),
            None => self.split(),
        };
        let Some(split) = split else {
            return self.squared_norms(&self.params);
        };
        let placed = || layout.params().iter().zip(&self.locations.locations);
        let flat = placed().filter_map(|(param, location)| match *location {
            Location::Flat(at) => Some((at, param.len)),
            Location::Split(_) => None,
        });
        let flat: Vec<Range> = flat.collect();
        let (of_flat, of_split) = device
            .enter(|| (device.squared_norms(&self.params, &flat), split.squared_norms(device)));
        let mut of_flat = of_flat.into_iter();
        let norm = |location: &Location| match *location {
            Location::Flat(_) => of_flat.next().expect("a norm of each"),
            Location::Split(index) => of_split[index],
        };
        self.locations.locations.iter().map(norm).collect()
    }

    /// A copy of the weights that are trained, for [`Model::swap_trained`].
    ///
    /// # Errors
    /// No memory.
    pub fn copy_trained(&self) -> Result<WeightsCopy<D>, ComputeError> {
        let copy = |from: &D::Buf| {
            let mut to = self.device.alloc(from.len())?;
            self.device.copy(from.first(from.len()), to.first_mut(from.len()));
            Ok::<_, ComputeError>(to)
        };
        let flat = copy(self.adapter.as_ref().map_or(&self.params, |it| &it.params))?;
        let packed = match (&self.adapter, self.split()) {
            (None, Some(it)) => Some(copy(it.buf())?),
            _ => None,
        };
        self.device.check()?;
        Ok(WeightsCopy { flat, packed })
    }

    /// Exchanges the weights that are trained, as products read them, with a copy.
    pub fn swap_trained(&mut self, other: &mut WeightsCopy<D>) {
        if self.adapter.is_none() {
            self.invalidate_packed();
        }
        match (&mut self.packed, &mut other.packed) {
            (Some(here), Some(there)) => std::mem::swap(here.buf_mut(), there),
            (_, there) => debug_assert!(there.is_none(), "a copy of this model"),
        }
        let flat = self.adapter.as_mut().map_or(&mut self.params, |it| &mut it.params);
        std::mem::swap(flat, &mut other.flat);
    }

    /// Bytes of all weights, in every form that training needs.
    pub fn held_bytes(&self) -> u64 {
        let packed = self.packed_alone();
        let held = [
            Some(&self.params),
            packed.map(PackedWeights::buf),
            packed.and_then(PackedWeights::tails),
            self.adapter.as_ref().map(|it| &it.params),
        ];
        held.into_iter().flatten().map(|it| (it.len() * size_of::<f32>()) as u64).sum()
    }
}

impl<D: Device> WeightsCopy<D> {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        let numbers = self.flat.len() + self.packed.as_ref().map_or(0, Buffer::len);
        (numbers * size_of::<f32>()) as u64
    }
}
