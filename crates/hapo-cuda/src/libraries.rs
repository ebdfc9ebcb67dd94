//! NVRTC and cuBLASLt: which files are opened, and the few of their functions that are called.
//!
//! Purpose: one file of each library, known by path and version. Folders that the user names come first, the newest
//! version first; then the names under which the system knows a version (`libcublasLt.so.13`); the name without a
//! version, which only a toolkit for building has, comes last. Price: the functions are declared here, with integers
//! for NVIDIA's enumerations.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

/// Environment variable with folders of CUDA libraries, separated as in `PATH` and searched before the system's.
pub(crate) const FOLDERS: &str = "HAPO_CUDA_LIBRARIES";

/// Declares a library: its functions, each found when it is opened.
macro_rules! library {
    ($name:ident of $names:expr; { $($function:ident: fn($($arg:ty),* $(,)?) -> $result:ty,)* }) => {
        #[allow(non_snake_case, reason = "the functions have NVIDIA's names")]
        pub(crate) struct $name {
            pub(crate) path: PathBuf,
            $(pub(crate) $function: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl $name {
            pub(crate) fn find() -> Option<Self> {
                open(&$names).find_map(|(library, path)| {
                    Some(Self {
                        path,
                        $(
                            // SAFETY: the library has the name of the one whose functions are declared.
                            $function: *unsafe { library.get(concat!(stringify!($function), "\0")) }.ok()?,
                        )*
                    })
                })
            }
        }
    };
}

pub(crate) type Program = *mut c_void;

library! {
    Nvrtc of ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]; {
        nvrtcVersion: fn(*mut c_int, *mut c_int) -> c_int,
        nvrtcGetErrorString: fn(c_int) -> *const c_char,
        nvrtcCreateProgram: fn(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> c_int,
        nvrtcDestroyProgram: fn(*mut Program) -> c_int,
        nvrtcCompileProgram: fn(Program, c_int, *const *const c_char) -> c_int,
        nvrtcGetCUBINSize: fn(Program, *mut usize) -> c_int,
        nvrtcGetCUBIN: fn(Program, *mut c_char) -> c_int,
        nvrtcGetPTXSize: fn(Program, *mut usize) -> c_int,
        nvrtcGetPTX: fn(Program, *mut c_char) -> c_int,
        nvrtcGetProgramLogSize: fn(Program, *mut usize) -> c_int,
        nvrtcGetProgramLog: fn(Program, *mut c_char) -> c_int,
    }
}

pub(crate) type Handle = *mut c_void;

library! {
    CublasLt of ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"]; {
        cublasLtCreate: fn(*mut Handle) -> c_int,
        cublasLtDestroy: fn(Handle) -> c_int,
        cublasLtGetVersion: fn() -> usize,
        cublasLtMatmulDescCreate: fn(*mut *mut c_void, c_int, c_int) -> c_int,
        cublasLtMatmulDescDestroy: fn(*mut c_void) -> c_int,
        cublasLtMatmulDescSetAttribute: fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
        cublasLtMatrixLayoutCreate: fn(*mut *mut c_void, c_int, u64, u64, i64) -> c_int,
        cublasLtMatrixLayoutDestroy: fn(*mut c_void) -> c_int,
        cublasLtMatrixLayoutSetAttribute: fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
        cublasLtMatmulPreferenceCreate: fn(*mut *mut c_void) -> c_int,
        cublasLtMatmulPreferenceDestroy: fn(*mut c_void) -> c_int,
        cublasLtMatmulPreferenceSetAttribute: fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
        cublasLtMatmulAlgoGetHeuristic: fn(
            Handle, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void,
            c_int, *mut c_void, *mut c_int,
        ) -> c_int,
        cublasLtMatmul: fn(
            Handle, *mut c_void, *const c_void, *const c_void, *mut c_void, *const c_void, *mut c_void,
            *const c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            *const c_void, *mut c_void, usize, *mut c_void,
        ) -> c_int,
    }
}

pub(crate) mod lt {
    use std::ffi::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const ALLOC_FAILED: c_int = 3;
    pub(crate) const INVALID_VALUE: c_int = 7;
    pub(crate) const NOT_SUPPORTED: c_int = 15;
    pub(crate) const OP_N: c_int = 0;
    pub(crate) const OP_T: c_int = 1;
    pub(crate) const R_32F: c_int = 0;
    pub(crate) const R_16BF: c_int = 14;
    pub(crate) const COMPUTE_32F: c_int = 68;
    pub(crate) const COMPUTE_32F_FAST_TF32: c_int = 77;
    // Of a product.
    pub(crate) const TRANSA: c_int = 3;
    pub(crate) const TRANSB: c_int = 4;
    pub(crate) const EPILOGUE: c_int = 7;
    pub(crate) const BIAS_POINTER: c_int = 8;
    pub(crate) const EPILOGUE_BIAS: u32 = 4;
    // Attribute of an algorithm preference.
    pub(crate) const MAX_WORKSPACE_BYTES: c_int = 1;
    pub(crate) const REDUCTION_SCHEME_MASK: c_int = 3;
    /// Alignment attributes of the two factors, the addend and the result.
    pub(crate) const MIN_ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
    /// The inner dimension is not split into parts that are added afterwards.
    pub(crate) const REDUCTION_NONE: u32 = 0;
    /// Parts of a sum are added in the format that they are computed in, out of place.
    pub(crate) const REDUCTION_IN_F32: u32 = 2;
}

/// Libraries of these names that open: of the named folders, then of the system.
fn open(names: &'static [&'static str]) -> impl Iterator<Item = (&'static Library, PathBuf)> {
    let folders = std::env::var_os(FOLDERS).unwrap_or_default();
    let stem = names.last().copied().unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&folders).flat_map(|it| versions_in(&it, stem)).collect();
    named.into_iter().chain(names.iter().map(PathBuf::from)).filter_map(|it| {
        // SAFETY: the library has the name of one of NVIDIA's, in a folder of the user's or the system's.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(&it) }.ok()?));
        let path = if it.is_absolute() { it } else { mapped(&it).unwrap_or(it) };
        Some((library, path))
    })
}

/// The versions of a library in a folder, the newest first, the one without a version last.
fn versions_in(folder: &Path, stem: &str) -> Vec<PathBuf> {
    // On EIO the library is looked for in the next place, and named where there is none.
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|it| {
            let path = it.ok()?.path();
            Some((version_of(path.file_name()?.to_str()?, stem)?, path))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|it| it.1).collect()
}

/// `[12, 9]` of `libnvrtc.so.12.9`, nothing of `libnvrtc-builtins.so.12.9`.
fn version_of(name: &str, stem: &str) -> Option<Vec<u32>> {
    let rest = name.strip_prefix(stem)?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    rest.strip_prefix('.')?.split('.').map(|it| it.parse().ok()).collect()
}

fn mapped(name: &Path) -> Option<PathBuf> {
    let name = name.to_str()?;
    // On EIO the place is not told.
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|it| it.find('/').map(|at| &it[at..]));
    let mut here = paths.filter(|it| it.rsplit('/').next().is_some_and(|it| it.starts_with(name)));
    here.next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_library() {
        let version = |name: &str| version_of(name, "libnvrtc.so");
        assert_eq!(version("libnvrtc.so"), Some(vec![]));
        assert_eq!(version("libnvrtc.so.12.9"), Some(vec![12, 9]));
        for other in ["libnvrtc-builtins.so.12.9", "libnvrtc.alt.so.12", "libnvrtc.so.12.a"] {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_version_of_a_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcublasLt.so.9", "libcublasLt.so", "libcublasLt.so.12", "libcublas.so.12"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = versions_in(folder.path(), "libcublasLt.so");
        let names: Vec<_> = found.iter().map(|it| it.file_name().unwrap()).collect();
        assert_eq!(names, ["libcublasLt.so.12", "libcublasLt.so.9", "libcublasLt.so"]);
        assert!(versions_in(&folder.path().join("none"), "libcublasLt.so").is_empty());
    }
}
