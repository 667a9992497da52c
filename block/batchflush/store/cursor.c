/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A place in an I/O vector, from where data is copied in sequence */

#include <assert.h>
#include <string.h>
#include <glib.h>

#include "cursor.h"

/* At most @bytes that are in one piece at *@data; moves behind them. */
static size_t next_piece(BfCursor *cursor, size_t bytes, char **data)
{
    size_t length;

    while (cursor->left && cursor->done == cursor->iov->iov_len) {
        cursor->iov++;
        cursor->left--;
        cursor->done = 0;
    }
    assert(cursor->left);
    length = MIN(bytes, cursor->iov->iov_len - cursor->done);
    *data = (char *)cursor->iov->iov_base + cursor->done;
    cursor->done += length;
    return length;
}

BfCursor bf_cursor(const struct iovec *iov, unsigned niov, size_t skip)
{
    BfCursor cursor = { .iov = iov, .left = niov };
    char *data;

    while (skip) {
        skip -= next_piece(&cursor, skip, &data);
    }
    return cursor;
}

void bf_cursor_get(BfCursor *cursor, void *data, size_t bytes)
{
    char *to = data;
    char *from;

    while (bytes) {
        size_t length = next_piece(cursor, bytes, &from);

        memcpy(to, from, length);
        to += length;
        bytes -= length;
    }
}

void bf_cursor_put(BfCursor *cursor, const void *data, size_t bytes)
{
    const char *from = data;
    char *to;

    while (bytes) {
        size_t length = next_piece(cursor, bytes, &to);

        memcpy(to, from, length);
        from += length;
        bytes -= length;
    }
}
