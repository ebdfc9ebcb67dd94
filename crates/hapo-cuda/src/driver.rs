//! The launcher of a real GPU: the driver, one stream, cuBLAS.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublas::{result as blas, sys as blas_sys};
use cudarc::driver::result::{self as cuda, DriverError};
use cudarc::driver::{CudaContext, sys};
use hapo_kernels::DeviceError;

use crate::compile::{Arch, Compiler, failed, load_named_libraries, missing};
use crate::device::{CudaDevice, MatmulPrecision};
use crate::launch::{Launch, Launcher, Memory, Number, Product, THREADS};
use crate::sources::sources;

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
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

/// The earliest architecture: memory pools and the shared memory that tiles of attention take.
const LEAST_MAJOR: i32 = 8;

/// Opens GPU `ordinal`, compiling its kernels where they were not compiled before.
///
/// # Errors
/// No driver, no NVRTC or cuBLAS, no such GPU, one before Ampere, or a driver that fails; each says
/// what to do.
pub fn open(ordinal: usize, products: MatmulPrecision) -> Result<CudaDevice<Driver>, DeviceError> {
    Ok(CudaDevice::new(Driver::open(ordinal)?, products))
}

/// An NVIDIA GPU through its driver.
#[derive(Clone, Debug)]
pub struct Driver {
    open: Arc<Open>,
}

struct Open {
    name: String,
    context: Arc<CudaContext>,
    stream: sys::CUstream,
    pool: sys::CUmemoryPool,
    functions: HashMap<&'static str, sys::CUfunction>,
    modules: Vec<sys::CUmodule>,
    /// One call at a time: a handle has a workspace.
    blas: Mutex<blas_sys::cublasHandle_t>,
}

// SAFETY: the driver's handles may be used from any thread that has the context current, which `bind`
// sees to; cuBLAS's is behind a lock.
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
        let blas = *self.blas.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: nothing else holds these handles any more, and the stream is drained first. There is
        // no caller left to report a failure to.
        unsafe {
            let _ = cuda::stream::synchronize(self.stream);
            let _ = blas::destroy_handle(blas);
            for &module in &self.modules {
                let _ = cuda::module::unload(module);
            }
            let _ = cuda::stream::destroy(self.stream);
        }
    }
}

impl Driver {
    fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let name = format!("cuda:{ordinal}");
        find_driver(&name)?;
        load_named_libraries();
        cuda::init().map_err(|it| failed(&name, &describe("the driver does not start", it)))?;
        let count = cuda::device::get_count().map_err(|it| {
            failed(&name, &describe("the driver does not report the number of GPUs", it))
        })?;
        if ordinal >= count as usize {
            return Err(DeviceError::Gpu {
                device: name,
                problem: format!("no such GPU, the driver has {count}"),
                hint: "GPUs are counted from 0; CUDA_VISIBLE_DEVICES may hide some".to_owned(),
            });
        }
        let compiler = Compiler::find(&name)?;
        // SAFETY: only opens and closes libraries.
        if !unsafe { blas_sys::is_culib_present() } {
            return Err(missing(&name, "libcublas.so, which multiplies matrices,"));
        }
        let context = CudaContext::new(ordinal)
            .map_err(|it| failed(&name, &describe("the GPU cannot be opened", it)))?;
        let (major, minor) = context
            .compute_capability()
            .map_err(|it| failed(&name, &describe("the GPU does not report its properties", it)))?;
        if major < LEAST_MAJOR {
            return Err(DeviceError::Gpu {
                device: name,
                problem: format!("compute capability {major}.{minor}, the kernels need 8.0"),
                hint:
                    "use a GPU of compute capability 8.0 (Ampere) or later, or compute on the CPU"
                        .to_owned(),
            });
        }
        let arch = Arch { major: major as u32, minor: minor as u32 };
        let images =
            sources().iter().map(|it| compiler.image(it, arch)).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the context is current on this thread (`CudaContext::new` binds it), images are those
        // of NVRTC for this GPU, and every handle is kept by `Open`, which gives it back.
        unsafe { Self::with_images(name.clone(), context, &images) }
            .map_err(|it| failed(&name, &it))
    }

    /// # Safety
    /// The context is current; `images` are cubins of [`sources`], in order.
    unsafe fn with_images(
        name: String,
        context: Arc<CudaContext>,
        images: &[Vec<u8>],
    ) -> Result<Self, String> {
        let shared = context
            .attribute(
                sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )
            .map_err(|it| describe("the GPU does not report its shared memory", it))?;
        let (mut functions, mut modules) = (HashMap::new(), Vec::new());
        for (source, image) in sources().iter().zip(images) {
            let refused = |it| describe(&format!("{} cannot be loaded", source.file), it);
            // SAFETY: a complete cubin, as the caller promises.
            let module =
                unsafe { cuda::module::load_data(image.as_ptr().cast()) }.map_err(refused)?;
            modules.push(module);
            for &kernel in source.kernels {
                let symbol = CString::new(kernel).expect("a kernel's name has no zero byte");
                // SAFETY: the module was just loaded.
                let function =
                    unsafe { cuda::module::get_function(module, symbol) }.map_err(refused)?;
                // SAFETY: the function is of a loaded module.
                unsafe {
                    cuda::function::set_function_attribute(
                        function,
                        sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                        shared,
                    )
                }
                .map_err(refused)?;
                functions.insert(kernel, function);
            }
        }
        let stream = cuda::stream::create(cuda::stream::StreamKind::NonBlocking)
            .map_err(|it| describe("no stream", it))?;
        // SAFETY: the device is that of the context.
        let pool = unsafe { cuda::device::get_default_mem_pool(context.cu_device()) }
            .map_err(|it| describe("no memory pool", it))?;
        // Memory that was given back stays in the pool for the next buffer.
        let mut threshold = u64::MAX;
        // SAFETY: the attribute is a number of 64 bits.
        unsafe {
            cuda::mem_pool::set_attribute(
                pool,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut threshold).cast(),
            )
        }
        .map_err(|it| describe("the memory pool cannot be set", it))?;
        let blas = blas::create_handle().map_err(|it| format!("cuBLAS does not start: {it}"))?;
        // SAFETY: both handles were just made.
        unsafe { blas::set_stream(blas, stream.cast()) }
            .map_err(|it| format!("cuBLAS refuses the stream: {it}"))?;
        Ok(Self {
            open: Arc::new(Open {
                name,
                context,
                stream,
                pool,
                functions,
                modules,
                blas: Mutex::new(blas),
            }),
        })
    }

    /// Makes the GPU's context current on this thread.
    fn bind(&self) -> Result<(), DeviceError> {
        self.checked(self.open.context.bind_to_thread(), "the context is lost")
    }

    fn checked<T>(&self, result: Result<T, DriverError>, what: &str) -> Result<T, DeviceError> {
        result.map_err(|it| failed(&self.open.name, &describe(what, it)))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is alive.
        self.checked(
            unsafe { cuda::stream::synchronize(self.open.stream) },
            "work on the GPU failed",
        )
    }
}

/// Whether the driver's library is there and new enough.
fn find_driver(name: &str) -> Result<(), DeviceError> {
    // SAFETY: only opens and closes libraries.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::Gpu {
            device: name.to_owned(),
            problem: "the NVIDIA driver (libcuda.so.1) was not found".to_owned(),
            hint: "install the driver of the GPU, or compute on the CPU".to_owned(),
        });
    }
    // SAFETY: the library is there.
    let library = unsafe { sys::culib() };
    for symbol in SYMBOLS {
        // SAFETY: the symbol is only looked for, not called.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        if found.is_err() {
            return Err(DeviceError::Gpu {
                device: name.to_owned(),
                problem: format!("the NVIDIA driver has no {symbol}: it is older than CUDA 11.4"),
                hint: "install a newer driver, or compute on the CPU".to_owned(),
            });
        }
    }
    Ok(())
}

/// What was done, and what the driver says about it.
fn describe(what: &str, error: DriverError) -> String {
    let text =
        error.error_string().ok().and_then(|it| it.to_str().ok()).unwrap_or("an unknown error");
    format!("{what}: {text} ({:?})", error.0)
}

/// Memory of a GPU's pool.
#[derive(Debug)]
pub struct CudaMemory {
    address: u64,
    driver: Driver,
}

impl Memory for CudaMemory {
    fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if self.driver.bind().is_ok() {
            // SAFETY: of this pool, given back once, after all work on the stream that uses it.
            let _ = unsafe { cuda::free_async(self.address, self.driver.open.stream) };
        }
    }
}

impl Launcher for Driver {
    type Memory = CudaMemory;

    fn alloc(&self, bytes: usize) -> Result<CudaMemory, DeviceError> {
        self.bind()?;
        let stream = self.open.stream;
        let size = bytes.max(1).next_multiple_of(256);
        // SAFETY: the stream is alive; the memory is set before anything reads it.
        let allocate = || unsafe { cuda::malloc_async(stream, size) };
        let full = |it: &DriverError| it.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let address = match allocate() {
            Err(it) if full(&it) => {
                // What the pool holds may be fragmented: free it and try once more.
                self.wait()?;
                // SAFETY: the pool is that of the device.
                let _ = unsafe { cuda::mem_pool::trim_to(self.open.pool, 0) };
                match allocate() {
                    Err(it) if full(&it) => {
                        let (free, total) = cuda::mem_get_info().unwrap_or_default();
                        return Err(DeviceError::OutOfMemory {
                            device: self.open.name.clone(),
                            asked: size as u64,
                            free: free as u64,
                            total: total as u64,
                        });
                    }
                    again => again,
                }
            }
            first => first,
        };
        let address = self.checked(address, "memory cannot be allocated")?;
        let memory = CudaMemory { address, driver: self.clone() };
        self.zero(address, size)?;
        Ok(memory)
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<(), DeviceError> {
        if from.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller's address holds the bytes, which stay until the wait below.
        let copied = unsafe { cuda::memcpy_htod_async(to, from, self.open.stream) };
        self.checked(copied, "a copy to the GPU failed")?;
        self.wait()
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: as in `upload`.
        let copied = unsafe { cuda::memcpy_dtoh_async(to, from, self.open.stream) };
        self.checked(copied, "a copy from the GPU failed")?;
        self.wait()
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: both ranges are memory of this GPU.
        let copied = unsafe { cuda::memcpy_dtod_async(to, from, bytes, self.open.stream) };
        self.checked(copied, "a copy on the GPU failed")
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the range is memory of this GPU.
        let set = unsafe { cuda::memset_d8_async(at, 0, bytes, self.open.stream) };
        self.checked(set, "memory cannot be set")
    }

    fn launch(&self, launch: &Launch) -> Result<(), DeviceError> {
        self.bind()?;
        let function = self.open.functions[launch.kernel];
        let mut args: Vec<*mut c_void> =
            launch.args.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast()).collect();
        let [x, y, z] = launch.grid;
        // SAFETY: the arguments are those of the kernel, in order (the tests run the same calls); the
        // driver copies them before it returns and does not write to them.
        let begun = unsafe {
            cuda::launch_kernel(
                function,
                (x, y, z),
                (THREADS, 1, 1),
                launch.shared,
                self.open.stream,
                &mut args,
            )
        };
        self.checked(begun, &format!("kernel {} did not start", launch.kernel))
    }

    fn product(&self, product: &Product) -> Result<(), DeviceError> {
        self.bind()?;
        let Product { m, n, k, number, left, right, add, out } = *product;
        let operation = |transposed| {
            if transposed {
                blas_sys::cublasOperation_t::CUBLAS_OP_T
            } else {
                blas_sys::cublasOperation_t::CUBLAS_OP_N
            }
        };
        let of = match number {
            Number::F32 => blas_sys::cudaDataType_t::CUDA_R_32F,
            Number::Bf16 => blas_sys::cudaDataType_t::CUDA_R_16BF,
        };
        let (one, beta) = (1.0_f32, if add { 1.0_f32 } else { 0.0 });
        let blas = self.open.blas.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the matrices are inside memory of this GPU, as the caller's shapes say. COMPUTE_32F
        // without FAST_TF32 keeps f32 factors as they are.
        let begun = unsafe {
            blas::gemm_ex(
                *blas,
                operation(left.transposed),
                operation(right.transposed),
                m as c_int,
                n as c_int,
                k as c_int,
                (&raw const one).cast(),
                left.address as *const c_void,
                of,
                left.stride as c_int,
                right.address as *const c_void,
                of,
                right.stride as c_int,
                (&raw const beta).cast(),
                out.address as *mut c_void,
                blas_sys::cudaDataType_t::CUDA_R_32F,
                out.stride as c_int,
                blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                blas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        begun.map_err(|it| {
            failed(
                &self.open.name,
                &format!("a product of [{m}, {k}] and [{k}, {n}] did not start: {it}"),
            )
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        self.bind().and_then(|()| self.wait()).ok()?;
        // What the pool holds and nothing uses is free as well.
        // SAFETY: the pool is that of the device.
        let _ = unsafe { cuda::mem_pool::trim_to(self.open.pool, 0) };
        Some(cuda::mem_get_info().ok()?.0 as u64)
    }

    fn name(&self) -> String {
        self.open.name.clone()
    }
}
