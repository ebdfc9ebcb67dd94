// A driver, NVRTC and cuBLASLt that run on fibers: the calls that `src/driver.rs` makes, with their rules.
//
// What a stream is given is done only when something waits for it, so that memory given back, or written over, too early
// shows. `stand_in_set` and FAKE_DRIVER="name=value,..." choose the GPU and what fails, `stand_in_get` counts.

#include <cstdlib>
#include <deque>
#include <functional>
#include <set>

namespace stand_in {

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, STUB_LIBRARY = 34, NO_BINARY = 209, NOT_FOUND = 500, NOT_READY = 600, FAILED = 719,
       INVALID_BLAS = 7, NOT_SUPPORTED = 15 };
typedef unsigned long long Address;

static std::map<std::string, long>& values() {
    static std::map<std::string, long> all = [] {
        std::map<std::string, long> it = {{"workspace", 64L << 20}, {"gpus", 1},      {"major", 9},   {"minor", 0},           {"pools", 1},
                                          {"fixed", 0},     {"optin", 232448}, {"memory", 1L << 32}, {"pinned", 1},
                                          {"init", OK},     {"refuse_images", 0}, {"refuse_ptx", 0}, {"gemm", 0},     {"other_sizes", 1},
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

typedef std::vector<std::function<int()>> Graph;
// What a stream is given while it is captured is of the graph, and is not done.
static Graph* captured = nullptr;

// What is no work cannot be captured.
static bool is_captured() { return captured && ++value("captured_wrongly"); }

static int later(std::function<int()> work) {
    if (sticky) return sticky;
    if (captured) {
        captured->push_back(std::move(work));
        return OK;
    }
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
    value("pool_high") = std::max(value("pool_high"), value("held"));
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

// What cuBLASLt is told of a product, a matrix, or an algorithm that is wanted: numbers by the attribute's.
struct Description {
    std::map<int, long long> numbers;

    long long operator[](int attribute) const {
        auto found = numbers.find(attribute);
        return found == numbers.end() ? 0 : found->second;
    }
};

static int describe(void* to, int attribute, const void* value, size_t bytes, const std::map<int, size_t>& sizes) {
    auto known = sizes.find(attribute);
    if (known == sizes.end() || known->second != bytes) return INVALID_BLAS;
    long long number = 0;
    if (bytes == 4) {
        number = *(const int*)value;
    } else {
        memcpy(&number, value, 8);
    }
    ((Description*)to)->numbers[attribute] = number;
    return OK;
}

// Type, rows, columns and distance of columns, as cuBLASLt numbers them.
enum { TYPE = 0, ROWS = 2, COLUMNS = 3, STRIDE = 4 };
// Of a product: kinds of numbers, transposed factors, what follows.
enum { COMPUTE = 0, SCALE = 1, LEFT_OP = 3, RIGHT_OP = 4, EPILOGUE = 7, BIAS = 8 };

// An algorithm is of one kind of product with at most so many columns and at least such an inner dimension, for addresses
// that are multiples of some bytes.
struct Algorithm {
    unsigned long long kind, alignment[4], whole, columns, inner;
};

static long long inner_of(const Description& product, const Description& left) {
    return left[product[LEFT_OP] ? ROWS : COLUMNS];
}

static unsigned long long kind_of(const Description& product, const Description* const matrices[4]) {
    std::string text;
    for (int attribute : {(int)COMPUTE, (int)LEFT_OP, (int)RIGHT_OP, (int)EPILOGUE}) {
        text += "," + std::to_string(product[attribute]);
    }
    for (int i = 0; i < 4; i++) {
        for (int attribute : {(int)TYPE, (int)STRIDE}) text += "," + std::to_string((*matrices[i])[attribute]);
        // The left factor has these rows too. The other sizes, columns of the result and inner, may differ.
        if (i > 1) text += "," + std::to_string((*matrices[i])[ROWS]);
    }
    return std::hash<std::string>()(text);
}

// Whether cuBLASLt multiplies such matrices.
static bool is_known(const Description& product, const Description& left, const Description& right, const Description& out) {
    long long of = left[TYPE], compute = product[COMPUTE];
    bool numbers = (of == 0 && (compute == 68 || compute == 77)) || (of == 14 && compute == 68);
    bool stored = out[TYPE] == 0 || (out[TYPE] == 14 && of == 14);
    long long m = left[product[LEFT_OP] ? COLUMNS : ROWS], k = inner_of(product, left);
    long long n = right[product[RIGHT_OP] ? ROWS : COLUMNS], inner = right[product[RIGHT_OP] ? COLUMNS : ROWS];
    bool shapes = m == out[ROWS] && n == out[COLUMNS] && k == inner && m > 0 && n > 0 && k > 0;
    bool strides = left[STRIDE] >= left[ROWS] && right[STRIDE] >= right[ROWS] && out[STRIDE] >= out[ROWS];
    bool follows = product[EPILOGUE] == 1 || (product[EPILOGUE] == 4 && product[BIAS]);
    return numbers && right[TYPE] == of && stored && shapes && strides && follows && product[SCALE] == 0;
}

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
// The high watermark of the pool's use; it can only be reset.
int cuMemPoolGetAttribute(void*, int which, void* to) {
    *(unsigned long long*)to = value("pool_high");
    return which == 8 ? OK : INVALID_VALUE;
}
int cuMemPoolSetAttribute(void*, int which, void* from) {
    if (which != 8) return OK;
    value("pool_high") = value("held");
    return *(unsigned long long*)from == 0 ? OK : INVALID_VALUE;
}
int cuMemPoolTrimTo(void*, size_t) { return OK; }
int cuStreamCreate(void** stream, unsigned) {
    *stream = (void*)&sticky;
    return OK;
}
int cuStreamDestroy_v2(void*) { return drain(); }
int cuStreamBeginCapture_v2(void*, int mode) {
    if (is_captured() || mode != 1) return INVALID_VALUE;
    captured = new Graph;
    return OK;
}
int cuStreamEndCapture(void*, void** graph) {
    *graph = captured;
    captured = nullptr;
    value("graphs")++;
    return OK;
}
int cuGraphInstantiateWithFlags(void** to, void* graph, unsigned long long) {
    if (value("refuse_graphs")) return INVALID_VALUE;
    *to = new Graph(*(Graph*)graph);
    value("graphs")++;
    return OK;
}
int cuGraphDestroy(void* graph) {
    delete (Graph*)graph;
    value("graphs")--;
    return OK;
}
int cuGraphExecDestroy(void* graph) { return cuGraphDestroy(graph); }
int cuGraphLaunch(void* graph, void*) {
    value("graphs_launched")++;
    for (auto& work : *(Graph*)graph) {
        int begun = later(work);
        if (begun) return begun;
    }
    return OK;
}
int cuStreamSynchronize(void*) {
    if (is_captured()) return INVALID_VALUE;
    value("waits")++;
    return drain();
}
// The GPU's clock ticks once an event: an operation between two takes a millisecond, and so does a gap.
int cuEventCreate(void** event, unsigned) {
    *event = new long(-1);
    value("events")++;
    return OK;
}
int cuEventRecord(void* event, void*) {
    return later([=] {
        *(long*)event = value("clock")++;
        return OK;
    });
}
int cuEventElapsedTime_v2(float* ms, void* from, void* to) {
    if (*(long*)from < 0 || *(long*)to < 0) return NOT_READY;
    *ms = (float)(*(long*)to - *(long*)from);
    return OK;
}
int cuEventDestroy_v2(void* event) {
    delete (long*)event;
    value("events")--;
    return OK;
}
int cuLaunchHostFunc(void*, void (*function)(void*), void* with) {
    value("held_back")++;
    return later([=] {
        function(with);
        return OK;
    });
}
int cuMemAllocAsync(Address* to, size_t bytes, void*) {
    if (is_captured()) return INVALID_VALUE;
    value("pool_allocations")++;
    return value("pools") ? allocate(to, bytes) : INVALID_VALUE;
}
int cuMemFreeAsync(Address at, void*) {
    if (is_captured()) return INVALID_VALUE;
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

int cublasLtCreate(void** handle) {
    *handle = (void*)&sticky;
    return OK;
}
int cublasLtDestroy(void*) { return OK; }
size_t cublasLtGetVersion() { return 120900; }

int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
    value("blas_calls")++;
    *product = new Description{{{COMPUTE, compute}, {SCALE, scale}, {EPILOGUE, 1}}};
    value("descriptions")++;
    return OK;
}
int cublasLtMatrixLayoutCreate(void** matrix, int type, unsigned long long rows, unsigned long long columns, long long stride) {
    value("blas_calls")++;
    *matrix = new Description{{{TYPE, type}, {ROWS, (long long)rows}, {COLUMNS, (long long)columns}, {STRIDE, stride}}};
    value("descriptions")++;
    return OK;
}
int cublasLtMatmulPreferenceCreate(void** wanted) {
    value("blas_calls")++;
    // Where nothing is said, addresses are promised to be multiples of 256, and parts of a sum may be added in any way.
    *wanted = new Description{{{3, 7}, {5, 256}, {6, 256}, {7, 256}, {8, 256}}};
    value("descriptions")++;
    return OK;
}
int cublasLtMatmulDescDestroy(void* it) {
    value("blas_calls")++;
    delete (Description*)it;
    value("descriptions")--;
    return OK;
}
int cublasLtMatrixLayoutDestroy(void* it) { return cublasLtMatmulDescDestroy(it); }
int cublasLtMatmulPreferenceDestroy(void* it) { return cublasLtMatmulDescDestroy(it); }
int cublasLtMatmulDescSetAttribute(void* it, int attribute, const void* to, size_t bytes) {
    value("blas_calls")++;
    return describe(it, attribute, to, bytes, {{LEFT_OP, 4}, {RIGHT_OP, 4}, {EPILOGUE, 4}, {BIAS, 8}});
}
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return INVALID_BLAS; }
int cublasLtMatmulPreferenceSetAttribute(void* it, int attribute, const void* to, size_t bytes) {
    return describe(it, attribute, to, bytes, {{1, 8}, {3, 4}, {5, 4}, {6, 4}, {7, 4}, {8, 4}});
}
int cublasLtMatmulAlgoGetHeuristic(void*, void* product, void* left, void* right, void* add, void* out, void* wanted,
                                   int most, void* results, int* found) {
    const Description* matrices[4] = {(Description*)left, (Description*)right, (Description*)add, (Description*)out};
    const Description &of = *(Description*)product, &how = *(Description*)wanted;
    value("heuristics")++;
    *found = 0;
    // A sum is whole, or its parts are added in f32 and there is memory for them.
    if (most != 1 || (how[3] != 0 && how[3] != 2) || how[1] != value("workspace")) return INVALID_BLAS;
    if (!is_known(of, *matrices[0], *matrices[1], *matrices[3])) return NOT_SUPPORTED;
    struct {
        Algorithm algorithm;
        size_t workspace;
        int status;
        float waves;
        int reserved[4];
    } result = {};
    result.algorithm.kind = kind_of(of, matrices);
    result.algorithm.whole = how[3] == 0;
    result.algorithm.columns = (*matrices[3])[COLUMNS];
    result.algorithm.inner = inner_of(of, *matrices[0]);
    for (int i = 0; i < 4; i++) result.algorithm.alignment[i] = how[5 + i];
    memcpy(results, &result, sizeof result);
    *found = 1;
    return OK;
}
int cublasLtMatmul(void*, void* product, const void* alpha, const void* left, void* left_is, const void* right,
                   void* right_is, const void* beta, const void* add, void* add_is, void* out, void* out_is,
                   const void* chosen, void* workspace, size_t bytes, void*) {
    value("blas_calls")++;
    if (value("gemm")) return (int)value("gemm");
    const Description* matrices[4] = {(Description*)left_is, (Description*)right_is, (Description*)add_is,
                                      (Description*)out_is};
    const Description &of = *(Description*)product, &a = *matrices[0], &b = *matrices[1], &d = *matrices[3];
    const Algorithm& how = *(const Algorithm*)chosen;
    auto room = memory.find((Address)workspace);
    if (room == memory.end() || room->second < bytes || (long)bytes != value("workspace")) value("without_workspace")++;
    // An algorithm is refused for what it was not chosen for.
    if (!is_known(of, a, b, d) || how.kind != kind_of(of, matrices)) return INVALID_BLAS;
    long long n = d[COLUMNS], k = inner_of(of, a), most = (long long)how.columns, least = (long long)how.inner;
    if (n > most || k < least || ((n < most || k > least) && !value("other_sizes"))) return NOT_SUPPORTED;
    Address at[] = {(Address)left, (Address)right, (Address)add, (Address)out};
    for (int i = 0; i < 4; i++) {
        if (at[i] % how.alignment[i]) return INVALID_BLAS;
    }
    // A bias lies as the result does.
    if (of[EPILOGUE] == 4 && of[BIAS] % (long long)how.alignment[3]) return INVALID_BLAS;
    if (add != out) return INVALID_BLAS;
    value("products")++;
    Description it = of, l = a, r = b, o = d;
    float beta_is = *(const float*)beta, factor = *(const float*)alpha;
    int kind = a[TYPE] == 14 ? 1 : of[COMPUTE] == 77 ? 2 : 0, whole = (int)how.whole;
    return later([=] {
        const float* bias = it[EPILOGUE] == 4 ? (const float*)it[BIAS] : nullptr;
        fibers_product(o[ROWS], n, k, kind, (const void*)at[0], l[STRIDE], it[LEFT_OP], (const void*)at[1], r[STRIDE],
                       it[RIGHT_OP], factor, beta_is != 0.0f, whole, (void*)at[3], o[TYPE] == 14, o[STRIDE], bias);
        return OK;
    });
}
}
