/* Log of unflushed writes: the previous content before every write, and the range of every flush.
 *
 * Preloaded before the C library (LD_PRELOAD), it adds a record to the file that POWER_LOG names
 * before each write to a plain file, and around each fsync. From the log follows which bytes a loss of
 * power may revert: those for which no fsync of their file began after they were written. With
 * POWER_LIES an fsync is executed and not recorded, as by a disk that ignores flushes.
 *
 * A record: kind, 7 bytes of zeros, inode, offset, length, length of what follows; then the previous
 * content. Kinds: 'w', a write; 'b', an fsync begins, with a number instead of the offset; 'e', the
 * fsync with this number has ended; 'u', the file is unlinked. Renames, truncations and new names
 * count as durable at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "offset.h"

struct record {
    char kind;
    char none[7];
    uint64_t inode, offset, length, follows;
};

enum { LOG_FD = 700, PIECE = 1 << 20 };

static int log_fd = -1;
static int lies;
static uint64_t count;

__attribute__((constructor)) static void open_log(void) {
    const char *path = getenv("POWER_LOG");
    lies = getenv("POWER_LIES") != NULL;
    if (!path) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) abort();
    fchmod(fd, 0666); /* a server may run as another user than the process that starts it */
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD);
    syscall(SYS_close, fd);
}

static void append(char kind, uint64_t inode, uint64_t offset, uint64_t length, void *old, uint64_t follows) {
    struct record record = {.kind = kind, .inode = inode, .offset = offset, .length = length, .follows = follows};
    struct iovec parts[2] = {{&record, sizeof record}, {old, follows}};
    if (syscall(SYS_writev, log_fd, parts, 2) < 0) abort();
}

/* The inode of a plain file; 0 of anything else. */
static uint64_t plain(int fd) {
    struct stat stat;
    if (log_fd < 0 || fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) return 0;
    return stat.st_ino;
}

static void before_write(int fd, uint64_t offset, uint64_t length) {
    uint64_t inode = plain(fd);
    if (!inode) return;
    char *old = malloc(length < PIECE ? length + 1 : PIECE);
    if (!old) abort();
    while (length > 0) {
        uint64_t piece = length < PIECE ? length : PIECE;
        ssize_t got = syscall(SYS_pread64, fd, old, piece, offset);
        append('w', inode, offset, piece, old, got < 0 ? 0 : (uint64_t)got);
        offset += piece;
        length -= piece;
    }
    free(old);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (plain(fd)) before_write(fd, offset_of(fd), length);
    return syscall(SYS_write, fd, bytes, length);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (plain(fd)) before_write(fd, offset_of(fd), sum(parts, number));
    return syscall(SYS_writev, fd, parts, number);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    before_write(fd, (uint64_t)offset, length);
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int number, off64_t offset) {
    before_write(fd, (uint64_t)offset, sum(parts, number));
    return syscall(SYS_pwritev, fd, parts, number, (unsigned long)offset, 0UL);
}

ssize_t pwritev(int fd, const struct iovec *parts, int number, off_t offset) {
    return pwritev64(fd, parts, number, offset);
}

static int synced(int fd, long call) {
    uint64_t inode = plain(fd);
    uint64_t name = (uint64_t)getpid() << 32 | __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (inode && !lies) append('b', inode, name, 0, NULL, 0);
    int ended = (int)syscall(call, fd);
    if (inode && !lies && ended == 0) append('e', inode, name, 0, NULL, 0);
    return ended;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }

int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* The writes of a deleted file do not count for the next file with its inode. */
static void unlinked(const char *path) {
    struct stat stat;
    if (log_fd >= 0 && lstat(path, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_nlink == 1)
        append('u', stat.st_ino, 0, 0, NULL, 0);
}

int unlink(const char *path) {
    unlinked(path);
    return (int)syscall(SYS_unlink, path);
}

int rename(const char *from, const char *to) {
    unlinked(to);
    return (int)syscall(SYS_rename, from, to);
}
