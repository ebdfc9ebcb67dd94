// A driver, NVRTC and cuBLAS that run on fibers: the calls that `src/driver.rs` makes, with their rules.
//
// What a stream is given is done only when something waits for it, so that memory given back, or written over, too early
// shows. `stand_in_set` and FAKE_DRIVER="name=value,..." choose the GPU and what fails, `stand_in_get` counts.

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace stand_in {

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, STUB_LIBRARY = 34, NO_BINARY = 209, NOT_FOUND = 500, FAILED = 719 };
typedef unsigned long long Address;

static std::map<std::string, long>& values() {
    static std::map<std::string, long> all = [] {
        std::map<std::string, long> it = {{"gpus", 1},      {"major", 9},   {"minor", 0},           {"pools", 1},
                                          {"fixed", 0},     {"optin", 232448}, {"memory", 1L << 32}, {"pinned", 1},
                                          {"init", OK},     {"refuse_images", 0}, {"refuse_ptx", 0}, {"gemm", 0},
                                          {"fault_in", -1}};
        const char* given = getenv("FAKE_DRIVER");
        std::string text = given ? given : "";
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
            it[text.substr(at, equals - at)] = atol(text.substr(equals + 1, end - equals - 1).c_str());
            at = end + 1;
        }
        return it;
    }();
    return all;
}

static long& value(const char* name) { return values()[name]; }

static std::deque<std::function<int()>> queue;
static std::map<Address, size_t> memory;
static std::map<Address, size_t> locked;
static int sticky = OK;

static int later(std::function<int()> work) {
    if (sticky) return sticky;
    queue.push_back(std::move(work));
    return OK;
}

static int drain() {
    while (!queue.empty()) {
        auto work = std::move(queue.front());
        queue.pop_front();
        long& fault = value("fault_in");
        if (fault > 0 && --fault == 0) sticky = FAILED;
        if (!sticky) sticky = work();
    }
    return sticky;
}

static int allocate(Address* to, size_t bytes) {
    if (sticky) return sticky;
    if (value("held") + (long)bytes > value("memory")) return OUT_OF_MEMORY;
    void* made = aligned_alloc(256, (bytes + 255) / 256 * 256);
    // Memory of a GPU is not zero.
    memset(made, 0xa5, bytes);
    *to = (Address)made;
    memory[*to] = bytes;
    value("held") += bytes;
    value("most_held") = std::max(value("most_held"), value("held"));
    return OK;
}

static int release(Address at) {
    auto found = memory.find(at);
    if (found == memory.end()) return INVALID_VALUE;
    memset((void*)at, 0xdd, found->second);
    value("held") -= found->second;
    free((void*)at);
    memory.erase(found);
    return OK;
}

static bool is_locked(const void* at) {
    auto after = locked.upper_bound((Address)at);
    if (after == locked.begin()) return false;
    --after;
    return (Address)at < after->first + after->second;
}

struct Module {
    bool unused;
};

struct Function {
    const Entry* entry;
    int allowed;
};

struct Program {
    std::string text;
    bool ptx;
};

struct Blas {
    size_t workspace;
};

}  // namespace stand_in

extern "C" {
using namespace stand_in;

void stand_in_set(const char* name, long to) { value(name) = to; }
long stand_in_get(const char* name) { return value(name); }

int cuInit(unsigned) { return (int)value("init"); }
int cuDriverGetVersion(int* version) {
    *version = 12090;
    return OK;
}
int cuGetErrorString(int error, const char** text) {
    *text = error == OUT_OF_MEMORY  ? "out of memory"
            : error == NO_BINARY    ? "no kernel image is available for execution on the device"
            : error == FAILED       ? "unspecified launch failure"
            : error == STUB_LIBRARY ? "CUDA driver is a stub library"
                                    : "invalid argument";
    return OK;
}
int cuGetErrorName(int, const char** text) {
    *text = "CUDA_ERROR";
    return OK;
}
int cuDeviceGetCount(int* n) {
    *n = (int)value("gpus");
    return OK;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return OK;
}
int cuDeviceGetName(char* to, int n, int) {
    snprintf(to, n, "a GPU of fibers");
    return OK;
}
int cuDeviceGetAttribute(int* to, int which, int) {
    const char* name = which == 75 ? "major" : which == 76 ? "minor" : which == 97 ? "optin" : which == 115 ? "pools" : "";
    *to = *name ? (int)value(name) : 0;
    return OK;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    *context = (void*)&queue;
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int) { return OK; }
int cuCtxGetCurrent(void** context) {
    *context = (void*)&queue;
    return OK;
}
int cuCtxSetCurrent(void*) { return OK; }
int cuDeviceGetDefaultMemPool(void** pool, int) {
    *pool = (void*)&memory;
    return value("pools") ? OK : INVALID_VALUE;
}
int cuMemPoolSetAttribute(void*, int, void*) { return OK; }
int cuMemPoolTrimTo(void*, size_t) { return OK; }
int cuStreamCreate(void** stream, unsigned) {
    *stream = (void*)&sticky;
    return OK;
}
int cuStreamDestroy_v2(void*) { return drain(); }
int cuStreamSynchronize(void*) {
    value("waits")++;
    return drain();
}
int cuMemAllocAsync(Address* to, size_t bytes, void*) {
    value("pool_allocations")++;
    return value("pools") ? allocate(to, bytes) : INVALID_VALUE;
}
int cuMemFreeAsync(Address at, void*) {
    return later([=] { return release(at); });
}
int cuMemAlloc_v2(Address* to, size_t bytes) {
    value("plain_allocations")++;
    return allocate(to, bytes);
}
// The memory is gone at once: whoever did not wait is shown.
int cuMemFree_v2(Address at) { return release(at); }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
    *total = value("memory");
    *free = *total - value("held");
    return OK;
}
int cuMemHostAlloc(void** to, size_t bytes, unsigned) {
    if (!value("pinned")) return OUT_OF_MEMORY;
    *to = malloc(bytes);
    locked[(Address)*to] = bytes;
    return OK;
}
int cuMemFreeHost(void* at) {
    locked.erase((Address)at);
    free(at);
    return OK;
}
// Page-locked memory is read when the copy is done, other memory before the call returns.
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void*) {
    if (is_locked(from)) {
        value("locked_uploads")++;
        return later([=] {
            memcpy((void*)to, from, bytes);
            return OK;
        });
    }
    std::string held((const char*)from, bytes);
    return later([=] {
        memcpy((void*)to, held.data(), bytes);
        return OK;
    });
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void*) {
    return later([=] {
        memcpy(to, (void*)from, bytes);
        return OK;
    });
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void*) {
    return later([=] {
        memcpy((void*)to, (void*)from, bytes);
        return OK;
    });
}
int cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, void*) {
    return later([=] {
        memset((void*)to, byte, bytes);
        return OK;
    });
}
int cuModuleLoadData(void** module, const void* image) {
    bool cubin = memcmp(image, "\x7f" "ELF", 4) == 0, ptx = memcmp(image, "//ptx", 5) == 0;
    if (!(cubin && !value("refuse_images")) && !(ptx && !value("refuse_ptx"))) return NO_BINARY;
    *module = new Module{false};
    return OK;
}
int cuModuleUnload(void* module) {
    delete (Module*)module;
    return OK;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
    for (size_t i = 0; i < n_entries; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            *function = new Function{&entries[i], 0};
            return OK;
        }
    }
    return NOT_FOUND;
}
int cuFuncGetAttribute(int* to, int which, void*) {
    *to = which == 1 ? (int)value("fixed") : 0;
    return OK;
}
int cuFuncSetAttribute(void* function, int, int bytes) {
    value("attributes_set")++;
    if (bytes + value("fixed") > value("optin")) return INVALID_VALUE;
    ((Function*)function)->allowed = bytes;
    return OK;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared, void*, void** args, void**) {
    Function* it = (Function*)function;
    if (shared + value("fixed") > 48 * 1024 && (int)shared > it->allowed) return INVALID_VALUE;
    value("launches")++;
    // Arguments are copied before the call returns.
    std::vector<unsigned long long> words;
    for (size_t i = 0; i < it->entry->count; i++) words.push_back(*(unsigned long long*)args[i]);
    return later([=]() mutable {
        std::vector<void*> at;
        for (auto& word : words) at.push_back(&word);
        unsigned grid[3] = {x, y, z};
        const char* problem;
        int failed = fibers_launch(it->entry->name, grid, threads, shared, at.data(), at.size(), &problem);
        if (failed) fprintf(stderr, "%s\n", problem);
        return failed ? FAILED : OK;
    });
}

int nvrtcVersion(int* major, int* minor) {
    *major = 12;
    *minor = 9;
    return OK;
}
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR"; }
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char**, const char**) {
    *program = new Program{text, false};
    return OK;
}
int nvrtcDestroyProgram(void** program) {
    delete (Program*)*program;
    return OK;
}
int nvrtcCompileProgram(void* program, int n, const char** options) {
    for (int i = 0; i < n; i++) ((Program*)program)->ptx |= strstr(options[i], "compute_") != nullptr;
    value(((Program*)program)->ptx ? "ptx_compiled" : "images_compiled")++;
    return OK;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
    *size = ((Program*)program)->text.size() + 5;
    return OK;
}
int nvrtcGetCUBIN(void* program, char* to) {
    memcpy(to, "\x7f" "ELF", 4);
    strcpy(to + 4, ((Program*)program)->text.c_str());
    return OK;
}
int nvrtcGetPTXSize(void* program, size_t* size) {
    *size = ((Program*)program)->text.size() + 6;
    return OK;
}
int nvrtcGetPTX(void* program, char* to) {
    memcpy(to, "//ptx", 5);
    strcpy(to + 5, ((Program*)program)->text.c_str());
    return OK;
}
int nvrtcGetProgramLogSize(void*, size_t* size) {
    *size = 1;
    return OK;
}
int nvrtcGetProgramLog(void*, char* to) {
    *to = 0;
    return OK;
}

int cublasCreate_v2(void** handle) {
    *handle = new Blas{0};
    return 0;
}
int cublasDestroy_v2(void* handle) {
    delete (Blas*)handle;
    return 0;
}
int cublasGetVersion_v2(void*, int* version) {
    *version = 120900;
    return 0;
}
int cublasSetStream_v2(void* handle, void*) {
    ((Blas*)handle)->workspace = 0;
    return 0;
}
int cublasSetWorkspace_v2(void* handle, void* at, size_t bytes) {
    auto found = memory.find((Address)at);
    if (found == memory.end() || found->second < bytes) return 7;
    ((Blas*)handle)->workspace = bytes;
    value("workspace") = bytes;
    return 0;
}
int cublasSetMathMode(void*, int mode) {
    value("math_mode") = mode;
    return 0;
}
int cublasGemmEx(void* handle, int left_op, int right_op, int m, int n, int k, const void* alpha, const void* left,
                 int left_type, int left_stride, const void* right, int right_type, int right_stride, const void* beta,
                 void* out, int out_type, int out_stride, int compute, int) {
    if (value("gemm")) return (int)value("gemm");
    if (!((Blas*)handle)->workspace) value("without_workspace")++;
    float scale = *(const float*)alpha, add = *(const float*)beta;
    bool known = (left_type == 0 && (compute == 68 || compute == 77)) || (left_type == 14 && compute == 68);
    // cuBLAS has bf16 results of bf16 factors alone, and adds up their parts in f32 where it is told to.
    bool stored = out_type == 0 || (out_type == 14 && left_type == 14 && value("math_mode") == 16);
    if (!known || left_type != right_type || !stored || scale != 1.0f) return 7;
    value("products")++;
    int kind = left_type == 14 ? 1 : compute == 77 ? 2 : 0;
    return later([=] {
        fibers_product(m, n, k, kind, left, left_stride, left_op, right, right_stride, right_op, add != 0.0f,
                       out, out_type == 14, out_stride);
        return OK;
    });
}
}
