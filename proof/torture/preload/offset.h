/* Offset and length of a write. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t offset_of(int fd) {
    off_t at = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

static uint64_t sum(const struct iovec *parts, int number) {
    uint64_t length = 0;
    for (int at = 0; at < number; at++) length += parts[at].iov_len;
    return length;
}
