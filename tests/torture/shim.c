/* A disk that fails as it is told, and a clock that is wrong: loaded with LD_PRELOAD.
 *
 * Built and driven by tests/torture/shim.py. The variables:
 *
 *   SHIM_ROOT     only files below this directory are affected
 *   SHIM_CONTROL  a file of 64 bytes, mapped by every process: which calls fail, and how. A test
 *                 changes it while the processes run
 *   SHIM_JOURNAL  what a power cut would take: the old bytes of every page that is written, and
 *                 every flush, appended in the order in which they happen (tests/torture/power.py)
 *   SHIM_SHIFT_S  the wall clock is wrong by so many seconds; clocks that only measure are not
 *
 * The shim calls the kernel by syscall() for its own purposes, so it never meets itself.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2, SYNC = 4, OPEN = 8, LINK = 16, UNLINK = 32, TRUNCATE = 64 };
enum { OBJECTS = 1, DATABASE = 2, LOG = 4 };
enum { PAGE = 4096 };

struct control {
    uint32_t calls;  /* which calls fail */
    uint32_t files;  /* of which files */
    int32_t error;   /* with which errno */
    uint32_t every;  /* one of so many */
    uint32_t loses;  /* a failed flush loses what it should have flushed, as Linux does */
    uint32_t unused;
    uint64_t met;    /* calls that were asked about */
    uint64_t failed; /* those that failed */
    uint64_t sleep_us; /* every flush takes so much longer */
};

struct entry { /* of the journal; `length` bytes follow */
    uint32_t kind;
    uint32_t length;
    uint64_t device;
    uint64_t inode;
    int64_t position;
    int64_t size;
    uint64_t call;
};

static struct control *told;
static char root[PATH_MAX];
static size_t root_length;
static int journal = -1;
static long shift_s;
static uint64_t calls_made;

__attribute__((constructor)) static void start(void) {
    const char *text = getenv("SHIM_SHIFT_S");
    if (text) shift_s = atol(text);
    text = getenv("SHIM_ROOT");
    if (!text) return;
    strncpy(root, text, sizeof root - 1);
    root_length = strlen(root);
    text = getenv("SHIM_CONTROL");
    if (text) {
        int file = syscall(SYS_openat, AT_FDCWD, text, O_RDWR | O_CLOEXEC, 0);
        if (file >= 0) {
            void *at = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (at != MAP_FAILED) told = at;
            syscall(SYS_close, file);
        }
    }
    text = getenv("SHIM_JOURNAL");
    if (text) {
        journal = syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
        /* A low number may be closed by a parent that starts a process; nothing uses this one. */
        int high = syscall(SYS_fcntl, journal, F_DUPFD_CLOEXEC, 200);
        if (high >= 0) { syscall(SYS_close, journal); journal = high; }
    }
}

/* Which file this is, or 0: none of ours. */
static int kind_of_path(const char *path) {
    if (!root_length || strncmp(path, root, root_length)) return 0;
    if (path[root_length] != '/' && path[root_length] != 0) return 0;
    size_t length = strlen(path);
    if (strstr(path, "-shm")) return 0;
    if (length > 4 && !strcmp(path + length - 4, "-wal")) return LOG;
    if (strstr(path + root_length, ".sqlite") || strstr(path + root_length, ".db")) return DATABASE;
    return OBJECTS;
}

static int kind_of_file(int file) {
    char name[64], path[PATH_MAX];
    if (!root_length) return 0;
    char *end = name + sizeof name - 1;
    *end = 0;
    unsigned left = file < 0 ? 0 : file;
    do *--end = '0' + left % 10; while (left /= 10);
    memcpy(end -= 14, "/proc/self/fd/", 14);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, end, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return kind_of_path(path);
}

/* Whether this call fails; errno says how. */
static int fails(uint32_t call, int kind) {
    if (!told || !kind) return 0;
    if (!(told->calls & call) || !(told->files & kind)) return 0;
    uint64_t number = __atomic_fetch_add(&told->met, 1, __ATOMIC_SEQ_CST);
    if (told->every > 1 && number % told->every) return 0;
    __atomic_fetch_add(&told->failed, 1, __ATOMIC_SEQ_CST);
    errno = told->error;
    return 1;
}

static void note(char kind, int file, int64_t position, int64_t size, uint64_t call,
                 const void *data, uint32_t length) {
    struct stat is;
    if (journal < 0 || fstat(file, &is)) return;
    struct entry entry = {kind, length, is.st_dev, is.st_ino, position,
                          size < 0 ? is.st_size : size, call};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)data, length}};
    syscall(SYS_writev, journal, parts, length ? 2 : 1);
}

/* Keep the old bytes of the pages that are about to change. */
static void note_write(int file, int64_t position, size_t count) {
    struct stat is;
    if (journal < 0 || !count || fstat(file, &is) || !S_ISREG(is.st_mode)) return;
    static __thread char page[PAGE];
    int64_t first = position / PAGE, last = (position + (int64_t)count - 1) / PAGE;
    int readable = file, opened = -1;
    if ((syscall(SYS_fcntl, file, F_GETFL, 0) & O_ACCMODE) == O_WRONLY && first * PAGE < is.st_size) {
        char name[64] = "/proc/self/fd/", *end = name + 14;
        char digits[16]; int n = 0; unsigned left = file;
        do digits[n++] = '0' + left % 10; while (left /= 10);
        while (n) *end++ = digits[--n];
        *end = 0;
        opened = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
        if (opened >= 0) readable = opened;
    }
    for (int64_t each = first; each <= last; each++) {
        ssize_t got = 0;
        if (each * PAGE < is.st_size)
            got = syscall(SYS_pread64, readable, page, PAGE, each * PAGE);
        note('W', file, each * PAGE, is.st_size, 0, page, got > 0 ? got : 0);
    }
    if (opened >= 0) syscall(SYS_close, opened);
}

static int64_t where(int file) {
    int flags = syscall(SYS_fcntl, file, F_GETFL, 0);
    if (flags & O_APPEND) { struct stat is; return fstat(file, &is) ? 0 : is.st_size; }
    int64_t at = syscall(SYS_lseek, file, 0, SEEK_CUR);
    return at < 0 ? 0 : at;
}

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int n = 0; n < count; n++) sum += parts[n].iov_len;
    return sum;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* A write that fails with "no space" has often written a part. */
static int refuses_write(int file, int64_t position, size_t count) {
    int kind = kind_of_file(file);
    if (fails(WRITE, kind)) return 1;
    if (kind) note_write(file, position, count);
    return 0;
}

ssize_t write(int file, const void *data, size_t count) {
    REAL(write);
    if (root_length && refuses_write(file, where(file), count)) return -1;
    return real(file, data, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    if (root_length && refuses_write(file, where(file), total(parts, count))) return -1;
    return real(file, parts, count);
}

ssize_t pwrite(int file, const void *data, size_t count, off_t at) {
    REAL(pwrite);
    if (refuses_write(file, at, count)) return -1;
    return real(file, data, count, at);
}

ssize_t pwrite64(int file, const void *data, size_t count, off64_t at) {
    REAL(pwrite64);
    if (refuses_write(file, at, count)) return -1;
    return real(file, data, count, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    if (refuses_write(file, at, total(parts, count))) return -1;
    return real(file, parts, count, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    REAL(pwritev64);
    if (refuses_write(file, at, total(parts, count))) return -1;
    return real(file, parts, count, at);
}

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    REAL(pwritev2);
    if (refuses_write(file, at < 0 ? where(file) : at, total(parts, count))) return -1;
    return real(file, parts, count, at, flags);
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    REAL(pwritev64v2);
    if (refuses_write(file, at < 0 ? where(file) : at, total(parts, count))) return -1;
    return real(file, parts, count, at, flags);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count,
                        unsigned flags) {
    REAL(copy_file_range);
    if (refuses_write(to, to_at ? *to_at : where(to), count)) return -1;
    return real(from, from_at, to, to_at, count, flags);
}

/* Reads fail, too: a sector that cannot be read. */
ssize_t pread(int file, void *data, size_t count, off_t at) {
    REAL(pread);
    if (fails(READ, kind_of_file(file))) return -1;
    return real(file, data, count, at);
}

ssize_t pread64(int file, void *data, size_t count, off64_t at) {
    REAL(pread64);
    if (fails(READ, kind_of_file(file))) return -1;
    return real(file, data, count, at);
}

ssize_t preadv2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    REAL(preadv2);
    if (fails(READ, kind_of_file(file))) return -1;
    return real(file, parts, count, at, flags);
}

ssize_t preadv64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    REAL(preadv64v2);
    if (fails(READ, kind_of_file(file))) return -1;
    return real(file, parts, count, at, flags);
}

static int flush(int file, int (*real)(int)) {
    int kind = kind_of_file(file);
    if (!kind) return real(file);
    uint64_t call = ((uint64_t)getpid() << 32) | (__atomic_add_fetch(&calls_made, 1, __ATOMIC_SEQ_CST) & 0xffffffff);
    note('B', file, 0, -1, call, NULL, 0);
    if (told && told->sleep_us) {
        struct timespec pause = {told->sleep_us / 1000000, told->sleep_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    if (fails(SYNC, kind)) {
        int error = errno;
        note(told->loses ? 'L' : 'F', file, 0, -1, call, NULL, 0);
        errno = error;
        return -1;
    }
    int result = real(file);
    int error = errno;
    note(result ? 'F' : 'S', file, 0, -1, call, NULL, 0);
    errno = error;
    return result;
}

int fsync(int file) { REAL(fsync); return flush(file, real); }
int fdatasync(int file) { REAL(fdatasync); return flush(file, real); }

static void note_made(int file, int flags) {
    /* An inode may have been another file's. */
    if ((flags & O_TMPFILE) == O_TMPFILE || flags & O_EXCL) note('N', file, 0, -1, 0, NULL, 0);
}

static int opens(int (*real)(int, const char *, int, ...), int folder, const char *path, int flags,
                 mode_t mode) {
    int kind = path[0] == '/' ? kind_of_path(path) : 0;
    int writes = flags & (O_CREAT | O_WRONLY | O_RDWR) || (flags & O_TMPFILE) == O_TMPFILE;
    if (kind && writes && fails(OPEN, kind)) return -1;
    int file = real(folder, path, flags, mode);
    if (file >= 0 && kind && writes) note_made(file, flags);
    return file;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, int); va_end(rest); }

int openat(int folder, const char *path, int flags, ...) {
    REAL(openat);
    MODE(flags);
    return opens((int (*)(int, const char *, int, ...))real, folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    REAL(openat64);
    MODE(flags);
    return opens((int (*)(int, const char *, int, ...))real, folder, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    MODE(flags);
    return openat(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags);
    return openat64(AT_FDCWD, path, flags, mode);
}

static void note_name(const char *path) {
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return;
    note('K', file, 0, -1, 0, path, strlen(path));
    syscall(SYS_close, file);
}

int linkat(int from, const char *old, int to, const char *path, int flags) {
    REAL(linkat);
    int kind = kind_of_path(path);
    if (fails(LINK, kind)) return -1;
    int result = real(from, old, to, path, flags);
    if (!result && kind) note_name(path);
    return result;
}

int link(const char *old, const char *path) {
    REAL(link);
    int kind = kind_of_path(path);
    if (fails(LINK, kind)) return -1;
    int result = real(old, path);
    if (!result && kind) note_name(path);
    return result;
}

int rename(const char *old, const char *path) {
    REAL(rename);
    if (fails(LINK, kind_of_path(path))) return -1;
    return real(old, path);
}

int renameat(int from, const char *old, int to, const char *path) {
    REAL(renameat);
    if (fails(LINK, kind_of_path(path))) return -1;
    return real(from, old, to, path);
}

int renameat2(int from, const char *old, int to, const char *path, unsigned flags) {
    REAL(renameat2);
    if (fails(LINK, kind_of_path(path))) return -1;
    return real(from, old, to, path, flags);
}

int unlink(const char *path) {
    REAL(unlink);
    if (fails(UNLINK, kind_of_path(path))) return -1;
    return real(path);
}

static int truncates(int file, int64_t size) {
    int kind = kind_of_file(file);
    if (fails(TRUNCATE, kind)) return -1;
    struct stat is;
    if (kind && !fstat(file, &is) && size < is.st_size) note_write(file, size, is.st_size - size);
    return 0;
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    return truncates(file, size) ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return truncates(file, size) ? -1 : real(file, size);
}

/* The wall clock. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (!result) now->tv_sec += shift_s;
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
