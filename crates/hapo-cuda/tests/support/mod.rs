//! A launcher that runs the kernels' sources on the CPU, or a GPU where `HAPO_TEST_GPU` has its number.
//!
//! The system's C++ compiler compiles the sources against `fibers.hpp`, into a library that is kept under the hash of
//! its text. Guards of NaN surround memory and are checked when it is given back. The same library has stand-ins for
//! the driver, NVRTC and cuBLASLt (`driver.hpp`), so `src/driver.rs` runs too.

#![allow(dead_code, reason = "every test binary uses its own part, so no expectation holds in all")]

pub(crate) mod mutants;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hapo_core::hex;
use hapo_cuda::{
    CudaDevice, Driver, Launcher, Memory, Operation, Product, Source, THREADS, sources,
};
use hapo_kernels::{Compute, DeviceError};
use mutants::Mutant;
use sha2::{Digest, Sha256};

type LaunchFn = unsafe extern "C" fn(
    *const c_char,
    *const c_uint,
    c_uint,
    c_uint,
    *mut *mut c_void,
    usize,
    *mut *const c_char,
) -> c_int;

type ProductFn = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    c_int,
    *const c_void,
    usize,
    c_int,
    *const c_void,
    usize,
    c_int,
    f32,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    usize,
    *const f32,
);

struct Library {
    code: libloading::Library,
    /// Fibers are one machine: one launch at a time.
    turn: Mutex<()>,
}

impl Library {
    fn launch(&self, kernel: &str, grid: [u32; 3], shared: u32, args: &[u64]) {
        let name = CString::new(kernel).unwrap();
        let mut args: Vec<*mut c_void> =
            args.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast()).collect();
        let mut problem = std::ptr::null();
        // SAFETY: the library counts the arguments and has the types from the kernel itself.
        let failed = unsafe {
            let run = self.code.get::<LaunchFn>(b"fibers_launch").unwrap();
            run(
                name.as_ptr(),
                grid.as_ptr(),
                THREADS,
                shared,
                args.as_mut_ptr(),
                args.len(),
                &raw mut problem,
            )
        };
        if failed == 0 {
            return;
        }
        // SAFETY: a message of the library, which outlives this.
        let problem = unsafe { CStr::from_ptr(problem) };
        panic!("{kernel}: {}", problem.to_string_lossy());
    }

    fn product(&self, product: &Product) {
        // SAFETY: the library has the function.
        let run = unsafe { self.code.get::<ProductFn>(b"fibers_product") }.unwrap();
        let Product { m, n, k, number, left, right, out, out_is_bf16, bias, .. } = *product;
        assert!(!out.transposed, "the result is in its stored order");
        assert!(!(out_is_bf16 && bias.is_some()), "a product with a bias is stored in f32");
        // SAFETY: the matrices are inside memory of this launcher, as the caller's shapes say.
        unsafe {
            run(
                m,
                n,
                k,
                match number {
                    Compute::F32 => 0,
                    Compute::Bf16 => 1,
                    Compute::Tf32 => 2,
                },
                pointer(left.address).cast(),
                left.stride,
                c_int::from(left.transposed),
                pointer(right.address).cast(),
                right.stride,
                c_int::from(right.transposed),
                product.factor,
                c_int::from(product.add),
                c_int::from(product.whole),
                pointer(out.address).cast(),
                c_int::from(out_is_bf16),
                out.stride,
                bias.map_or(std::ptr::null_mut(), pointer).cast(),
            );
        }
    }
}

/// The kernels on the CPU.
#[derive(Clone)]
pub(crate) struct Fibers {
    library: Arc<Library>,
    /// Refuse every allocation.
    full: Arc<AtomicBool>,
    used: Arc<Used>,
}

/// Bytes that are held now, and the most that were.
#[derive(Debug, Default)]
struct Used {
    held: AtomicUsize,
    most: AtomicUsize,
}

impl Fibers {
    /// From now on every buffer is refused, or none is.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> usize {
        self.used.held.load(Ordering::Relaxed)
    }

    /// The most bytes that were held at once.
    pub(crate) fn most_held(&self) -> usize {
        self.used.most.load(Ordering::Relaxed)
    }
}

impl Debug for Fibers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fibers")
    }
}

/// The machine under the tests.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// The CPU.
    Fibers(Fibers),
    /// A GPU.
    Gpu(Driver),
}

/// Its memory.
#[derive(Debug)]
pub(crate) enum Room {
    Fibers(Guarded),
    Gpu(<Driver as Launcher>::Memory),
}

impl Memory for Room {
    fn address(&self) -> u64 {
        match self {
            Self::Fibers(it) => it.address(),
            Self::Gpu(it) => it.address(),
        }
    }
}

/// Runs the same on either.
macro_rules! on {
    ($machine:expr, $it:ident => $work:expr) => {
        match $machine {
            Self::Fibers($it) => $work,
            Self::Gpu($it) => $work,
        }
    };
}

impl Launcher for Machine {
    type Memory = Room;

    fn alloc(&self, bytes: usize) -> Result<Room, DeviceError> {
        match self {
            Self::Fibers(it) => it.alloc(bytes).map(Room::Fibers),
            Self::Gpu(it) => it.alloc(bytes).map(Room::Gpu),
        }
    }

    fn alloc_of(&self, from: &[u8]) -> Result<Room, DeviceError> {
        match self {
            Self::Fibers(it) => it.alloc_of(from).map(Room::Fibers),
            Self::Gpu(it) => it.alloc_of(from).map(Room::Gpu),
        }
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<(), DeviceError> {
        on!(self, it => it.upload(from, to))
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        on!(self, it => it.download(from, to))
    }

    fn begin(&self, operation: Operation, args: &[u64]) -> Result<(), DeviceError> {
        on!(self, it => it.begin(operation, args))
    }

    fn free_bytes(&self) -> Option<u64> {
        on!(self, it => it.free_bytes())
    }

    fn repeated(&self, work: impl FnOnce()) -> Result<(), DeviceError> {
        on!(self, it => it.repeated(work))
    }

    fn name(&self) -> String {
        on!(self, it => it.name())
    }
}

impl Machine {
    /// The fibers; `None`, and a line that says so, on a GPU, whose memory no test fills.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    pub(crate) fn fibers(&self) -> Option<&Fibers> {
        match self {
            Self::Fibers(it) => Some(it),
            Self::Gpu(_) => {
                eprintln!("skipped on a GPU");
                None
            }
        }
    }
}

/// True where the kernels run on the CPU.
pub(crate) fn is_emulator() -> bool {
    std::env::var_os(GPU).is_none()
}

/// How many times further than the fibers a GPU may be from the CPU: its exponential and its fused multiply-adds round
/// otherwise.
pub(crate) fn slack() -> f32 {
    if is_emulator() { 1.0 } else { 4.0 }
}

/// Names the GPU to test on.
const GPU: &str = "HAPO_TEST_GPU";

/// The machine to test on; `None`, and a line that says so, where there is no C++ compiler.
pub(crate) fn gpu(products: Compute) -> Option<CudaDevice<Machine>> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    static LIBRARY: OnceLock<Option<Arc<Library>>> = OnceLock::new();
    if let Ok(number) = std::env::var(GPU) {
        let number = number.parse().expect("HAPO_TEST_GPU is the number of a GPU");
        let driver = DRIVER.get_or_init(|| Driver::open(number).expect("a GPU"));
        return Some(CudaDevice::new(Machine::Gpu(driver.clone()), products));
    }
    let library = LIBRARY.get_or_init(load).clone()?;
    let (full, used) = (Arc::default(), Arc::default());
    Some(CudaDevice::new(Machine::Fibers(Fibers { library, full, used }), products))
}

fn load() -> Option<Arc<Library>> {
    let path = build()?.join(LIBRARY_FILE);
    // SAFETY: the library was built from the text below and has no initialiser of consequence.
    let code = unsafe { libloading::Library::new(path) }.unwrap();
    Some(Arc::new(Library { code, turn: Mutex::new(()) }))
}

/// The library of kernels.
const LIBRARY_FILE: &str = "kernels.so";

/// The library's names as driver, NVRTC and cuBLASLt.
const STAND_INS: [&str; 3] = ["libcuda.so", "libnvrtc.so.12", "libcublasLt.so.12"];

/// The folder of the library, built where it is not there; `None`, and a line that says so, where there is no C++
/// compiler.
pub(crate) fn build() -> Option<PathBuf> {
    build_with(mutants::wanted())
}

/// The same with an error in the kernels.
pub(crate) fn build_with(mutant: Option<&Mutant>) -> Option<PathBuf> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let text = program(mutant);
    // `scripts/gpu/prepare` takes the newest of the kernels without an error.
    let what = if mutant.is_some() { "mutant" } else { "fibers" };
    let name = format!("{what}-{}", &hex(Sha256::digest(&text))[..16]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        return Some(folder);
    }
    if Command::new(&compiler).arg("--version").output().is_err() {
        assert!(
            std::env::var_os("HAPO_REQUIRE_CXX").is_none(),
            "HAPO_REQUIRE_CXX is set and there is no C++ compiler {compiler}"
        );
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: no C++ compiler {compiler} to run the kernels with");
        }
        return None;
    }
    // Made aside: several tests may build it at the same time, and the first one's stays.
    let aside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, object) = (aside.path().join("kernels.cpp"), aside.path().join(LIBRARY_FILE));
    std::fs::write(&source, text).unwrap();
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O2", "-ftree-vectorize", "-fPIC", "-shared", "-w"])
        .args(["-fno-strict-aliasing", "-U_FORTIFY_SOURCE"])
        .arg("-o")
        .args([&object, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in STAND_INS {
        std::os::unix::fs::symlink(LIBRARY_FILE, aside.path().join(name)).unwrap();
    }
    if std::fs::rename(aside.path(), &folder).is_ok() {
        let _ = aside.keep();
    }
    Some(folder)
}

/// The kernels, the machine that runs them, and the stand-ins for NVIDIA's libraries; beside an error the kernels of
/// attention alone, which are sooner compiled.
fn program(mutant: Option<&Mutant>) -> String {
    let mut text = format!("{}\n", include_str!("fibers.hpp"));
    let is_needed = |it: &&Source| {
        mutant.is_none() || it.file.starts_with("attention") || it.file == "cache.cu"
    };
    let sources: Vec<_> = sources().iter().filter(is_needed).collect();
    for (i, source) in sources.iter().enumerate() {
        // The common part is in front of every one, once for the compiler.
        let mut program = source.program();
        if let Some(mutant) = mutant.filter(|it| it.file == source.file) {
            program = mutant.plant(&program);
        }
        let own = program.split_once(&format!("#line 1 \"{}\"", source.file)).unwrap();
        if i == 0 {
            text += own.0;
        }
        text += &format!("#line 1 \"{}\"{}\n", source.file, own.1);
    }
    text += "const Entry entries[] = {\n";
    let names: Vec<_> = sources.iter().flat_map(|it| it.kernels()).collect();
    for name in &names {
        text += &format!("    {{\"{name}\", Unpack<&{name}>::run, Unpack<&{name}>::count}},\n");
    }
    text += &format!("}};\nconst size_t n_entries = {};\n", names.len());
    text + include_str!("driver.hpp")
}

/// Eight words: buffers begin on such boundaries.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable, Debug)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Words around every buffer.
const GUARD: usize = 32;
const GUARD_WORD: u64 = 0x7fc0_dead_7fc0_dead;

/// Memory of the CPU between two guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    lines: *mut [Line],
    bytes: usize,
    used: Arc<Used>,
}

// SAFETY: the launcher uses the memory one call at a time.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Memory for Guarded {
    fn address(&self) -> u64 {
        self.lines.cast::<u64>().addr() as u64 + (GUARD * 8) as u64
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.used.held.fetch_sub(self.bytes, Ordering::Relaxed);
        // SAFETY: made by `alloc` and dropped once.
        let lines = unsafe { Box::from_raw(self.lines) };
        let bytes: &[u8] = bytemuck::cast_slice(&lines);
        let guard: Vec<u8> = [GUARD_WORD; GUARD].iter().flat_map(|it| it.to_ne_bytes()).collect();
        let start = GUARD * 8;
        // A buffer may end in the middle of a line, whose rest is the guard's as well.
        let whole = bytes[..start] == guard[..]
            && bytes[start + self.bytes.next_multiple_of(64)..] == guard[..]
            && bytes[start + self.bytes..start + self.bytes.next_multiple_of(64)]
                .iter()
                .all(|&it| it == 0xee);
        if !std::thread::panicking() {
            assert!(whole, "a kernel wrote outside its {} bytes", self.bytes);
        }
    }
}

/// An address as it was given out, to read or write.
fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Fibers {
    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.library.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Launcher for Fibers {
    type Memory = Guarded;

    fn alloc(&self, bytes: usize) -> Result<Guarded, DeviceError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(DeviceError::OutOfMemory {
                device: self.name(),
                asked: bytes as u64,
                free: 0,
                total: 24_000_000_000,
            });
        }
        let mut lines = vec![Line([0; 8]); bytes.div_ceil(64) + 2 * GUARD / 8];
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut lines);
        let end = words.len() - GUARD;
        words[..GUARD].fill(GUARD_WORD);
        words[end..].fill(GUARD_WORD);
        let all: &mut [u8] = bytemuck::cast_slice_mut(words);
        all[GUARD * 8 + bytes..end * 8].fill(0xee);
        let lines = Box::into_raw(lines.into_boxed_slice());
        lines.cast::<u64>().expose_provenance();
        let held = self.used.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.used.most.fetch_max(held, Ordering::Relaxed);
        Ok(Guarded { lines, bytes, used: Arc::clone(&self.used) })
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<(), DeviceError> {
        let _turn = self.turn();
        // SAFETY: the caller's address holds the bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer(to), from.len()) };
        Ok(())
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let _turn = self.turn();
        // SAFETY: the caller's address has that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn begin(&self, operation: Operation, args: &[u64]) -> Result<(), DeviceError> {
        let _turn = self.turn();
        match operation {
            // SAFETY: as above; the ranges do not overlap.
            Operation::Copy { from, to, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(pointer(from), pointer(to), bytes);
            },
            // SAFETY: as above.
            Operation::Zero { at, bytes } => unsafe {
                std::ptr::write_bytes(pointer(at), 0, bytes);
            },
            Operation::Launch { kernel, grid, shared, .. } => {
                self.library.launch(kernel, grid, shared, args);
            }
            Operation::Product(product) => self.library.product(&product),
        }
        Ok(())
    }

    fn name(&self) -> String {
        "fibers".to_owned()
    }
}
