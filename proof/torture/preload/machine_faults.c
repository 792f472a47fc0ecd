/* Machine faults: a full disk, or a wrong clock.
 *
 * Preloaded before the C library (LD_PRELOAD). The file that MACHINE_FAULTS names contains the faults
 * and is read before each call: 8 bytes that are not zero while the disk is full, 8 bytes with the
 * nanoseconds by which the clock is ahead, and 8 bytes that count the refused writes. On a full disk a
 * plain file cannot grow, and its existing bytes can be overwritten, as on a real one. The first three
 * descriptors are those of the log and are not affected. Monotonic clocks (CLOCK_MONOTONIC) are right. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "offset.h"

struct faults {
    uint64_t is_full;
    int64_t ahead;
    uint64_t refused;
};

enum { SECOND = 1000000000 };

static struct faults *faults;

__attribute__((constructor)) static void map_faults(void) {
    const char *path = getenv("MACHINE_FAULTS");
    if (!path) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) abort();
    faults = mapped;
    syscall(SYS_close, fd);
}

/* Whether a plain file would have to grow for this, and cannot. */
static int is_refused(int fd, uint64_t offset, uint64_t length) {
    struct stat stat;
    if (!faults || !__atomic_load_n(&faults->is_full, __ATOMIC_RELAXED) || fd < 3) return 0;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) return 0;
    if (offset + length <= (uint64_t)stat.st_size) return 0;
    __atomic_add_fetch(&faults->refused, 1, __ATOMIC_RELAXED);
    errno = ENOSPC;
    return 1;
}

/* A pipe has no offset, so the offset is looked up only while the disk is full. */
static int is_refused_here(int fd, uint64_t length) {
    return faults && faults->is_full && is_refused(fd, offset_of(fd), length);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (is_refused_here(fd, length)) return -1;
    return syscall(SYS_write, fd, bytes, length);
}

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (is_refused_here(fd, sum(parts, number))) return -1;
    return syscall(SYS_writev, fd, parts, number);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    if (is_refused(fd, (uint64_t)offset, length)) return -1;
    return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int number, off64_t offset) {
    if (is_refused(fd, (uint64_t)offset, sum(parts, number))) return -1;
    return syscall(SYS_pwritev, fd, parts, number, (unsigned long)offset, 0UL);
}

ssize_t pwritev(int fd, const struct iovec *parts, int number, off_t offset) {
    return pwritev64(fd, parts, number, offset);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    if (is_refused(fd, (uint64_t)offset, (uint64_t)length)) return -1;
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

/* This function returns the error instead of setting errno. */
int posix_fallocate64(int fd, off64_t offset, off64_t length) {
    return fallocate64(fd, 0, offset, length) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (syscall(SYS_clock_gettime, clock, time) != 0) return -1;
    if (faults && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ahead = __atomic_load_n(&faults->ahead, __ATOMIC_RELAXED);
        int64_t nanos = (int64_t)time->tv_nsec + ahead % SECOND;
        time->tv_sec += ahead / SECOND + (nanos >= SECOND) - (nanos < 0);
        time->tv_nsec = (nanos + SECOND) % SECOND;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict value, void *restrict zone) {
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
    value->tv_sec = time.tv_sec;
    value->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *value) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (value) *value = now.tv_sec;
    return now.tv_sec;
}
