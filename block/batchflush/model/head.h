/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk's head: seek, turn, transfer
 *
 * Data lies in tracks of one length, several to a cylinder, cylinder
 * after cylinder.  Serving a request takes a seek to its cylinder (or a
 * switch to its track), the rest of the turn until its first byte comes
 * by, and its transfer at the rate at which tracks pass.  Which byte is
 * under the head follows from the time alone.  Tracks are skewed, so
 * that whoever goes on with the next one has lost the switch and not a
 * turn as well.
 *
 * After a read the head reads on into a buffer that holds one track.
 * A read that continues the one before is served from there, or as soon
 * as the head comes to it: a stream is read at the rate of the medium,
 * whatever the reader's pace.  Writes have no such help.
 *
 * After C. Ruemmler and J. Wilkes, "An introduction to disk drive
 * modeling", IEEE Computer 27(3), 1994.
 */

#ifndef BF_HEAD_H
#define BF_HEAD_H

#include "params.h"

typedef struct BfHead {
    /* What does not change: geometry and seek curve. */
    int64_t turn_ns;            /* 0: there is no head */
    int64_t track_size;
    int64_t tracks_per_cylinder;
    int64_t last_cylinder;
    double ns_per_byte;
    int64_t settle_ns;
    int64_t average_ns;
    int64_t full_ns;
    int64_t switch_ns;

    /* Where it is. */
    int64_t free_at;            /* when it has served what it was given */
    int64_t track;
    int64_t cylinder;
    uint64_t end;               /* behind the last byte that it served */
    int64_t end_at;             /* when that byte had passed */
    bool reads_on;              /* that was a read's */

    /*
     * The stream: reads each of which continued the one before, whatever
     * came in between.  One that begins takes the place of the last.
     */
    uint64_t stream_end;
    uint64_t last_read_end;
    bool in_stream;             /* the last request was the stream's */
} BfHead;

/*
 * Take the geometry from @params, and be at rest.  @length is the
 * node's, in bytes: what the stroke spans unless they say otherwise.
 */
void bf_head_setup(BfHead *head, const BfParams *params, uint64_t length);

/* At rest at the beginning, and free. */
void bf_head_reset(BfHead *head);

/* The cylinder that a byte lies on. */
int64_t bf_head_cylinder(const BfHead *head, uint64_t offset);

/* Its first byte. */
uint64_t bf_head_cylinder_start(const BfHead *head, int64_t cylinder);

/* The time of a seek over so many cylinders. */
int64_t bf_head_seek_ns(const BfHead *head, int64_t cylinders);

/* Whether a read at @offset would go on where the head reads on. */
bool bf_head_continues(const BfHead *head, uint64_t offset);

/*
 * Serve a request that may begin at @ready, after all that was served
 * before.  Returns the instant at which it is done.
 */
int64_t bf_head_serve(BfHead *head, int64_t ready, bool is_read,
                      uint64_t offset, uint64_t bytes);

#endif
