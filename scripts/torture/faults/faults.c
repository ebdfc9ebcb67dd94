/* A library for LD_PRELOAD: one system call on a file below FAULT_ROOT fails, and all of them are recorded.
 *
 * FAULT_AT counts the calls from 1; with FAULT_CALL and FAULT_FILE (a part of the path) only those of that kind and file
 * count, so that a fault can be chosen where threads race. FAULT_HOW is an errno by its number, or `short` (half of a
 * buffer), `kill`, `drop` (a write that only says it was done), `flip` (a bit of what is read or written), or `lasting:N`
 * (errno N from there on). A thread that is started counts as a call on FAULT_ROOT. FAULT_LOG gets a line for each call, and behind a write's line its bytes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { PASS, FAIL, SHORT, DROP, FLIP };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls;
static int log_fd = -1;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int below_root(const char *path, char *whole) {
    const char *root = setting("FAULT_ROOT");
    if (!root || !path) return 0;
    if (path[0] == '/') snprintf(whole, PATH_MAX, "%s", path);
    else {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(whole, PATH_MAX, "%.2000s/%.2000s", here, path);
    }
    return strncmp(whole, root, strlen(root)) == 0;
}

static int path_of(int fd, char *whole) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = REAL(readlink)(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below_root(path, whole);
}

/* What becomes of a call; `bytes` are those of a write, for the record. */
static int fate(const char *call, const char *path, const char *other, long at, const void *bytes, size_t length) {
    const char *kind = setting("FAULT_CALL"), *file = setting("FAULT_FILE"), *how = setting("FAULT_HOW");
    const char *number = setting("FAULT_AT"), *log = setting("FAULT_LOG");
    int result = PASS;
    pthread_mutex_lock(&lock);
    if (!(kind && strcmp(kind, call)) && !(file && !strstr(path, file))) {
        calls++;
        long wanted = number ? atol(number) : 0;
        int lasting = how && strncmp(how, "lasting:", 8) == 0;
        if (wanted && how && (calls == wanted || (lasting && calls > wanted))) {
            if (!strcmp(how, "kill")) syscall(SYS_kill, getpid(), SIGKILL);
            result = !strcmp(how, "short") ? SHORT : !strcmp(how, "drop") ? DROP : !strcmp(how, "flip") ? FLIP : FAIL;
            if (result == FAIL) errno = atoi(lasting ? how + 8 : how);
        }
    }
    if (log && result != FAIL) {
        int saved = errno;
        char line[2 * PATH_MAX + 99];
        if (log_fd < 0) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        int size = snprintf(line, sizeof line, "%s\t%s\t%s\t%ld\t%zu\t%d\n", call, path, other ? other : "", at, bytes ? length : 0, result);
        syscall(SYS_write, log_fd, line, size);
        if (bytes) syscall(SYS_write, log_fd, bytes, length);
        errno = saved;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int path_call(const char *call, const char *path, const char *other) {
    char whole[PATH_MAX], second[PATH_MAX];
    if (!below_root(path, whole)) return PASS;
    if (other && !below_root(other, second)) return PASS;
    return fate(call, whole, other ? second : NULL, 0, NULL, 0);
}

static int fd_call(const char *call, int fd) {
    char whole[PATH_MAX];
    return path_of(fd, whole) ? fate(call, whole, NULL, 0, NULL, 0) : PASS;
}

/* open has a mode only where it creates. */
#define OPEN(name, signature, path, call)                                   \
    int name signature {                                                    \
        mode_t mode = 0;                                                    \
        if (flags & (O_CREAT | __O_TMPFILE)) {                              \
            va_list rest;                                                   \
            va_start(rest, flags);                                          \
            mode = va_arg(rest, int);                                       \
            va_end(rest);                                                   \
        }                                                                   \
        const char *kind = flags & O_TRUNC ? "truncate" : flags & O_CREAT ? "create" : "open"; \
        return path_call(kind, path, NULL) == FAIL ? -1 : call;             \
    }
OPEN(open, (const char *path, int flags, ...), path, REAL(open)(path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), path, REAL(open64)(path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), path, REAL(openat)(at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), path, REAL(openat64)(at, path, flags, mode))

static ssize_t reading(int fd, void *to, size_t length, off_t at, int has_place) {
    int what = fd_call("read", fd);
    if (what == FAIL) return -1;
    if (what == SHORT && length > 1) length /= 2;
    ssize_t done = has_place ? REAL(pread64)(fd, to, length, at) : REAL(read)(fd, to, length);
    if (what == FLIP && done > 0) ((char *)to)[done / 2] ^= 1;
    return done;
}
ssize_t read(int fd, void *to, size_t length) { return reading(fd, to, length, 0, 0); }
ssize_t pread(int fd, void *to, size_t length, off_t at) { return reading(fd, to, length, at, 1); }
ssize_t pread64(int fd, void *to, size_t length, off64_t at) { return reading(fd, to, length, at, 1); }

ssize_t write(int fd, const void *from, size_t length) {
    char whole[PATH_MAX];
    if (!path_of(fd, whole)) return REAL(write)(fd, from, length);
    off_t at = fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    int what = fate("write", whole, NULL, at, from, length);
    if (what == FAIL) return -1;
    if (what == DROP) return length;
    if (what == SHORT && length > 1) length /= 2;
    if (what != FLIP) return REAL(write)(fd, from, length);
    char *changed = malloc(length);
    memcpy(changed, from, length);
    changed[length / 2] ^= 1;
    ssize_t done = REAL(write)(fd, changed, length);
    free(changed);
    return done;
}

#define ON_FD(name, signature, call, ...) \
    int name signature { return fd_call(call, fd) == FAIL ? -1 : REAL(name)(__VA_ARGS__); }
ON_FD(fsync, (int fd), "flush", fd)
ON_FD(fdatasync, (int fd), "flush", fd)
ON_FD(fstat64, (int fd, struct stat64 *to), "stat", fd, to)
#define ON_PATH(name, signature, call, path, other, ...) \
    int name signature { return path_call(call, path, other) == FAIL ? -1 : REAL(name)(__VA_ARGS__); }
ON_PATH(rename, (const char *from, const char *to), "rename", from, to, from, to)
ON_PATH(mkdir, (const char *path, mode_t mode), "mkdir", path, NULL, path, mode)
ON_PATH(unlink, (const char *path), "unlink", path, NULL, path)
ON_PATH(rmdir, (const char *path), "rmdir", path, NULL, path)
ON_PATH(stat64, (const char *path, struct stat64 *to), "stat", path, NULL, path, to)
ON_PATH(lstat64, (const char *path, struct stat64 *to), "stat", path, NULL, path, to)
ON_PATH(symlink, (const char *target, const char *path), "symlink", path, NULL, target, path)

int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict to) {
    int what = *path ? path_call("stat", path, NULL) : fd_call("stat", at);
    return what == FAIL ? -1 : REAL(statx)(at, path, flags, mask, to);
}

int unlinkat(int at, const char *path, int flags) {
    char folder[PATH_MAX], whole[2 * PATH_MAX];
    int known = path[0] != '/' && at != AT_FDCWD && path_of(at, folder);
    snprintf(whole, sizeof whole, "%s%s%s", known ? folder : "", known ? "/" : "", path);
    int what = path_call(flags & AT_REMOVEDIR ? "rmdir" : "unlink", whole, NULL);
    return what == FAIL ? -1 : REAL(unlinkat)(at, path, flags);
}

int ftruncate64(int fd, off64_t length) {
    char whole[PATH_MAX];
    if (path_of(fd, whole) && fate("resize", whole, NULL, length, NULL, 0) == FAIL) return -1;
    return REAL(ftruncate64)(fd, length);
}

int pthread_create(pthread_t *to, const pthread_attr_t *with, void *(*run)(void *), void *argument) {
    return path_call("thread", setting("FAULT_ROOT"), NULL) == FAIL ? errno : REAL(pthread_create)(to, with, run, argument);
}

DIR *opendir(const char *path) { return path_call("list", path, NULL) == FAIL ? NULL : REAL(opendir)(path); }

char *realpath(const char *restrict path, char *restrict to) {
    return path_call("stat", path, NULL) == FAIL ? NULL : REAL(realpath)(path, to);
}
