/* Lets one chosen call of the C library go wrong, in whatever language it is made.

   Preloaded into a process, it counts the calls that touch files below one folder, by kind, and
   does to the N-th of a kind what the board says: fail, do a part, or send a signal. The board is a
   file that fault_server.py and the children of what it runs share (HEADCOUNT_FAULT_BOARD). */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of KINDS in fault_server.py. */
enum kind { OPEN, CREATE, READ, WRITE, COPY, FSYNC, RENAME, MKDIR, LINK, UNLINK, RMDIR, TRUNCATE,
            LIST, STAT, CHMOD, KIND_COUNT };
/* In the order of ACTIONS there. */
enum action { NOTHING, FAIL_ONCE, FAIL_FROM_HERE, SHORTEN, SIGNAL };

#define NAMED 232
#define LOGGED 8192

struct board {
    int32_t active, main_pid, kind, at, action, number;
    uint32_t failing;            /* kinds that fail from here on, as bits */
    _Atomic int32_t struck, logged;
    _Atomic int32_t counts[16];
    char root[512];
    struct { int32_t kind, pid; char path[NAMED]; } log[LOGGED];
};

static struct board *board;

__attribute__((constructor)) static void find_board(void) {
    const char *path = getenv("HEADCOUNT_FAULT_BOARD");
    int descriptor = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (descriptor < 0) return;
    void *found = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (found != MAP_FAILED) board = found;
    syscall(SYS_close, descriptor);
}

static int starts_with_root(const char *path) {
    size_t length = strlen(board->root);
    return !strncmp(path, board->root, length) && (path[length] == '/' || !path[length]);
}

static int name_of(int descriptor, char *into, size_t size) {
    char link[64];
    if (descriptor == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, into, size - 1);
    into[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* The whole name of what a call is about; 0 if it lies elsewhere. */
static int watched_at(int folder, const char *path, char *into, size_t size) {
    if (!board || !board->active || !path) return 0;
    if (path[0] == '/') snprintf(into, size, "%s", path);
    else {
        if (!name_of(folder, into, size)) return 0;
        size_t length = strlen(into);
        if (path[0]) snprintf(into + length, size - length, "/%s", path);
    }
    return starts_with_root(into);
}

static int watched_fd(int descriptor, char *into, size_t size) {
    if (!board || !board->active) return 0;
    return name_of(descriptor, into, size) && starts_with_root(into);
}

static void note(enum kind kind, const char *path) {
    int place = atomic_fetch_add(&board->logged, 1);
    if (place >= LOGGED) return;
    size_t root = strlen(board->root), length = strlen(path);
    const char *shown = length > root ? path + root + 1 : ".";
    if (strlen(shown) >= NAMED) shown = path + length - (NAMED - 1);
    board->log[place].kind = kind;
    board->log[place].pid = syscall(SYS_getpid);
    snprintf(board->log[place].path, NAMED, "%s", shown);
}

/* What is to happen to this call. SIGNAL has happened when this returns, unless it kills. */
static enum action strike(enum kind kind, const char *path) {
    int number = atomic_fetch_add(&board->counts[kind], 1) + 1;
    note(kind, path);
    int here = (int)kind == board->kind && number == board->at;
    if (here) atomic_store(&board->struck, 1);
    if (board->action == FAIL_FROM_HERE)
        return here || (atomic_load(&board->struck) && (board->failing >> kind & 1)) ? FAIL_ONCE : NOTHING;
    if (!here) return NOTHING;
    if (board->action == SIGNAL && board->number != SIGKILL) {
        int whom = board->number == SIGINT ? -board->main_pid : board->main_pid;
        syscall(SYS_kill, whom, board->number);
        return NOTHING;
    }
    return board->action;
}

static void kill_main(void) { syscall(SYS_kill, board->main_pid, SIGKILL); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call that is done whole or not at all. */
#define WHOLE(kind, is_watched, call, failed)                                       \
    do {                                                                            \
        int saved = errno;                                                          \
        char path[4096];                                                            \
        if (is_watched) {                                                           \
            enum action action = strike(kind, path);                                \
            if (action == FAIL_ONCE) { errno = board->number; return failed; }      \
            if (action == SIGNAL) kill_main();                                      \
        }                                                                           \
        errno = saved;                                                              \
        return call;                                                                \
    } while (0)

/* A call that moves `count` bytes, or fewer: a part of it is done before a kill. */
#define MOVING(kind, descriptor, count, call)                                       \
    do {                                                                            \
        int saved = errno;                                                          \
        char path[4096];                                                            \
        if (watched_fd(descriptor, path, sizeof path)) {                            \
            enum action action = strike(kind, path);                                \
            if (action == FAIL_ONCE) { errno = board->number; return -1; }          \
            if ((action == SHORTEN || action == SIGNAL) && (count) > 1) count /= 2; \
            if (action == SIGNAL) { (void)!call; kill_main(); }                     \
        }                                                                           \
        errno = saved;                                                              \
        return call;                                                                \
    } while (0)

static enum kind opened(int flags) {
    return flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE ? CREATE : OPEN;
}

static mode_t mode_in(int flags, va_list rest) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPENING(name, more)                                                         \
    va_list rest;                                                                   \
    va_start(rest, flags);                                                          \
    mode_t mode = mode_in(flags, rest);                                             \
    va_end(rest);                                                                   \
    WHOLE(opened(flags), watched_at(more, file, path, sizeof path), name, -1)

int open(const char *file, int flags, ...) { OPENING(REAL(open)(file, flags, mode), AT_FDCWD); }
int open64(const char *file, int flags, ...) { OPENING(REAL(open64)(file, flags, mode), AT_FDCWD); }
int openat(int folder, const char *file, int flags, ...) {
    OPENING(REAL(openat)(folder, file, flags, mode), folder);
}
int openat64(int folder, const char *file, int flags, ...) {
    OPENING(REAL(openat64)(folder, file, flags, mode), folder);
}
FILE *fopen(const char *file, const char *mode) {
    WHOLE(mode[0] == 'r' ? OPEN : CREATE, watched_at(AT_FDCWD, file, path, sizeof path),
          REAL(fopen)(file, mode), NULL);
}
FILE *fopen64(const char *file, const char *mode) {
    WHOLE(mode[0] == 'r' ? OPEN : CREATE, watched_at(AT_FDCWD, file, path, sizeof path),
          REAL(fopen64)(file, mode), NULL);
}

ssize_t read(int fd, void *into, size_t count) { MOVING(READ, fd, count, REAL(read)(fd, into, count)); }
ssize_t pread(int fd, void *into, size_t count, off_t at) {
    MOVING(READ, fd, count, REAL(pread)(fd, into, count, at));
}
ssize_t pread64(int fd, void *into, size_t count, off64_t at) {
    MOVING(READ, fd, count, REAL(pread64)(fd, into, count, at));
}
ssize_t write(int fd, const void *from, size_t count) {
    MOVING(WRITE, fd, count, REAL(write)(fd, from, count));
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) {
    MOVING(WRITE, fd, count, REAL(pwrite)(fd, from, count, at));
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    MOVING(WRITE, fd, count, REAL(pwrite64)(fd, from, count, at));
}

/* Of several pieces the first one alone is cut. */
#define VECTOR(kind, call)                                                          \
    struct iovec first = *pieces;                                                   \
    const struct iovec *given = pieces;                                             \
    int all = many;                                                                 \
    (void)given;                                                                    \
    do {                                                                            \
        int saved = errno;                                                          \
        char path[4096];                                                            \
        if (watched_fd(fd, path, sizeof path)) {                                    \
            enum action action = strike(kind, path);                                \
            if (action == FAIL_ONCE) { errno = board->number; return -1; }          \
            if (action == SHORTEN || action == SIGNAL) {                            \
                if (first.iov_len > 1) first.iov_len /= 2;                          \
                pieces = &first;                                                    \
                many = 1;                                                           \
            }                                                                       \
            if (action == SIGNAL) { (void)!call; kill_main(); many = all; }         \
        }                                                                           \
        errno = saved;                                                              \
        return call;                                                                \
    } while (0)

ssize_t readv(int fd, const struct iovec *pieces, int many) {
    VECTOR(READ, REAL(readv)(fd, pieces, many));
}
ssize_t preadv(int fd, const struct iovec *pieces, int many, off_t at) {
    VECTOR(READ, REAL(preadv)(fd, pieces, many, at));
}
ssize_t preadv64(int fd, const struct iovec *pieces, int many, off64_t at) {
    VECTOR(READ, REAL(preadv64)(fd, pieces, many, at));
}
ssize_t writev(int fd, const struct iovec *pieces, int many) {
    VECTOR(WRITE, REAL(writev)(fd, pieces, many));
}

ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *end, size_t count, unsigned flags) {
    MOVING(COPY, to, count, REAL(copy_file_range)(from, start, to, end, count, flags));
}
ssize_t sendfile64(int to, int from, off64_t *start, size_t count) {
    MOVING(COPY, to, count, REAL(sendfile64)(to, from, start, count));
}
ssize_t sendfile(int to, int from, off_t *start, size_t count) {
    MOVING(COPY, to, count, REAL(sendfile)(to, from, start, count));
}

#define PATH_CALL(kind, folder, file, call) \
    WHOLE(kind, watched_at(folder, file, path, sizeof path), call, -1)
#define FD_CALL(kind, fd, call) WHOLE(kind, watched_fd(fd, path, sizeof path), call, -1)

int fsync(int fd) { FD_CALL(FSYNC, fd, REAL(fsync)(fd)); }
int fdatasync(int fd) { FD_CALL(FSYNC, fd, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { FD_CALL(TRUNCATE, fd, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { FD_CALL(TRUNCATE, fd, REAL(ftruncate64)(fd, size)); }
int fchmod(int fd, mode_t mode) { FD_CALL(CHMOD, fd, REAL(fchmod)(fd, mode)); }
int chmod(const char *file, mode_t mode) { PATH_CALL(CHMOD, AT_FDCWD, file, REAL(chmod)(file, mode)); }
int fchmodat(int folder, const char *file, mode_t mode, int flags) {
    PATH_CALL(CHMOD, folder, file, REAL(fchmodat)(folder, file, mode, flags));
}
int utimensat(int folder, const char *file, const struct timespec times[2], int flags) {
    PATH_CALL(CHMOD, folder, file, REAL(utimensat)(folder, file, times, flags));
}
int rename(const char *file, const char *to) { PATH_CALL(RENAME, AT_FDCWD, to, REAL(rename)(file, to)); }
int renameat(int folder, const char *file, int other, const char *to) {
    PATH_CALL(RENAME, other, to, REAL(renameat)(folder, file, other, to));
}
int renameat2(int folder, const char *file, int other, const char *to, unsigned flags) {
    PATH_CALL(RENAME, other, to, REAL(renameat2)(folder, file, other, to, flags));
}
int mkdir(const char *file, mode_t mode) { PATH_CALL(MKDIR, AT_FDCWD, file, REAL(mkdir)(file, mode)); }
int mkdirat(int folder, const char *file, mode_t mode) {
    PATH_CALL(MKDIR, folder, file, REAL(mkdirat)(folder, file, mode));
}
int link(const char *file, const char *to) { PATH_CALL(LINK, AT_FDCWD, to, REAL(link)(file, to)); }
int linkat(int folder, const char *file, int other, const char *to, int flags) {
    PATH_CALL(LINK, other, to, REAL(linkat)(folder, file, other, to, flags));
}
int symlink(const char *to, const char *file) { PATH_CALL(LINK, AT_FDCWD, file, REAL(symlink)(to, file)); }
int unlink(const char *file) { PATH_CALL(UNLINK, AT_FDCWD, file, REAL(unlink)(file)); }
int rmdir(const char *file) { PATH_CALL(RMDIR, AT_FDCWD, file, REAL(rmdir)(file)); }
int unlinkat(int folder, const char *file, int flags) {
    PATH_CALL(flags & AT_REMOVEDIR ? RMDIR : UNLINK, folder, file, REAL(unlinkat)(folder, file, flags));
}

DIR *opendir(const char *file) {
    WHOLE(LIST, watched_at(AT_FDCWD, file, path, sizeof path), REAL(opendir)(file), NULL);
}
DIR *fdopendir(int fd) { WHOLE(LIST, watched_fd(fd, path, sizeof path), REAL(fdopendir)(fd), NULL); }

int stat(const char *file, struct stat *into) { PATH_CALL(STAT, AT_FDCWD, file, REAL(stat)(file, into)); }
int stat64(const char *file, struct stat64 *into) {
    PATH_CALL(STAT, AT_FDCWD, file, REAL(stat64)(file, into));
}
int lstat(const char *file, struct stat *into) { PATH_CALL(STAT, AT_FDCWD, file, REAL(lstat)(file, into)); }
int lstat64(const char *file, struct stat64 *into) {
    PATH_CALL(STAT, AT_FDCWD, file, REAL(lstat64)(file, into));
}
int fstatat(int folder, const char *file, struct stat *into, int flags) {
    PATH_CALL(STAT, folder, file, REAL(fstatat)(folder, file, into, flags));
}
int fstatat64(int folder, const char *file, struct stat64 *into, int flags) {
    PATH_CALL(STAT, folder, file, REAL(fstatat64)(folder, file, into, flags));
}
