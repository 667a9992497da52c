/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A place in an I/O vector, from where data is copied in sequence */

#ifndef BF_CURSOR_H
#define BF_CURSOR_H

#include <stddef.h>
#include <sys/uio.h>

typedef struct BfCursor {
    const struct iovec *iov;
    unsigned left;  /* elements from @iov on */
    size_t done;    /* bytes of the first of them */
} BfCursor;

/* The place @skip bytes into the vector. */
BfCursor bf_cursor(const struct iovec *iov, unsigned niov, size_t skip);

void bf_cursor_get(BfCursor *cursor, void *data, size_t bytes);
void bf_cursor_put(BfCursor *cursor, const void *data, size_t bytes);

#endif
