//! A launcher that runs the kernels' sources on the CPU.
//!
//! The sources are compiled by the system's C++ compiler against `fibers.hpp`, into a library in a
//! temporary folder. Memory has guards of NaN around it, which are looked at when it is given back.

#![allow(dead_code, reason = "every test binary uses its own part, so no expectation holds in all")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt::Debug;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hapo_cuda::{
    CudaDevice, Launch, Launcher, MatmulPrecision, Memory, Number, Product, THREADS, sources,
};
use hapo_kernels::DeviceError;

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
    c_int,
    *mut c_void,
    usize,
);

struct Library {
    // Before the folder, so that it is closed first.
    code: libloading::Library,
    _folder: tempfile::TempDir,
    /// Fibers are one machine: one launch at a time.
    turn: Mutex<()>,
}

/// The kernels on the CPU.
#[derive(Clone)]
pub(crate) struct Fibers {
    library: Arc<Library>,
    /// Whether it refuses every allocation.
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

/// A GPU of fibers; `None`, and a line that says so, where there is no C++ compiler.
pub(crate) fn gpu(products: MatmulPrecision) -> Option<CudaDevice<Fibers>> {
    static LIBRARY: OnceLock<Option<Arc<Library>>> = OnceLock::new();
    let library = LIBRARY.get_or_init(build).clone()?;
    let (full, used) = (Arc::default(), Arc::default());
    Some(CudaDevice::new(Fibers { library, full, used }, products))
}

fn build() -> Option<Arc<Library>> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
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
    let folder = tempfile::tempdir().unwrap();
    let mut text = format!("{}\n", include_str!("fibers.hpp"));
    for (i, source) in sources().iter().enumerate() {
        // The common part is in front of every one, once for the compiler.
        let program = source.program();
        let own = program.split_once(&format!("#line 1 \"{}\"", source.file)).unwrap();
        if i == 0 {
            text += own.0;
        }
        text += &format!("#line 1 \"{}\"{}\n", source.file, own.1);
    }
    text += "const Entry entries[] = {\n";
    let names: Vec<_> = sources().iter().flat_map(|it| it.kernels).collect();
    for name in &names {
        text += &format!("    {{\"{name}\", Unpack<&{name}>::run, Unpack<&{name}>::count}},\n");
    }
    text += &format!("}};\nconst size_t n_entries = {};\n", names.len());
    let (source, object) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
    std::fs::write(&source, text).unwrap();
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-O2", "-ftree-vectorize", "-fPIC", "-shared", "-w"])
        .args(["-fno-strict-aliasing", "-U_FORTIFY_SOURCE"])
        .arg("-o")
        .args([&object, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: the library was just built and has no initialiser of consequence.
    let code = unsafe { libloading::Library::new(&object) }.unwrap();
    Some(Arc::new(Library { code, _folder: folder, turn: Mutex::new(()) }))
}

/// Words around every buffer.
const GUARD: usize = 32;
const GUARD_WORD: u64 = 0x7fc0_dead_7fc0_dead;

/// Memory of the CPU between two guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// 8-byte words; addresses of whole lines are not needed by the kernels.
    words: *mut [u64],
    bytes: usize,
    used: Arc<Used>,
}

// SAFETY: the launcher uses the memory one call at a time.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Memory for Guarded {
    fn address(&self) -> u64 {
        self.words.cast::<u64>().addr() as u64 + (GUARD * 8) as u64
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.used.held.fetch_sub(self.bytes, Ordering::Relaxed);
        // SAFETY: made by `alloc` and dropped once.
        let words = unsafe { Box::from_raw(self.words) };
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let guard: Vec<u8> = [GUARD_WORD; GUARD].iter().flat_map(|it| it.to_ne_bytes()).collect();
        let start = GUARD * 8;
        // A buffer may end in the middle of a word, whose rest is the guard's as well.
        let whole = bytes[..start] == guard[..]
            && bytes[start + self.bytes.next_multiple_of(8)..] == guard[..]
            && bytes[start + self.bytes..start + self.bytes.next_multiple_of(8)]
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
        let mut words = vec![0_u64; bytes.div_ceil(8) + 2 * GUARD];
        let end = words.len() - GUARD;
        words[..GUARD].fill(GUARD_WORD);
        words[end..].fill(GUARD_WORD);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        all[GUARD * 8 + bytes..end * 8].fill(0xee);
        let words = Box::into_raw(words.into_boxed_slice());
        words.cast::<u64>().expose_provenance();
        let held = self.used.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.used.most.fetch_max(held, Ordering::Relaxed);
        Ok(Guarded { words, bytes, used: Arc::clone(&self.used) })
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

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        let _turn = self.turn();
        // SAFETY: as above; the ranges do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), pointer(to), bytes) };
        Ok(())
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), DeviceError> {
        let _turn = self.turn();
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(pointer(at), 0, bytes) };
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> Result<(), DeviceError> {
        let _turn = self.turn();
        let name = CString::new(launch.kernel).unwrap();
        let mut args: Vec<*mut c_void> =
            launch.args.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast()).collect();
        let mut problem = std::ptr::null();
        // SAFETY: the library counts the arguments and has the types from the kernel itself.
        let failed = unsafe {
            let run = self.library.code.get::<LaunchFn>(b"fibers_launch").unwrap();
            run(
                name.as_ptr(),
                launch.grid.as_ptr(),
                THREADS,
                launch.shared,
                args.as_mut_ptr(),
                args.len(),
                &raw mut problem,
            )
        };
        if failed == 0 {
            return Ok(());
        }
        // SAFETY: a message of the library, which outlives this.
        let problem = unsafe { CStr::from_ptr(problem) };
        panic!("{}: {}", launch.kernel, problem.to_string_lossy());
    }

    fn product(&self, product: &Product) -> Result<(), DeviceError> {
        let _turn = self.turn();
        let Product { m, n, k, number, left, right, add, out } = *product;
        assert!(!out.transposed, "the result is in its stored order");
        // SAFETY: the matrices are inside memory of this launcher, as the caller's shapes say.
        unsafe {
            let run = self.library.code.get::<ProductFn>(b"fibers_product").unwrap();
            run(
                m,
                n,
                k,
                c_int::from(number == Number::Bf16),
                pointer(left.address).cast(),
                left.stride,
                c_int::from(left.transposed),
                pointer(right.address).cast(),
                right.stride,
                c_int::from(right.transposed),
                c_int::from(add),
                pointer(out.address).cast(),
                out.stride,
            );
        }
        Ok(())
    }

    fn name(&self) -> String {
        "fibers".to_owned()
    }
}
