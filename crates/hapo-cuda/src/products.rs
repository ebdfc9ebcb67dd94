//! Products by cuBLASLt: their descriptors, and the cached algorithm for each shape.
//!
//! Purpose: the product itself adds the bias. cuBLASLt's heuristic runs once for every kind of product and its first
//! answer is kept with the descriptors, so each kind has one algorithm and a call is one of the library's, two with a
//! bias; addresses count by their alignment alone. Forward products take no algorithm that splits the inner dimension;
//! others add its parts in f32. One whose algorithm cuBLASLt refuses takes that of its own shape, and is counted: its
//! rows may depend on the rows beside them. Price: four descriptors for each kind. Matrices that multiply the same
//! numbers are one plain product: as a batch of two whose stride was the distance of their memory, they ended in illegal
//! addresses on an H200 (cuBLASLt 13.1), and their bits changed with the distance.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use hapo_kernels::Compute;

use crate::launch::{Matrix, Product, lock};
use crate::libraries::{CublasLt, Handle, lt};

/// Kinds of products whose algorithms are kept; then all are forgotten.
const KEPT: usize = 1 << 14;

/// A sum in one piece uses the algorithm that is recommended for at most this inner dimension. For a longer one with few
/// results cuBLASLt likes to split it; when it may not, its first recommendations are kernels that use a GPU badly, some
/// with other bits than the rest: 457 µs instead of 35 (an H200, cuBLASLt 13.1, 3584 × 64 × 18,944).
const AS_OF_INNER: usize = 1024;

/// And for at least this many rows where factors are f32: recommendations for fewer rows differ in their bits. In bf16
/// none did, and a recommendation for the very rows is up to twice as fast.
const AS_OF_ROWS: usize = 256;

pub(crate) struct Products {
    library: CublasLt,
    handle: Handle,
    stream: *mut c_void,
    workspace: (u64, usize),
    /// Locked while a product is begun: all share a workspace.
    chosen: Mutex<Chosen>,
}

#[derive(Default)]
struct Chosen {
    ready: HashMap<Kind, Ready>,
    refused: Refused,
}

struct Ready {
    call: Call,
    algorithm: Algorithm,
    /// The algorithm for another shape was refused.
    is_refused: bool,
}

/// Forward products whose algorithm is not that of all numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    pub kinds: u64,
    pub products: u64,
}

// SAFETY: the handle is used by one thread at a time, behind the lock; NVIDIA would allow several.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// The facts on which the choice of an algorithm depends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    size: [usize; 3],
    strides: [usize; 3],
    transposed: [bool; 2],
    number: Compute,
    out_is_bf16: bool,
    add: bool,
    reduction: u32,
    bias: bool,
    /// Alignments of the addresses, in bytes: left factor, right factor, result, bias.
    alignments: [u32; 4],
}

impl Kind {
    fn of(product: &Product) -> Self {
        let Product { m, n, k, left, right, out, .. } = *product;
        let addresses = [left.address, right.address, out.address, product.bias.unwrap_or(0)];
        Self {
            size: [m, n, k],
            strides: [left.stride, right.stride, out.stride],
            transposed: [left.transposed, right.transposed],
            number: product.number,
            out_is_bf16: product.out_is_bf16,
            add: product.add,
            reduction: if product.whole { lt::REDUCTION_NONE } else { lt::REDUCTION_IN_F32 },
            bias: product.bias.is_some(),
            alignments: addresses.map(alignment),
        }
    }
}

/// The largest power of two up to 256 that divides an address.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Status = c_int;

fn ok(status: c_int) -> Result<(), Status> {
    if status == lt::SUCCESS { Ok(()) } else { Err(status) }
}

/// cuBLASLt has no algorithm for a product, or does not take this one for it.
fn is_refused<T>(begun: &Result<T, Status>) -> bool {
    matches!(begun, Err(lt::NOT_SUPPORTED | lt::INVALID_VALUE))
}

/// A description that cuBLASLt made, given back when dropped.
struct Description {
    it: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    set: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
}

impl Description {
    fn of(
        create: impl FnOnce(*mut *mut c_void) -> c_int,
        destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
        set: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
    ) -> Result<Self, Status> {
        let mut it = std::ptr::null_mut();
        ok(create(&raw mut it))?;
        Ok(Self { it, destroy, set })
    }

    fn set<T: Copy>(&self, attribute: c_int, value: T) -> Result<(), Status> {
        // SAFETY: the value has the attribute's size, which cuBLASLt checks, and is copied.
        ok(unsafe { (self.set)(self.it, attribute, (&raw const value).cast(), size_of::<T>()) })
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made by the same library and given back once.
        let _ = unsafe { (self.destroy)(self.it) };
    }
}

struct Call {
    product: Description,
    left: Description,
    right: Description,
    out: Description,
}

impl Products {
    /// A handle of the library, for products on a stream, with a `workspace` (address and bytes).
    ///
    /// # Safety
    /// A context is current, and stays, with its stream and the workspace, while the handle is used.
    pub(crate) unsafe fn open(
        library: CublasLt,
        stream: *mut c_void,
        workspace: (u64, usize),
    ) -> Result<Self, Status> {
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        ok(unsafe { (library.cublasLtCreate)(&raw mut handle) })?;
        Ok(Self { library, handle, stream, workspace, chosen: Mutex::default() })
    }

    pub(crate) fn about(&self) -> String {
        // SAFETY: takes nothing.
        let version = unsafe { (self.library.cublasLtGetVersion)() };
        format!("cuBLASLt {version} at {}", self.library.path.display())
    }

    /// Gives the handle back.
    ///
    /// # Safety
    /// The context is current, no product runs, and the handle is not used again.
    pub(crate) unsafe fn close(&self) {
        lock(&self.chosen).ready.clear();
        // SAFETY: as the caller promises. There is nobody left to report a failure to.
        let _ = unsafe { (self.library.cublasLtDestroy)(self.handle) };
    }

    /// Begins a product by the algorithm of its kind.
    ///
    /// # Safety
    /// The context is current, and all matrices and the bias are inside memory of its GPU.
    pub(crate) unsafe fn begin(&self, product: &Product) -> Result<(), Status> {
        let (mut chosen, kind) = (lock(&self.chosen), Kind::of(product));
        let Chosen { ready, refused } = &mut *chosen;
        if let Some(known) = ready.get(&kind) {
            refused.products += u64::from(known.is_refused);
            if let Some(bias) = product.bias {
                known.call.product.set(lt::BIAS_POINTER, bias)?;
            }
            // SAFETY: as the caller promises.
            return unsafe { self.run(product, &known.call, known.algorithm) };
        }
        let call = self.call(product)?;
        let begin = |of: &Call| {
            let algorithm = self.recommended(kind, of)?;
            // SAFETY: as the caller promises.
            unsafe { self.run(product, &call, algorithm) }.map(|()| algorithm)
        };
        let mut begun = Err(lt::NOT_SUPPORTED);
        if product.whole {
            let rows = if product.number == Compute::Bf16 { 1 } else { AS_OF_ROWS };
            let [n, k] = [product.n.max(rows), product.k.min(AS_OF_INNER)];
            begun = begin(&self.call(&Product { n, k, ..*product })?);
        }
        let is_other = is_refused(&begun);
        if is_other {
            begun = begin(&call);
        }
        let (algorithm, is_refused) = (begun?, is_other && product.whole);
        refused.kinds += u64::from(is_refused);
        refused.products += u64::from(is_refused);
        if ready.len() >= KEPT {
            ready.clear();
        }
        ready.insert(kind, Ready { call, algorithm, is_refused });
        Ok(())
    }

    pub(crate) fn refused(&self) -> Refused {
        lock(&self.chosen).refused
    }

    /// Begins a product.
    ///
    /// # Safety
    /// As in [`Self::begin`].
    unsafe fn run(
        &self,
        product: &Product,
        call: &Call,
        algorithm: Algorithm,
    ) -> Result<(), Status> {
        let (factor, beta) = (product.factor, if product.add { 1.0_f32 } else { 0.0 });
        let [left, right, out] =
            [product.left, product.right, product.out].map(|it| it.address as *mut c_void);
        // SAFETY: descriptions are alive, matrices are where they say, as the caller promises.
        ok(unsafe {
            (self.library.cublasLtMatmul)(
                self.handle,
                call.product.it,
                (&raw const factor).cast(),
                left,
                call.left.it,
                right,
                call.right.it,
                (&raw const beta).cast(),
                out,
                call.out.it,
                out,
                call.out.it,
                (&raw const algorithm).cast(),
                self.workspace.0 as *mut c_void,
                self.workspace.1,
                self.stream,
            )
        })
    }

    fn call(&self, product: &Product) -> Result<Call, Status> {
        let Product { m, n, k, number, left, right, out, bias, .. } = *product;
        let (factors, compute) = match number {
            Compute::F32 => (lt::R_32F, lt::COMPUTE_32F),
            Compute::Tf32 => (lt::R_32F, lt::COMPUTE_32F_FAST_TF32),
            Compute::Bf16 => (lt::R_16BF, lt::COMPUTE_32F),
        };
        let result = if product.out_is_bf16 { lt::R_16BF } else { lt::R_32F };
        let of_left = if left.transposed { [k, m] } else { [m, k] };
        let of_right = if right.transposed { [n, k] } else { [k, n] };
        let library = &self.library;
        let call = Call {
            product: Description::of(
                // SAFETY: the pointer is good for the call. Factors of a sum are f32.
                |it| unsafe { (library.cublasLtMatmulDescCreate)(it, compute, lt::R_32F) },
                library.cublasLtMatmulDescDestroy,
                library.cublasLtMatmulDescSetAttribute,
            )?,
            left: self.describe_matrix(factors, of_left, left)?,
            right: self.describe_matrix(factors, of_right, right)?,
            out: self.describe_matrix(result, [m, n], out)?,
        };
        let operation = |it: Matrix| if it.transposed { lt::OP_T } else { lt::OP_N };
        call.product.set(lt::TRANSA, operation(left))?;
        call.product.set(lt::TRANSB, operation(right))?;
        if let Some(bias) = bias {
            call.product.set(lt::EPILOGUE, lt::EPILOGUE_BIAS)?;
            call.product.set(lt::BIAS_POINTER, bias)?;
        }
        Ok(call)
    }

    fn describe_matrix(
        &self,
        number: c_int,
        [rows, columns]: [usize; 2],
        matrix: Matrix,
    ) -> Result<Description, Status> {
        let library = &self.library;
        let (rows, columns, stride) = (rows as u64, columns as u64, matrix.stride as i64);
        Description::of(
            // SAFETY: the pointer is good for the call.
            |it| unsafe { (library.cublasLtMatrixLayoutCreate)(it, number, rows, columns, stride) },
            library.cublasLtMatrixLayoutDestroy,
            library.cublasLtMatrixLayoutSetAttribute,
        )
    }

    /// The heuristic's first recommendation for a product of this kind.
    fn recommended(&self, kind: Kind, call: &Call) -> Result<Algorithm, Status> {
        let library = &self.library;
        let wanted = Description::of(
            // SAFETY: the pointer is good for the call.
            |it| unsafe { (library.cublasLtMatmulPreferenceCreate)(it) },
            library.cublasLtMatmulPreferenceDestroy,
            library.cublasLtMatmulPreferenceSetAttribute,
        )?;
        wanted.set::<u64>(lt::MAX_WORKSPACE_BYTES, self.workspace.1 as u64)?;
        wanted.set(lt::REDUCTION_SCHEME_MASK, kind.reduction)?;
        let [left, right, out, bias] = kind.alignments;
        // A bias is read as the result is written.
        let all = [left, right, out, out.min(bias)];
        for (attribute, bytes) in lt::MIN_ALIGNMENTS.into_iter().zip(all) {
            wanted.set(attribute, bytes)?;
        }
        let mut found = Heuristic { status: lt::NOT_SUPPORTED, ..Heuristic::default() };
        let mut n: c_int = 0;
        // SAFETY: descriptions are alive, and there is room for one answer.
        let status = unsafe {
            (library.cublasLtMatmulAlgoGetHeuristic)(
                self.handle,
                call.product.it,
                call.left.it,
                call.right.it,
                call.out.it,
                call.out.it,
                wanted.it,
                1,
                (&raw mut found).cast(),
                &raw mut n,
            )
        };
        ok(status)?;
        ok(if n > 0 { found.status } else { lt::NOT_SUPPORTED })?;
        Ok(found.algorithm)
    }
}
