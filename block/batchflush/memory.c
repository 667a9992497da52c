/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * batchflush-memory: a medium in memory
 *
 * Every request completes at once, without a thread or an event of the
 * host in between.  Under a batchflush node with icount this makes runs
 * repeat: all that is left of time is the model's.
 *
 * With an image it starts as a private, copy-on-write mapping of that
 * file: any number of nodes can start from one image at no cost, and
 * none ever changes it.  The file has to keep its length meanwhile:
 * the host ends a process that touches a mapping beyond it.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "block/block_int.h"
#include "qapi/error.h"
#include "qemu/module.h"
#include "qemu/option.h"
#include "qobject/qdict.h"
#include <sys/mman.h>

#include "compat.h"
#include "store/store.h"

#define OPTION_IMAGE "image"

typedef struct BDRVBatchflushMemoryState {
    uint8_t *data;
    int64_t length;
    int64_t image_length;       /* the part that an image lies under */
} BDRVBatchflushMemoryState;

static QemuOptsList memory_options = {
    .name = "batchflush-memory",
    .head = QTAILQ_HEAD_INITIALIZER(memory_options.head),
    .desc = {
        {
            .name = BLOCK_OPT_SIZE,
            .type = QEMU_OPT_SIZE,
            .help = "size in bytes (default: that of the image)",
        }, {
            .name = OPTION_IMAGE,
            .type = QEMU_OPT_STRING,
            .help = "file whose contents the medium starts with",
        },
        { /* end of list */ }
    },
};

/* Returns the file's length, or -1. */
static int64_t open_image(const char *path, int *fd, Error **errp)
{
    struct stat st;

    *fd = qemu_open(path, O_RDONLY, NULL);
    if (*fd < 0) {
        error_setg_errno(errp, errno, "image=%s cannot be opened", path);
        return -1;
    }
    if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        error_setg(errp, "image=%s is not a regular file", path);
        qemu_close(*fd);
        return -1;
    }
    return st.st_size;
}

static bool map(BDRVBatchflushMemoryState *s, int fd, Error **errp)
{
    int prot = PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE | MAP_NORESERVE;

    s->data = mmap(NULL, s->length, prot, flags | MAP_ANONYMOUS, -1, 0);
    if (s->data != MAP_FAILED && s->image_length &&
        mmap(s->data, s->image_length, prot, flags | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        munmap(s->data, s->length);
        s->data = MAP_FAILED;
    }
    if (s->data == MAP_FAILED) {
        error_setg_errno(errp, errno, "size=%" PRId64 " cannot be mapped",
                         s->length);
        return false;
    }
    return true;
}

static bool open_medium(BDRVBatchflushMemoryState *s, uint64_t size,
                        const char *image, Error **errp)
{
    int fd = -1;
    bool ok;

    if (image) {
        s->image_length = open_image(image, &fd, errp);
        if (s->image_length < 0) {
            return false;
        }
        size = size ?: ROUND_UP(s->image_length, BF_SECTOR_SIZE);
        s->image_length = MIN(s->image_length, size);
    }
    s->length = size;
    if (size == 0 || size > BDRV_MAX_LENGTH || size % BF_SECTOR_SIZE) {
        error_setg(errp, "size=%" PRIu64 " is not allowed; allowed is a "
                   "multiple of 512 bytes, or an image to take it from",
                   size);
        ok = false;
    } else {
        ok = map(s, fd, errp);
    }
    if (fd >= 0) {
        qemu_close(fd);
    }
    return ok;
}

static int memory_open(BlockDriverState *bs, QDict *options, int flags,
                       Error **errp)
{
    QemuOpts *opts = qemu_opts_create(&memory_options, NULL, 0, &error_abort);
    bool ok = qemu_opts_absorb_qdict(opts, options, errp) &&
              open_medium(bs->opaque, qemu_opt_get_size(opts, BLOCK_OPT_SIZE,
                                                        0),
                          qemu_opt_get(opts, OPTION_IMAGE), errp);

    qemu_opts_del(opts);
    bs->supported_write_flags = BDRV_REQ_FUA;
    bs->supported_zero_flags = BDRV_REQ_FUA | BDRV_REQ_MAY_UNMAP |
                               BDRV_REQ_NO_FALLBACK;
    return ok ? 0 : -EINVAL;
}

static void memory_close(BlockDriverState *bs)
{
    BDRVBatchflushMemoryState *s = bs->opaque;

    munmap(s->data, s->length);
}

static int memory_reopen_prepare(BDRVReopenState *state,
                                 BlockReopenQueue *queue, Error **errp)
{
    return 0;
}

static void memory_refresh_limits(BlockDriverState *bs, Error **errp)
{
    bs->bl.request_alignment = BF_SECTOR_SIZE;
}

static int64_t coroutine_fn memory_co_getlength(BlockDriverState *bs)
{
    BDRVBatchflushMemoryState *s = bs->opaque;

    return s->length;
}

static int coroutine_fn
memory_co_preadv(BlockDriverState *bs, int64_t offset, int64_t bytes,
                 QEMUIOVector *qiov, BdrvRequestFlags flags)
{
    BDRVBatchflushMemoryState *s = bs->opaque;

    qemu_iovec_from_buf(qiov, 0, s->data + offset, bytes);
    return 0;
}

static int coroutine_fn
memory_co_pwritev(BlockDriverState *bs, int64_t offset, int64_t bytes,
                  QEMUIOVector *qiov, BdrvRequestFlags flags)
{
    BDRVBatchflushMemoryState *s = bs->opaque;

    qemu_iovec_to_buf(qiov, 0, s->data + offset, bytes);
    return 0;
}

/*
 * Whole pages beyond the image go back to the host.  Below it that
 * would bring the image's contents back.
 */
static void zero(BDRVBatchflushMemoryState *s, int64_t offset, int64_t bytes)
{
    size_t page = qemu_real_host_page_size();
    int64_t end = offset + bytes;
    int64_t from = ROUND_UP(MAX(offset, s->image_length), page);
    int64_t to = QEMU_ALIGN_DOWN(end, page);

    if (from < to && madvise(s->data + from, to - from, MADV_DONTNEED) == 0) {
        memset(s->data + offset, 0, from - offset);
        memset(s->data + to, 0, end - to);
    } else {
        memset(s->data + offset, 0, bytes);
    }
}

static int coroutine_fn
memory_co_pwrite_zeroes(BlockDriverState *bs, int64_t offset, int64_t bytes,
                        BdrvRequestFlags flags)
{
    zero(bs->opaque, offset, bytes);
    return 0;
}

static int coroutine_fn
memory_co_pdiscard(BlockDriverState *bs, int64_t offset, int64_t bytes)
{
    zero(bs->opaque, offset, bytes);
    return 0;
}

static int coroutine_fn memory_co_flush(BlockDriverState *bs)
{
    return 0;
}

static int coroutine_fn
memory_co_block_status(BlockDriverState *bs, BATCHFLUSH_STATUS_WANT want,
                       int64_t offset, int64_t bytes, int64_t *pnum,
                       int64_t *map_offset, BlockDriverState **file)
{
    *pnum = bytes;
    *map_offset = offset;
    *file = bs;
    return BDRV_BLOCK_DATA | BDRV_BLOCK_OFFSET_VALID;
}

static const char *const memory_strong_options[] = {
    BLOCK_OPT_SIZE, OPTION_IMAGE, NULL
};

static BlockDriver bdrv_batchflush_memory = {
    .format_name            = "batchflush-memory",
    .protocol_name          = "batchflush-memory",
    .instance_size          = sizeof(BDRVBatchflushMemoryState),
    .strong_runtime_opts    = memory_strong_options,

    .bdrv_open              = memory_open,
    .bdrv_close             = memory_close,
    .bdrv_reopen_prepare    = memory_reopen_prepare,
    .bdrv_refresh_limits    = memory_refresh_limits,

    .bdrv_co_getlength      = memory_co_getlength,
    .bdrv_co_preadv         = memory_co_preadv,
    .bdrv_co_pwritev        = memory_co_pwritev,
    .bdrv_co_pwrite_zeroes  = memory_co_pwrite_zeroes,
    .bdrv_co_pdiscard       = memory_co_pdiscard,
    .bdrv_co_flush_to_disk  = memory_co_flush,
    .bdrv_co_block_status   = memory_co_block_status,
};

static void bdrv_batchflush_memory_init(void)
{
    bdrv_register(&bdrv_batchflush_memory);
}

block_init(bdrv_batchflush_memory_init);
