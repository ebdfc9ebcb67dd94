//! The launcher of a real GPU on stand-ins for the driver, NVRTC and cuBLASLt: its calls, their order, and its handling
//! of failures.
//!
//! Libraries are found when a process starts, so every test runs its body in a process of its own.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use hapo_cuda::{CudaDevice, CudaWeight, Driver, Launcher, Memory, Operation, Product, Refused};
use hapo_kernels::{
    Accumulate, Attention, Buffer, Compute, Device, DeviceError, Held, MatShape, Matrix,
    NumberFormat, Numbers,
};
use hapo_model::{ActivationCheckpointing, KvCache, LoraShape, Projection};
use hapo_testing::reference::decode;
use hapo_testing::reference::{assert_greedy, assert_logits, load};

/// Set in the process of a test's body.
const CHILD: &str = "HAPO_TEST_STAND_IN";

/// The library behind the names of NVIDIA's.
struct StandIn(libloading::Library);

impl StandIn {
    fn open() -> Self {
        // SAFETY: the name is in the loader's path, which has the library of fibers.
        Self(unsafe { libloading::Library::new("libcuda.so") }.unwrap())
    }

    fn get(&self, name: &str) -> i64 {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: the library has this function.
        unsafe {
            let get =
                self.0.get::<unsafe extern "C" fn(*const std::ffi::c_char) -> i64>(b"stand_in_get");
            get.unwrap()(name.as_ptr())
        }
    }

    fn set(&self, name: &str, value: i64) {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: as above.
        unsafe {
            let set =
                self.0.get::<unsafe extern "C" fn(*const std::ffi::c_char, i64)>(b"stand_in_set");
            set.unwrap()(name.as_ptr(), value);
        }
    }
}

/// Runs `test` in a process with these settings of the GPU, and again where it says how often.
fn child(test: &str, settings: &str, cache: &Path, more: &[(&str, &str)]) -> Option<Output> {
    let folder = support::build()?;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .env("LD_LIBRARY_PATH", &folder)
        .env("HAPO_CUDA_LIBRARIES", &folder)
        .env("HAPO_KERNEL_CACHE", cache)
        .env("FAKE_DRIVER", settings)
        .envs(more.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}, {settings}: {text}\n{errors}");
    Some(output)
}

fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|it| it == test)
}

/// A test whose body runs in a process with each of the settings.
macro_rules! on_stand_in {
    ($name:ident, [$($settings:literal),* $(,)?], $body:expr) => {
        #[test]
        fn $name() {
            if is_child(stringify!($name)) {
                let body: fn() = $body;
                return body();
            }
            let cache = tempfile::tempdir().unwrap();
            for settings in [$($settings),*] {
                child(stringify!($name), settings, cache.path(), &[]);
            }
        }
    };
}

fn open(products: Compute) -> Result<CudaDevice<Driver>, DeviceError> {
    hapo_cuda::open(0, products)
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 % 1013) as f32 - 506.0) / 300.0).collect()
}

/// One product by the device.
fn multiply(gpu: &CudaDevice<Driver>) -> Vec<f32> {
    let shape = MatShape { rows: 5, inputs: 33, outputs: 7 };
    let (x, w) = (numbers(5 * 33), numbers(33 * 7));
    let room = |n: usize| gpu.alloc(n, NumberFormat::F32).unwrap();
    let (mut xs, mut y) = (room(x.len()), room(35));
    gpu.upload(&x, xs.first_mut(x.len()));
    let mut weight = CudaWeight::zeros(gpu, [33, 7], Held::Plain).unwrap();
    // A row for each output.
    let turned: Vec<f32> = (0..w.len()).map(|i| w[i % 33 * 7 + i / 33]).collect();
    weight.write(gpu, 0, &turned);
    let output = hapo_kernels::Output {
        shape,
        pair: None,
        weight: &weight,
        onto: Accumulate::Nothing,
        y: y.first_mut(35),
    };
    gpu.product(xs.first(x.len()), None, vec![output]);
    let mut values = vec![0.0; 35];
    gpu.download(y.first(35), &mut values);
    values
}

// Shared memory that is fixed, as Hopper may count its system's kilobyte; no memory pools; no page-locked memory.
on_stand_in!(
    reference_models_run_through_the_driver,
    ["", "fixed=1024", "pools=0", "pinned=0"],
    || {
        let gpu = open(Compute::F32).unwrap();
        let model = load("tiny-qwen3", gpu.clone());
        let mut tape = hapo_model::Tape::new(hapo_model::ActivationCheckpointing::None);
        assert_logits(&model, "tiny-qwen3", &mut tape, 1e-4);
        assert_greedy(&model, "tiny-qwen3");
        let it = StandIn::open();
        assert!(it.get("launches") > 100 && it.get("products") > 50);
        assert_eq!(it.get("without_workspace"), 0, "products work in memory that they were given");
        let has_pools = it.get("pools") == 1;
        assert_eq!(it.get("plain_allocations") == 0, has_pools);
        assert_eq!(it.get("pool_allocations") > 0, has_pools);
        // Small uploads are begun and not waited for.
        assert_eq!(it.get("locked_uploads") > 100, it.get("pinned") == 1);
        drop((model, tape, gpu));
        assert_eq!(it.get("held"), 0, "all memory was given back");
        assert_eq!(it.get("descriptions"), 0, "and so was what products were told as");
    }
);

// Launches of decoding; docs/cuda.md counts with these numbers. Qwen3's heads have norms of their own, and queries, keys
// and values a product each. The A's of an adapter that multiply the same numbers are one product; B is in its matrix's.
on_stand_in!(a_layer_of_decoding_is_nine_launches, [""], || {
    let plain = [("tiny-qwen2", 9), ("tiny-llama3", 9), ("tiny-qwen3", 13)];
    let with_rank = plain.map(|(name, of_layer)| (name, of_layer, 0));
    for (name, of_layer, rank) in with_rank.into_iter().chain([("tiny-qwen2", 13, 4)]) {
        let mut model = load(name, open(Compute::Bf16).unwrap());
        if rank > 0 {
            let targets = Projection::ALL.to_vec();
            model.add_adapter(LoraShape { rank, alpha: 8.0, rslora: false, targets }).unwrap();
        }
        let mut cache = KvCache::new(&model, 256).unwrap();
        let prompt = cache.prefill(&model, &[&[1, 2, 3]]).unwrap().slots[0];
        let slot = cache.fork(prompt, 8).unwrap();
        let it = StandIn::open();
        let begun = || it.get("launches") + it.get("products");
        let mut logits = Vec::new();
        let before = begun();
        decode(&mut cache, &model, &[(slot, 4)], &mut logits).unwrap();
        // Beside the layers: embedding, norm, head, and the step's keys and values.
        let layers = model.config().layers as i64;
        assert_eq!(begun() - before, layers * of_layer + 4, "{name}");
    }
});

// A step whose launches are those of steps before is begun by one call, in both arithmetics, with rows that come and go
// and more pages; where no graph can be made it is begun launch by launch.
on_stand_in!(steps_that_repeat_are_begun_by_one_call, ["", "pools=0", "refuse_graphs=1"], || {
    for products in [Compute::F32, Compute::Bf16] {
        let gpu = open(products).unwrap();
        let driver = gpu.launcher().clone();
        let model = load("tiny-qwen2", gpu);
        let it = StandIn::open();
        let mut cache = KvCache::new(&model, 4096).unwrap();
        let prompt = cache.prefill(&model, &[&[1, 2, 3]]).unwrap().slots[0];
        let slots: Vec<_> = (0..3).map(|_| cache.fork(prompt, 100).unwrap()).collect();
        let steps: Vec<usize> = [[3; 80].as_slice(), &[2; 6], &[3; 3], &[1; 2]].concat();
        let (mut logits, mut calls, begun) = (Vec::new(), Vec::new(), driver.graphs_begun());
        for (step, &rows) in steps.iter().enumerate() {
            let fed: Vec<_> =
                slots[..rows].iter().map(|slot| (*slot, (step * 7 % 300) as u32)).collect();
            let before = it.get("launches") + it.get("blas_calls");
            decode(&mut cache, &model, &fed, &mut logits).unwrap();
            calls.push(it.get("launches") + it.get("blas_calls") - before);
        }
        assert_eq!(it.get("captured_wrongly"), 0);
        if it.get("refuse_graphs") == 0 {
            // What is left is one launch, which puts keys and values into the cache.
            assert_eq!(calls.iter().min(), Some(&1));
            let by_graph = driver.graphs_begun() - begun;
            assert!(by_graph > 65, "{by_graph} of {} steps", steps.len());
        } else {
            assert_eq!(driver.graphs_begun(), begun);
        }
        drop((cache, model));
    }
    let it = StandIn::open();
    assert_eq!(it.get("graphs"), 0, "all graphs were given back");
    assert_eq!(it.get("held"), 0, "all memory was given back");
});

/// Decoded by graphs and without them, one process each.
#[test]
#[expect(clippy::print_stdout, reason = "its own child says what it computed")]
fn graphs_change_no_bit() {
    const NAME: &str = "graphs_change_no_bit";
    if hapo_testing::slow() {
        return;
    }
    if is_child(NAME) {
        let model = load("tiny-qwen3", open(Compute::Bf16).unwrap());
        let mut cache = KvCache::new(&model, 4096).unwrap();
        let prompt = cache.prefill(&model, &[&[1, 2, 3]]).unwrap().slots[0];
        let slots: Vec<_> = (0..9).map(|_| cache.fork(prompt, 100).unwrap()).collect();
        let (mut logits, mut sum) = (Vec::new(), 0_u64);
        for step in 0..60_usize {
            let rows = 9 - step / 20;
            let fed: Vec<_> = slots[..rows].iter().map(|slot| (*slot, step as u32)).collect();
            decode(&mut cache, &model, &fed, &mut logits).unwrap();
            for logit in &logits {
                sum = sum.wrapping_mul(31).wrapping_add(u64::from(logit.to_bits()));
            }
        }
        let by_graph = model.device().launcher().graphs_begun();
        println!("bits {sum} graphs {}", by_graph > 15);
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let mut said = ["1", "0"].map(|graphs| {
        let output = child(NAME, "", cache.path(), &[("HAPO_CUDA_GRAPHS", graphs)])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(text[text.find("bits ").unwrap()..].lines().next().unwrap().to_owned())
    });
    let (Some(with), Some(without)) = (said[0].take(), said[1].take()) else {
        return;
    };
    let bits = with.strip_suffix(" graphs true").expect("most steps are a graph's");
    assert_eq!(without.strip_suffix(" graphs false"), Some(bits));
}

// The same bits, whichever memory there is.
on_stand_in!(activations_are_kept_where_they_fit, [""], || {
    let model = load("tiny-qwen2", open(Compute::Bf16).unwrap());
    let it = StandIn::open();
    let mut batch = hapo_model::PackedBatch::default();
    batch.push(&[7; 200], None);
    let target = |row| hapo_model::Target { row, token: 3, inverse_temperature: 1.0 };
    batch.targets = (0..200).map(target).collect();
    let slopes = [1.0; 200];
    let run = |checkpointing| {
        let mut tape = hapo_model::Tape::new(checkpointing).with_logit_bytes(1 << 16);
        let mut gradients = model.gradients().unwrap();
        gradients.release();
        model.device().free_bytes();
        let before = it.get("held");
        let outputs = tape.forward(&model, &batch).unwrap();
        let taken = it.get("held") - before;
        tape.backward(&model, &slopes, &slopes, &mut gradients).unwrap();
        (outputs.log_probs, model.gradient_norms(&gradients), taken)
    };
    // The first run takes memory for tables, which stays.
    run(ActivationCheckpointing::None);
    let all = run(ActivationCheckpointing::None);
    let one = run(ActivationCheckpointing::Layers);
    assert!(all.2 > one.2);
    assert_eq!((&all.0, &all.1), (&one.0, &one.1));
    assert_eq!(run(ActivationCheckpointing::Auto), all, "there is memory for all of them");
    // All with the gradients do not fit; what one layer takes with them does.
    model.device().free_bytes();
    let gradients = 4 * model.trained_len() as i64;
    it.set("memory", it.get("held") + gradients + all.2);
    let auto = run(ActivationCheckpointing::Auto);
    assert_eq!(auto, one, "there is memory for one");
});

on_stand_in!(shared_memory_is_asked_for_where_a_launch_needs_it, ["", "fixed=1024"], || {
    let gpu = open(Compute::F32).unwrap();
    let it = StandIn::open();
    assert_eq!(it.get("attributes_set"), 0, "opening sets none");
    multiply(&gpu);
    let mut x = gpu.alloc(100, NumberFormat::F32).unwrap();
    gpu.fill(x.first_mut(100), 1.0);
    assert_eq!(it.get("attributes_set"), 0, "nor do kernels that need little");
    let shape = hapo_kernels::AttentionShape::new(1, 1, 128);
    let segment = hapo_kernels::SegmentRow {
        start: 0,
        len: 3,
        prefix_start: 0,
        prefix_len: 0,
        prefix_group: 0,
    };
    let table = gpu.table(&[segment]);
    let q = gpu.alloc(3 * 128, NumberFormat::F32).unwrap();
    let (mut out, mut sums) =
        (gpu.alloc(3 * 128, NumberFormat::F32).unwrap(), gpu.alloc(3, NumberFormat::F32).unwrap());
    for _ in 0..3 {
        let (q, k, v) = (q.first(384), q.first(384), q.first(384));
        gpu.attention(Attention {
            shape,
            segments: &table,
            qkv: [q, k, v],
            out: out.first_mut(384),
            log_sums: sums.first_mut(3),
        });
    }
    let mut values = [0.0; 3];
    gpu.download(sums.first(3), &mut values);
    gpu.check().unwrap();
    assert_eq!(values, [0.0, 2.0_f32.ln(), 3.0_f32.ln()]);
    assert_eq!(it.get("attributes_set"), 1, "once for the kernel that needs 82,688 bytes");
});

on_stand_in!(a_gpu_with_too_little_shared_memory_says_so, ["optin=65536"], || {
    let gpu = open(Compute::F32).unwrap();
    let shape = hapo_kernels::AttentionShape::new(1, 1, 128);
    let segment = hapo_kernels::SegmentRow {
        start: 0,
        len: 1,
        prefix_start: 0,
        prefix_len: 0,
        prefix_group: 0,
    };
    let table = gpu.table(&[segment]);
    let q = gpu.alloc(128, NumberFormat::F32).unwrap();
    let (mut out, mut sums) =
        (gpu.alloc(128, NumberFormat::F32).unwrap(), gpu.alloc(1, NumberFormat::F32).unwrap());
    let x = || q.first(128);
    gpu.attention(Attention {
        shape,
        segments: &table,
        qkv: [x(), x(), x()],
        out: out.first_mut(128),
        log_sums: sums.first_mut(1),
    });
    let error = gpu.check().unwrap_err().to_string();
    assert_eq!(error, "cuda:0: attention_128: 82688 bytes of shared memory, the limit is 65536");
});

/// A kept image that the driver refuses is compiled anew, once; one it takes is not compiled at all.
#[test]
#[expect(clippy::print_stdout, reason = "its own child says what it compiled")]
fn a_stale_image_is_compiled_anew() {
    const NAME: &str = "a_stale_image_is_compiled_anew";
    if is_child(NAME) {
        let gpu = open(Compute::F32).unwrap();
        assert_eq!(multiply(&gpu).len(), 35);
        let it = StandIn::open();
        println!("images {} ptx {}", it.get("images_compiled"), it.get("ptx_compiled"));
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let compiled = |settings: &str| {
        let output = child(NAME, settings, cache.path(), &[])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let at = text.find("images ").unwrap();
        Some(text[at..].lines().next().unwrap().to_owned())
    };
    let Some(first) = compiled("") else {
        return;
    };
    let n = hapo_cuda::sources().len();
    assert_eq!(first, format!("images {n} ptx 0"));
    assert_eq!(compiled("").unwrap(), "images 0 ptx 0");
    // Two images are torn.
    let images: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|it| it.unwrap()).collect();
    assert_eq!(images.len(), n);
    for it in &images[..2] {
        std::fs::write(it.path(), "torn").unwrap();
    }
    assert_eq!(compiled("").unwrap(), "images 2 ptx 0");
    assert_eq!(compiled("").unwrap(), "images 0 ptx 0");
    // A driver older than NVRTC takes no image of it, and compiles the text.
    assert_eq!(compiled("refuse_images=1").unwrap(), format!("images {n} ptx {n}"));
}

on_stand_in!(
    a_driver_that_takes_neither_image_nor_text_says_both,
    ["refuse_images=1,refuse_ptx=1"],
    || {
        let error = open(Compute::F32).unwrap_err().to_string();
        assert!(error.starts_with(
            "cuda:0: rows.cu cannot be loaded: the driver refuses the image: no kernel image"
        ));
        assert!(
            error.contains("; as PTX: the driver refuses the image: no kernel image"),
            "{error}"
        );
    }
);

on_stand_in!(memory_that_a_product_does_not_get_is_out_of_memory, [""], || {
    let gpu = open(Compute::F32).unwrap();
    let it = StandIn::open();
    it.set("gemm", 3);
    assert!(multiply(&gpu).iter().all(|it| it.is_nan()), "what failed gives no numbers");
    let error = gpu.check().unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    it.set("gemm", 7);
    multiply(&gpu);
    let error = gpu.check().unwrap_err().to_string();
    assert_eq!(error, "cuda:0: a product of [7, 33] and [33, 5] did not start: status 7");
});

on_stand_in!(
    full_memory_is_said_with_what_is_free,
    ["memory=100000000", "memory=100000000,pools=0"],
    || {
        let gpu = open(Compute::F32).unwrap();
        let held = gpu.alloc(5_000_000, NumberFormat::F32).unwrap();
        let error = gpu.alloc(5_000_000, NumberFormat::F32).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cuda:0 is out of memory: 0.020 GB asked for, 0.013 of its 0.100 GB"),
            "{text}"
        );
        drop(held);
        gpu.alloc(5_000_000, NumberFormat::F32).unwrap();
        assert!(gpu.free_bytes().unwrap() > 30_000_000);
    }
);

on_stand_in!(work_that_fails_on_the_gpu_gives_no_numbers, [""], || {
    let gpu = open(Compute::F32).unwrap();
    let mut x = gpu.alloc(4, NumberFormat::F32).unwrap();
    gpu.fill(x.first_mut(4), 1.0);
    // The next operation that runs on the GPU fails there, after its call came back.
    StandIn::open().set("fault_in", 1);
    assert!(gpu.squared_norms(&[Numbers::Span(x.first(4))])[0].is_nan());
    let mut values = [0.5; 4];
    gpu.download(x.first(4), &mut values);
    assert!(values.iter().all(|it| it.is_nan()), "{values:?}");
    let error = gpu.check().unwrap_err().to_string();
    assert!(error.contains("unspecified launch failure"), "{error}");
});

on_stand_in!(the_most_memory_in_use_is_that_since_the_last_question, ["", "pools=0"], || {
    let gpu = open(Compute::F32).unwrap();
    if StandIn::open().get("pools") == 0 {
        assert_eq!(gpu.peak_bytes(), None);
        return;
    }
    // Memory that was given back is in use until the stream has come to it.
    let drained_peak = || {
        gpu.free_bytes();
        gpu.peak_bytes();
        gpu.peak_bytes().unwrap()
    };
    let at_rest = drained_peak();
    drop(gpu.alloc(1 << 20, NumberFormat::F32).unwrap());
    assert_eq!(gpu.peak_bytes(), Some(at_rest + (4 << 20)));
    assert_eq!(drained_peak(), at_rest);
});

on_stand_in!(tables_and_uploads_pass_through_a_ring, ["", "pinned=0"], || {
    let driver = Driver::open(0).unwrap();
    let it = StandIn::open();
    let n = 3 << 20;
    let rooms: Vec<_> = (0..4).map(|_| driver.alloc(n).unwrap()).collect();
    let waits = it.get("waits");
    for (i, room) in (0_u8..).zip(&rooms) {
        driver.upload(&vec![i + 1; n], room.address()).unwrap();
    }
    // Of four times 3 MiB two fit into 8 MiB: one wait; without locked memory each waits.
    let expected = if it.get("pinned") == 1 { 1 } else { 4 };
    assert_eq!(it.get("waits") - waits, expected);
    for (i, room) in (0_u8..).zip(&rooms) {
        let mut bytes = vec![0; n];
        driver.download(room.address(), &mut bytes).unwrap();
        assert!(bytes.iter().all(|&it| it == i + 1), "room {i}");
    }
    // A transfer larger than the ring goes directly.
    let large = driver.alloc(9 << 20).unwrap();
    driver.upload(&vec![7; 9 << 20], large.address()).unwrap();
    let mut bytes = vec![0; 9 << 20];
    driver.download(large.address(), &mut bytes).unwrap();
    assert!(bytes.iter().all(|&it| it == 7));
});

on_stand_in!(tf32_is_cublaslt_own_and_copies_nothing, [""], || {
    let exact = multiply(&open(Compute::F32).unwrap());
    let gpu = open(Compute::Tf32).unwrap();
    let launches = StandIn::open().get("launches");
    let rounded = multiply(&gpu);
    assert_eq!(StandIn::open().get("launches"), launches, "no kernel rounds");
    let off = exact.iter().zip(&rounded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off > 0.0 && off < 0.05, "{off}");
});

#[test]
fn libraries_are_named_with_versions_and_files() {
    const NAME: &str = "libraries_are_named_with_versions_and_files";
    if is_child(NAME) {
        let gpu = open(Compute::F32).unwrap();
        let about = gpu.launcher().about();
        let folder = std::env::var("HAPO_CUDA_LIBRARIES").unwrap();
        assert_eq!(
            about,
            [
                "cuda:0: a GPU of fibers".to_owned(),
                format!("cuBLASLt 120900 at {folder}/libcublasLt.so.12"),
                "driver for CUDA 12.9".to_owned(),
                format!("NVRTC 12.9 at {folder}/libnvrtc.so.12"),
                "kernels for compute capability 9.0".to_owned(),
            ]
        );
        let warnings = gpu.launcher().warnings();
        let expected =
            "NVIDIA_TF32_OVERRIDE=1: cuBLASLt may round the inputs of f32 products to TF32";
        assert_eq!(warnings, [expected]);
        multiply(&gpu);
        let trace = gpu.launcher().trace().unwrap();
        assert!(trace.contains("product TN 7 x 5 x 33, F32"), "{trace}");
        assert!(trace.contains("copy to the GPU") && trace.contains("zeros"), "{trace}");
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let set = [("NVIDIA_TF32_OVERRIDE", "1"), ("HAPO_CUDA_TRACE", "1")];
    child(NAME, "", cache.path(), &set);
}

/// Work stays queued between two waits; the stand-in's clock ticks once an event.
#[test]
fn events_time_what_is_queued() {
    const NAME: &str = "events_time_what_is_queued";
    if is_child(NAME) {
        let gpu = open(Compute::F32).unwrap();
        let it = StandIn::open();
        let mut x = gpu.alloc(4, NumberFormat::F32).unwrap();
        let waits = it.get("waits");
        for _ in 0..2 {
            for _ in 0..70 {
                gpu.fill(x.first_mut(4), 1.0);
            }
            gpu.download(x.first(4), &mut [0.0; 4]);
        }
        assert_eq!(it.get("waits") - waits, 2);
        // The second queue follows a long one.
        assert_eq!(it.get("held_back"), 1);
        let trace = gpu.launcher().trace().unwrap();
        let fill = "   140.000      140     1000.0  fill";
        assert!(trace.contains(fill) && trace.contains("by events"), "{trace}");
        let queues = trace.lines().find(|line| line.contains("queues of 71 operations")).unwrap();
        assert!(queues.starts_with('1'), "{queues}");
        // 71 operations and the 70 gaps between them.
        assert!(queues.ends_with("ms, GPU 141.000, of it in operations 71.000"), "{queues}");
        drop((x, gpu));
        assert_eq!(it.get("events"), 0, "all events were given back");
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    child(NAME, "", cache.path(), &[("HAPO_CUDA_TRACE", "events")]);
}

/// With a file of images nothing is compiled and no NVRTC is looked for; one that is cut off is named.
#[test]
#[expect(clippy::print_stdout, reason = "its own child says what it compiled")]
fn kernels_that_ship_need_no_compiler() {
    const NAME: &str = "kernels_that_ship_need_no_compiler";
    const WRITE: &str = "HAPO_TEST_WRITE";
    if is_child(NAME) {
        if let Some(path) = std::env::var_os(WRITE) {
            let compiler = hapo_cuda::Compiler::find("test").unwrap();
            hapo_cuda::write_images(&compiler, Path::new(&path), &hapo_cuda::ARCHS, |it| it)
                .unwrap();
            return;
        }
        match open(Compute::F32) {
            Ok(gpu) => {
                assert_eq!(multiply(&gpu).len(), 35);
                let driver = Driver::open(0).unwrap();
                assert!(driver.about().contains(&"kernels that ship".to_owned()));
                println!("images {}", StandIn::open().get("images_compiled"));
            }
            Err(it) => println!("refused: {it}"),
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("kernels.zst");
    let cache = folder.path().join("cache");
    if child(NAME, "", &cache, &[(WRITE, images.to_str().unwrap())]).is_none() {
        return;
    }
    let built = support::build().unwrap();
    let library = std::fs::canonicalize(built.join("libcuda.so")).unwrap();
    for name in ["libcuda.so", "libcublasLt.so.12"] {
        std::os::unix::fs::symlink(&library, folder.path().join(name)).unwrap();
    }
    let libraries = folder.path().to_str().unwrap();
    let opened = |settings: &str| {
        let set = [
            ("HAPO_KERNEL_IMAGES", images.to_str().unwrap()),
            ("LD_LIBRARY_PATH", libraries),
            ("HAPO_CUDA_LIBRARIES", libraries),
        ];
        let output = child(NAME, settings, &cache, &set).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // An image of 9.0, and one of 8.0 on a card of 8.6.
    for settings in ["", "major=8,minor=6"] {
        assert!(opened(settings).contains("images 0\n"), "{settings}");
    }
    // No image for this card: NVRTC is asked for, which is not in these folders.
    let text = opened("major=10,minor=0");
    assert!(!text.contains("images 0"), "{text}");
    let whole = std::fs::read(&images).unwrap();
    std::fs::write(&images, &whole[..whole.len() / 2]).unwrap();
    let text = opened("");
    assert!(text.contains("kernels.zst, which holds compiled kernels: "), "{text}");
}

on_stand_in!(a_toolkits_stub_is_named, ["init=34"], || {
    let error = open(Compute::F32).unwrap_err();
    assert!(error.to_string().contains("the driver does not start: CUDA driver is a stub library"));
    assert!(error.hint().contains("LD_LIBRARY_PATH"));
});

on_stand_in!(an_old_gpu_is_refused, ["major=7,minor=5"], || {
    let error = open(Compute::F32).unwrap_err().to_string();
    assert_eq!(error, "cuda:0: compute capability 7.5, the kernels need 8.0");
});

/// The order of a product's arguments, by the stand-in's cuBLASLt.
#[test]
fn products_of_the_driver_are_those_of_the_fibers() {
    const NAME: &str = "products_of_the_driver_are_those_of_the_fibers";
    const FREE: &str = "HAPO_CUDA_FREE_PRODUCTS";
    if is_child(NAME) {
        let driver = Driver::open(0).unwrap();
        let bytes = |n: usize| driver.alloc(4 * n).unwrap();
        let (a, b, c) = (bytes(4096), bytes(4096), bytes(4));
        driver.upload(bytemuck_of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), a.address()).unwrap();
        driver.upload(bytemuck_of(&[1.0, 0.0, 2.0, 0.0, 1.0, 3.0]), b.address()).unwrap();
        let matrix =
            |address, stride, transposed| hapo_cuda::Matrix { address, stride, transposed };
        // [2, 3] by columns times [3, 2].
        let product = Product {
            m: 2,
            n: 2,
            k: 3,
            number: Compute::F32,
            left: matrix(a.address(), 2, false),
            right: matrix(b.address(), 3, false),
            factor: 1.0,
            add: false,
            whole: true,
            out: matrix(c.address(), 2, false),
            out_is_bf16: false,
            bias: None,
        };
        let mut out = [0_u8; 16];
        let mut run = |product: &Product| {
            driver.begin(Operation::Product(*product), &[]).unwrap();
            driver.download(c.address(), &mut out).unwrap();
            out.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect::<Vec<_>>()
        };
        assert_eq!(run(&product), [11.0, 14.0, 18.0, 22.0]);
        let transposed = Product { left: matrix(a.address(), 3, true), add: true, ..product };
        assert_eq!(run(&transposed), [18.0, 30.0, 29.0, 45.0]);
        let biases = bytes(2);
        driver.upload(bytemuck_of(&[100.0, 200.0]), biases.address()).unwrap();
        let with_bias = Product { bias: Some(biases.address()), ..product };
        assert_eq!(run(&with_bias), [111.0, 214.0, 118.0, 222.0]);
        // An algorithm is chosen once for a kind of product. A sum in one piece has that of a shorter one and more rows,
        // unless it is refused.
        let it = StandIn::open();
        let mut asked = |product: &Product| {
            let before = it.get("heuristics");
            run(product);
            it.get("heuristics") - before
        };
        assert_eq!(asked(&product), 0);
        let one_row = Product { n: 1, ..product };
        assert_eq!([asked(&one_row), asked(&one_row)], [1, 0]);
        let long = Product { k: 2048, right: matrix(b.address(), 2048, false), ..product };
        assert_eq!([asked(&long), asked(&long)], [1, 0]);
        it.set("other_sizes", 0);
        let other = Product { m: 1, ..long };
        let asked_twice = [asked(&other), asked(&other)];
        if std::env::var(FREE).is_ok() {
            assert_eq!(asked_twice, [1, 0], "cuBLASLt's own choice");
            assert_eq!(driver.refused().products, 0);
            return;
        }
        assert_eq!(asked_twice, [2, 0]);
        assert_eq!(driver.refused(), Refused { kinds: 1, products: 2 });
        let in_parts = Product { whole: false, ..other };
        assert_eq!([asked(&in_parts), asked(&in_parts)], [1, 0]);
        assert_eq!(driver.refused().kinds, 1, "only forward products are counted");
        // A product that is known is one call of the library; a bias takes another.
        it.set("other_sizes", 1);
        let mut calls = |product: &Product| {
            let before = it.get("blas_calls");
            run(product);
            it.get("blas_calls") - before
        };
        assert_eq!([calls(&product), calls(&with_bias)], [1, 2]);
        let elsewhere = bytes(2);
        driver.upload(bytemuck_of(&[1.0, 2.0]), elsewhere.address()).unwrap();
        let other_bias = Product { bias: Some(elsewhere.address()), ..product };
        assert_eq!(run(&other_bias), [12.0, 16.0, 19.0, 24.0]);
        assert_eq!(run(&with_bias), [111.0, 214.0, 118.0, 222.0]);
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    for free in [None, Some((FREE, "1"))] {
        child(NAME, "", cache.path(), free.as_slice());
    }
}

fn bytemuck_of(values: &[f32]) -> &[u8] {
    bytemuck::cast_slice(values)
}
