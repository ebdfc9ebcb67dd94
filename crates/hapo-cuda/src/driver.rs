//! The launcher of a real GPU: the driver, one stream, cuBLASLt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{self as cuda, DriverError};
use cudarc::driver::{CudaContext, sys};
use hapo_kernels::{Compute, DeviceError};

use crate::compile::{Arch, failed, missing};
use crate::launch::{Launcher, Memory, Operation, Product, Result, THREADS, lock};
use crate::libraries::{CublasLt, lt};
use crate::products::{Products, Refused};
use crate::repeats::{Hope, Now, Repeats, Sequence, captured};
use crate::sources::{Source, sources};
use crate::staging::{RING, Staging};
use crate::{device::CudaDevice, images::Kernels, plan, trace::Trace};

/// Symbols of the driver that are looked for before anything is called.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDeviceGetCount",
    "cuDevicePrimaryCtxRetain",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemsetD8Async",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuModuleLoadData",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

/// The earliest architecture: the shared memory that tiles of attention take, and bf16.
const LEAST_MAJOR: i32 = 8;

const WORKSPACE: usize = 64 << 20;

/// Environment variable that turns f32 products into TF32 in every program.
const TF32_OVERRIDE: &str = "NVIDIA_TF32_OVERRIDE";

/// Environment variable that turns graphs off where it is 0, to measure without them.
const GRAPHS: &str = "HAPO_CUDA_GRAPHS";

/// Environment variable that leaves every product to cuBLASLt where it is 1, to measure what rows cost that do not depend
/// on those beside them.
const FREE_PRODUCTS: &str = "HAPO_CUDA_FREE_PRODUCTS";

/// Opens GPU `ordinal` and compiles its kernels unless they are cached.
///
/// # Errors
/// No driver, NVRTC or cuBLASLt, no such GPU, one older than Ampere, a driver that fails; each error says what to do.
pub fn open(ordinal: usize, products: Compute) -> Result<CudaDevice<Driver>> {
    Ok(CudaDevice::new(Driver::open(ordinal)?, products))
}

/// An NVIDIA GPU through its driver.
#[derive(Clone, Debug)]
pub struct Driver {
    open: Arc<Open>,
}

struct Open {
    name: String,
    about: Vec<String>,
    context: Arc<CudaContext>,
    stream: sys::CUstream,
    /// Is `None` where the device has no memory pools.
    pool: Option<sys::CUmemoryPool>,
    functions: HashMap<&'static str, Function>,
    modules: Vec<sys::CUmodule>,
    /// Shared memory that a block may ask for.
    shared: u32,
    products: Products,
    workspace: u64,
    staging: Mutex<Option<Staging>>,
    trace: Option<Trace>,
    has_graphs: bool,
    are_products_free: bool,
    repeats: Mutex<Repeats>,
    /// Memory of tables that were dropped, by bytes: a step that takes the same tables as the one before has them at the
    /// same addresses, and the driver is not asked.
    tables: Mutex<BTreeMap<usize, BTreeSet<u64>>>,
}

/// The most bytes of a table whose memory is kept.
const KEPT_TABLE: usize = 1 << 18;

struct Function {
    handle: sys::CUfunction,
    /// Bytes of shared memory that it has in any case.
    fixed: u32,
    /// Bytes it was allowed to be launched with; 0 for those that every kernel is.
    allowed: AtomicU32,
}

// SAFETY: the driver's handles may be used from any thread that has the context current, which `bind` sees to.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: nothing else holds these handles, and the stream is drained first. Nobody is left to report to.
        unsafe {
            let _ = cuda::stream::synchronize(self.stream);
            if let Some(trace) = &self.trace {
                trace.close();
            }
            self.products.close();
            self.repeats.get_mut().unwrap_or_else(PoisonError::into_inner).close();
            let tables = self.tables.get_mut().unwrap_or_else(PoisonError::into_inner);
            for address in std::mem::take(tables).into_values().flatten() {
                let _ = free(self.pool, address, self.stream);
            }
            let _ = free(self.pool, self.workspace, self.stream);
            if let Some(it) = staging {
                it.free();
            }
            for &module in &self.modules {
                let _ = cuda::module::unload(module);
            }
            let _ = cuda::stream::destroy(self.stream);
        }
    }
}

impl Driver {
    pub fn open(ordinal: usize) -> Result<Self> {
        let name = format!("cuda:{ordinal}");
        find_driver(&name)?;
        cuda::init().map_err(|it| refused(&name, "the driver does not start", it))?;
        let count = cuda::device::get_count()
            .map_err(|it| refused(&name, "the driver does not report the number of GPUs", it))?;
        if ordinal >= count as usize {
            let hint = "GPUs are counted from 0; CUDA_VISIBLE_DEVICES may hide some";
            let problem = format!("no such GPU, the driver has {count}");
            return Err(DeviceError::gpu(&name, problem, hint));
        }
        let mut kernels = Kernels::find(&name)?;
        let cublas = CublasLt::find()
            .ok_or_else(|| missing(&name, "libcublasLt.so, which multiplies matrices,"))?;
        let context = CudaContext::new(ordinal)
            .map_err(|it| refused(&name, "the GPU cannot be opened", it))?;
        let (major, minor) = context
            .compute_capability()
            .map_err(|it| refused(&name, "the GPU does not report its properties", it))?;
        if major < LEAST_MAJOR {
            let problem = format!("compute capability {major}.{minor}, the kernels need 8.0");
            let hint =
                "use a GPU of compute capability 8.0 (Ampere) or later, or compute on the CPU";
            return Err(DeviceError::gpu(&name, problem, hint));
        }
        let arch = Arch { major: major as u32, minor: minor as u32 };
        let (mut functions, mut modules) = (HashMap::new(), Vec::new());
        for source in sources() {
            // SAFETY: the context is current on this thread (`CudaContext::new` binds it), and images are whole.
            let (module, of_file) =
                kernels.load(source, arch, |image| unsafe { load(source, image) })?;
            modules.push(module);
            functions.extend(of_file);
        }
        // SAFETY: the context is current, the handles are its own, and `Open` gives them back.
        unsafe { Self::with_functions(name.clone(), context, cublas, functions, modules) }
            .map_err(|it| failed(&name, &it))
            .map(|mut open| {
                open.about.extend(about(&kernels, arch));
                Self { open: Arc::new(open) }
            })
    }

    /// # Safety
    /// The context is current; functions and modules are its own.
    unsafe fn with_functions(
        name: String,
        context: Arc<CudaContext>,
        cublas: CublasLt,
        functions: HashMap<&'static str, Function>,
        modules: Vec<sys::CUmodule>,
    ) -> Result<Open, String> {
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| {
            (context.attribute(which))
                .map_err(|it| describe("the GPU does not say what it has", it))
        };
        let shared =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32;
        let has_pools = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0;
        let stream = cuda::stream::create(cuda::stream::StreamKind::NonBlocking)
            .map_err(|it| describe("no stream", it))?;
        // SAFETY: the device belongs to the context.
        let pool = if has_pools { Some(unsafe { pool_of(&context) }?) } else { None };
        // SAFETY: the stream was just made.
        let workspace = unsafe { allocate(pool, WORKSPACE, stream) }
            .map_err(|it| describe("no memory for the products' workspace", it))?;
        // SAFETY: the context is current, and `Open` gives the handle back before it goes.
        let products = unsafe { Products::open(cublas, stream.cast(), (workspace, WORKSPACE)) }
            .map_err(|it| format!("cuBLASLt does not start: status {it}"))?;
        let about = vec![products.about()];
        // SAFETY: the context is current.
        let staging = Mutex::new(unsafe { Staging::new() });
        Ok(Open {
            name,
            about,
            context,
            stream,
            pool,
            functions,
            modules,
            shared,
            products,
            workspace,
            staging,
            trace: Trace::asked(),
            has_graphs: std::env::var(GRAPHS).map_or(true, |it| it != "0"),
            are_products_free: std::env::var(FREE_PRODUCTS).is_ok_and(|it| it == "1"),
            repeats: Mutex::default(),
            tables: Mutex::default(),
        })
    }

    /// The GPU, the driver and the libraries, with their versions and files.
    pub fn about(&self) -> Vec<String> {
        // SAFETY: the device belongs to the context.
        let gpu = cuda::device::get_name(self.open.context.cu_device()).unwrap_or_default();
        let pool = if self.open.pool.is_some() { "" } else { ", without memory pools" };
        let mut lines = vec![format!("{}: {gpu}{pool}", self.open.name)];
        lines.extend(self.open.about.iter().cloned());
        lines
    }

    /// Environment variables that change results.
    pub fn warnings(&self) -> Vec<String> {
        let set = std::env::var(TF32_OVERRIDE).ok().filter(|it| it != "0");
        let warning = |it: String| {
            format!("{TF32_OVERRIDE}={it}: cuBLASLt may round the inputs of f32 products to TF32")
        };
        set.map(warning).into_iter().collect()
    }

    /// Forward products whose rows may depend on the rows beside them, since cuBLASLt refused their algorithm.
    pub fn refused(&self) -> Refused {
        self.open.products.refused()
    }

    /// Times by operation, if `HAPO_CUDA_TRACE` is set.
    pub fn trace(&self) -> Option<String> {
        self.open.trace.as_ref().map(Trace::table)
    }

    fn bind(&self) -> Result<()> {
        self.checked(self.open.context.bind_to_thread(), "the context is lost")
    }

    fn checked<T>(&self, result: Result<T, DriverError>, what: &str) -> Result<T> {
        result.map_err(|it| refused(&self.open.name, what, it))
    }

    /// Begins what was held back: something else comes that has to come behind it.
    fn hold_no_more(&self) -> Result<()> {
        let held = lock(&self.open.repeats).interrupt();
        held.map_or(Ok(()), |it| self.begin_all(&it))
    }

    fn begin_all(&self, sequence: &Sequence) -> Result<()> {
        sequence.each(|operation, args| self.begin_now(operation, args))
    }

    fn begin_now(&self, operation: Operation, args: &[u64]) -> Result<()> {
        self.bind()?;
        let stream = self.open.stream;
        match operation {
            Operation::Launch { kernel, grid, shared, .. } => {
                let function = self.function(kernel, shared)?;
                let (grid, threads) = (grid.into(), (THREADS, 1, 1));
                let mut args: Vec<*mut c_void> =
                    args.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast()).collect();
                self.timed(kernel, || {
                    // SAFETY: the arguments match the kernel, in order (the tests run the same calls); the driver
                    // copies them before it returns and does not write to them.
                    let begun = unsafe {
                        cuda::launch_kernel(function, grid, threads, shared, stream, &mut args)
                    };
                    self.checked(begun, &format!("kernel {kernel} did not start"))
                })
            }
            Operation::Product(product) => self.begin_product(&product),
            Operation::Copy { from, to, bytes } => self.timed("copy on the GPU", || {
                // SAFETY: both ranges are memory of this GPU.
                let copied = unsafe { cuda::memcpy_dtod_async(to, from, bytes, stream) };
                self.checked(copied, "a copy on the GPU failed")
            }),
            Operation::Zero { at, bytes } => self.timed("zeros", || {
                // SAFETY: the range is memory of this GPU.
                let set = unsafe { cuda::memset_d8_async(at, 0, bytes, stream) };
                self.checked(set, "memory cannot be set")
            }),
        }
    }

    fn begin_product(&self, product: &Product) -> Result<()> {
        let Product { m, n, k, number, left, right, bias, whole, .. } = *product;
        let product = &Product { whole: whole && !self.open.are_products_free, ..*product };
        let order = |transposed| if transposed { "T" } else { "N" };
        let (a, b) = (order(left.transposed), order(right.transposed));
        self.timed(format_args!("product {a}{b} {m} x {n} x {k}, {number:?}"), || {
            // SAFETY: the matrices are inside memory of this GPU, as the caller's shapes say; products are begun one
            // after the other on one stream, and so use the workspace.
            let begun = unsafe { self.open.products.begin(product) };
            begun.map_err(|status| match status {
                lt::ALLOC_FAILED => self.full(m * n * size_of::<f32>()),
                it => {
                    let bias = if bias.is_some() { ", with a bias," } else { "" };
                    let what = format!("a product of [{m}, {k}] and [{k}, {n}]{bias}");
                    failed(&self.open.name, &format!("{what} did not start: status {it}"))
                }
            })
        })
    }

    /// Begins a sequence that was held back, by a graph where there is hope for one, which comes back.
    fn begin_held(&self, sequence: &Sequence, hope: Hope) -> Result<Option<sys::CUgraphExec>> {
        let stream = self.open.stream;
        let graph = match hope {
            Hope::Graph(graph) => Some(graph),
            // SAFETY: the context is current; operations of a sequence only begin.
            Hope::NewGraph => match unsafe { captured(stream, || self.begin_all(sequence)) } {
                Ok(made) => Some(made?),
                // Without a graph the operations are begun one by one.
                Err(_) => None,
            },
            Hope::None => None,
        };
        let Some(graph) = graph else { return self.begin_all(sequence).map(|()| None) };
        // SAFETY: the graph is one of the stream's context, and its memory is that of the operations at hand.
        let begun = unsafe { cuda::graph::launch(graph, stream) };
        self.checked(begun, "a graph of operations did not start")?;
        Ok(Some(graph))
    }

    /// Graphs of operations that were begun.
    pub fn graphs_begun(&self) -> u64 {
        lock(&self.open.repeats).begun
    }

    /// Memory for a table of so many bytes: that of one that was dropped, or new.
    fn table_memory(&self, bytes: usize) -> Result<CudaMemory> {
        let kept = rounded(bytes).next_power_of_two();
        if kept > KEPT_TABLE {
            return self.room(bytes);
        }
        let unused = lock(&self.open.tables).get_mut(&kept).and_then(BTreeSet::pop_first);
        let mut memory = match unused {
            Some(address) => CudaMemory { address, kept: None, driver: self.clone() },
            None => self.room(kept)?,
        };
        memory.kept = Some(kept);
        Ok(memory)
    }

    fn wait(&self) -> Result<()> {
        self.hold_no_more()?;
        // SAFETY: the stream is alive, and its context current.
        let wait = || unsafe { cuda::stream::synchronize(self.open.stream) };
        let waited = match &self.open.trace {
            // SAFETY: as above.
            Some(trace) => unsafe { trace.waited(wait) },
            None => wait(),
        };
        self.checked(waited, "work on the GPU failed")
    }

    /// Begins `work`; its time is kept where one asked for it.
    fn timed(&self, name: impl Display, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(trace) = &self.open.trace else { return work() };
        let (stream, what) = (self.open.stream, "a time cannot be taken");
        // SAFETY: the stream is alive, and its context current.
        let begun = self.checked(unsafe { trace.begin(stream) }, what)?;
        work()?;
        // SAFETY: as above.
        self.checked(unsafe { trace.end(stream, name.to_string(), &begun) }, what)
    }

    fn full(&self, bytes: usize) -> DeviceError {
        let (free, total) = cuda::mem_get_info().unwrap_or_default();
        DeviceError::OutOfMemory {
            device: self.open.name.clone(),
            asked: bytes as u64,
            free: free as u64,
            total: total as u64,
        }
    }

    fn room(&self, bytes: usize) -> Result<CudaMemory> {
        self.bind()?;
        self.hold_no_more()?;
        let (pool, stream) = (self.open.pool, self.open.stream);
        let size = rounded(bytes);
        // SAFETY: the stream is alive; the caller sets the memory before anything reads it.
        let allocate = || unsafe { allocate(pool, size, stream) };
        let full = |it: &DriverError| it.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let address = match allocate() {
            Err(it) if full(&it) => {
                // The pool's memory may be fragmented: free it and try once more.
                self.wait()?;
                if let Some(pool) = pool {
                    // SAFETY: the pool belongs to the device.
                    let _ = unsafe { cuda::mem_pool::trim_to(pool, 0) };
                }
                match allocate() {
                    Err(it) if full(&it) => return Err(self.full(size)),
                    again => again,
                }
            }
            first => first,
        };
        let address = self.checked(address, "memory cannot be allocated")?;
        Ok(CudaMemory { address, kept: None, driver: self.clone() })
    }

    /// The kernel, allowed to be launched with so much shared memory.
    fn function(&self, kernel: &str, shared: u32) -> Result<sys::CUfunction> {
        let it = &self.open.functions[kernel];
        let needed = plan::shared_to_allow(shared, it.fixed, self.open.shared)
            .map_err(|it| failed(&self.open.name, &format!("{kernel}: {it}")))?;
        if let Some(bytes) = needed.filter(|it_| *it_ > it.allowed.load(Ordering::Relaxed)) {
            let attribute =
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of a loaded module.
            let set = unsafe {
                cuda::function::set_function_attribute(it.handle, attribute, bytes as c_int)
            };
            let what = format!("{kernel} is refused {bytes} bytes of shared memory");
            self.checked(set, &what)?;
            it.allowed.store(bytes, Ordering::Relaxed);
        }
        Ok(it.handle)
    }
}

/// Bytes to allocate: at least one, rounded up because copies of whole words touch bytes past the end.
fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(256)
}

type Loaded = (sys::CUmodule, Vec<(&'static str, Function)>);

/// The loaded kernels. Reading an attribute of a function brings its code to the GPU now, not at its first launch, when
/// the memory may be full.
///
/// # Safety
/// The context is current; `image` is NVRTC's.
unsafe fn load(source: &Source, image: &[u8]) -> Result<Loaded, String> {
    // SAFETY: a complete image, as the caller promises.
    let module = unsafe { cuda::module::load_data(image.as_ptr().cast()) }
        .map_err(|it| describe("the driver refuses the image", it))?;
    let function = |kernel: &'static str| {
        let symbol = CString::new(kernel).expect("a kernel's name has no zero byte");
        // SAFETY: the module was just loaded.
        let handle = unsafe { cuda::module::get_function(module, symbol) }?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the function is of this module.
        let fixed = unsafe { cuda::function::get_function_attribute(handle, attribute) }?;
        Ok((kernel, Function { handle, fixed: fixed as u32, allowed: AtomicU32::new(0) }))
    };
    let found: Result<Vec<_>, DriverError> = source.kernels().map(function).collect();
    found.map(|it| (module, it)).map_err(|it| {
        // SAFETY: nothing uses the module.
        let _ = unsafe { cuda::module::unload(module) };
        describe("a kernel is not in the image", it)
    })
}

/// The device's memory pool, which keeps freed memory for the next buffer.
///
/// # Safety
/// The context is current.
unsafe fn pool_of(context: &CudaContext) -> Result<sys::CUmemoryPool, String> {
    // SAFETY: the device belongs to the context.
    let pool = unsafe { cuda::device::get_default_mem_pool(context.cu_device()) }
        .map_err(|it| describe("no memory pool", it))?;
    let mut threshold = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a number of 64 bits.
    unsafe { cuda::mem_pool::set_attribute(pool, attribute, (&raw mut threshold).cast()) }
        .map_err(|it| describe("the memory pool cannot be set", it))?;
    Ok(pool)
}

/// Memory of the pool, or of the device where it has none.
///
/// # Safety
/// The context is current, the stream its own.
unsafe fn allocate(
    pool: Option<sys::CUmemoryPool>,
    bytes: usize,
    stream: sys::CUstream,
) -> Result<u64, DriverError> {
    match pool {
        // SAFETY: as above.
        Some(_) => unsafe { cuda::malloc_async(stream, bytes) },
        // SAFETY: as above.
        None => unsafe { cuda::malloc_sync(bytes) },
    }
}

/// Gives memory back after all work on the stream.
///
/// # Safety
/// As in [`allocate`]; the memory is its own and given back once.
unsafe fn free(
    pool: Option<sys::CUmemoryPool>,
    address: u64,
    stream: sys::CUstream,
) -> Result<(), DriverError> {
    // SAFETY: as above.
    unsafe {
        if pool.is_some() {
            return cuda::free_async(address, stream);
        }
        cuda::stream::synchronize(stream)?;
        cuda::free_sync(address)
    }
}

fn about(kernels: &Kernels, arch: Arch) -> Vec<String> {
    let mut version = 0;
    // SAFETY: the number outlives the call.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    vec![
        format!("driver for CUDA {}.{}", version / 1000, version % 1000 / 10),
        kernels.about(),
        format!("kernels for compute capability {}.{}", arch.major, arch.minor),
    ]
}

fn find_driver(name: &str) -> Result<()> {
    // SAFETY: only opens and closes libraries.
    if !unsafe { sys::is_culib_present() } {
        let problem = "the NVIDIA driver (libcuda.so.1) was not found";
        let hint = "install the driver of the GPU, or compute on the CPU";
        return Err(DeviceError::gpu(name, problem, hint));
    }
    // SAFETY: the library is there.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: the symbol is only looked for, not called.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        if found.is_err() {
            let problem = format!("the NVIDIA driver has no {symbol}: it is older than CUDA 11.4");
            let hint = "install a newer driver, or compute on the CPU";
            return Err(DeviceError::gpu(name, problem, hint));
        }
    }
    Ok(())
}

fn describe(what: &str, error: DriverError) -> String {
    let text = error.error_string().ok().map(CStr::to_string_lossy);
    let text = text.unwrap_or("an unknown error".into());
    format!("{what}: {text} ({:?})", error.0)
}

/// The same as an error; it names a toolkit's stub that comes before the driver in the loader's path.
fn refused(device: &str, what: &str, error: DriverError) -> DeviceError {
    let mut it = failed(device, &describe(what, error));
    if let (DeviceError::Gpu { hint, .. }, sys::CUresult::CUDA_ERROR_STUB_LIBRARY) =
        (&mut it, error.0)
    {
        "libcuda.so is a toolkit's stub: take its folder of stubs out of LD_LIBRARY_PATH"
            .clone_into(hint);
    }
    it
}

#[derive(Debug)]
pub struct CudaMemory {
    address: u64,
    /// Bytes of a table's memory, which is kept for the next table.
    kept: Option<usize>,
    driver: Driver,
}

impl Memory for CudaMemory {
    fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let open = &self.driver.open;
        if let Some(bytes) = self.kept {
            let mut tables = lock(&open.tables);
            tables.entry(bytes).or_default().insert(self.address);
        } else if self.driver.bind().and_then(|()| self.driver.hold_no_more()).is_ok() {
            // SAFETY: given back once, after all work on the stream that uses it.
            let _ = unsafe { free(open.pool, self.address, open.stream) };
        }
    }
}

impl Launcher for Driver {
    type Memory = CudaMemory;

    fn alloc(&self, bytes: usize) -> Result<CudaMemory> {
        let memory = self.room(bytes)?;
        let zero = Operation::Zero { at: memory.address, bytes: rounded(bytes) };
        self.begin(zero, &[])?;
        Ok(memory)
    }

    fn alloc_of(&self, from: &[u8]) -> Result<CudaMemory> {
        let memory = self.table_memory(from.len())?;
        self.upload(from, memory.address)?;
        Ok(memory)
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        self.hold_no_more()?;
        let name = "copy to the GPU";
        let begin = |from: &[u8]| {
            // SAFETY: the caller's address holds the bytes.
            let copied = unsafe { cuda::memcpy_htod_async(to, from, self.open.stream) };
            self.checked(copied, "a copy to the GPU failed")
        };
        let mut staging = lock(&self.open.staging);
        let Some(ring) = staging.as_mut().filter(|_| from.len() <= RING) else {
            self.timed(name, || begin(from))?;
            // The bytes are the caller's again.
            return self.wait();
        };
        let room = ring.room(from.len(), || self.wait())?;
        self.timed(name, || {
            // SAFETY: the room has as many bytes, and no copy uses them.
            let held = unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), room, from.len());
                std::slice::from_raw_parts(room, from.len())
            };
            begin(held)
        })
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        self.bind()?;
        self.hold_no_more()?;
        let name = "copy from the GPU";
        let copy = |to: &mut [u8]| {
            // SAFETY: the caller's address has the bytes, and they stay valid until the wait below.
            let copied = unsafe { cuda::memcpy_dtoh_async(to, from, self.open.stream) };
            self.checked(copied, "a copy from the GPU failed")
        };
        let mut staging = lock(&self.open.staging);
        let Some(ring) = staging.as_mut().filter(|_| to.len() <= RING) else {
            self.timed(name, || copy(to))?;
            return self.wait();
        };
        let room = ring.room(to.len(), || self.wait())?;
        // SAFETY: the room has as many bytes, and no other copy uses them.
        let held = unsafe { std::slice::from_raw_parts_mut(room, to.len()) };
        self.timed(name, || copy(held))?;
        self.wait()?;
        to.copy_from_slice(held);
        ring.forget();
        Ok(())
    }

    /// Holds the operation back where it may be one of a graph.
    fn begin(&self, operation: Operation, args: &[u64]) -> Result<()> {
        if let Operation::Copy { bytes: 0, .. } | Operation::Zero { bytes: 0, .. } = operation {
            return Ok(());
        }
        let mut repeats = lock(&self.open.repeats);
        match repeats.push(operation, args) {
            Now::Hold => Ok(()),
            Now::BeginAll => self.begin_all(repeats.held_back()),
            Now::Begin => {
                drop(repeats);
                self.begin_now(operation, args)
            }
        }
    }

    fn repeated(&self, work: impl FnOnce()) -> Result<()> {
        // A trace is of operations.
        if self.open.trace.is_some() || !self.open.has_graphs {
            work();
            return Ok(());
        }
        lock(&self.open.repeats).start();
        work();
        self.bind()?;
        lock(&self.open.repeats).finish(|sequence, hope| self.begin_held(sequence, hope))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.bind().and_then(|()| self.wait()).ok()?;
        if let Some(pool) = self.open.pool {
            // Unused memory in the pool is free as well. SAFETY: the pool belongs to the device.
            let _ = unsafe { cuda::mem_pool::trim_to(pool, 0) };
        }
        Some(cuda::mem_get_info().ok()?.0 as u64)
    }

    fn peak_bytes(&self) -> Option<u64> {
        let (pool, mut most, mut zero) = (self.open.pool?, 0_u64, 0_u64);
        self.bind().ok()?;
        let high = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        // SAFETY: the pool belongs to the device; the attribute is a number of 64 bits, and 0 resets it.
        unsafe {
            cuda::mem_pool::get_attribute(pool, high, (&raw mut most).cast()).ok()?;
            cuda::mem_pool::set_attribute(pool, high, (&raw mut zero).cast()).ok()?;
        }
        Some(most)
    }

    fn refused_products(&self) -> Option<u64> {
        Some(self.refused().products)
    }

    fn name(&self) -> String {
        self.open.name.clone()
    }
}
