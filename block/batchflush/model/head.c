/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A disk's head: see head.h */

#include <glib.h>
#include <math.h>

#include "head.h"

#define MINUTE_NS (60 * INT64_C(1000000000))

/* Where a byte lies, and what is under the head when it passes. */
typedef struct Place {
    int64_t track;
    int64_t cylinder;
    int64_t along;              /* ns since the beginning of its track */
} Place;

void bf_head_reset(BfHead *head)
{
    head->free_at = 0;
    head->track = 0;
    head->cylinder = 0;
    head->end = 0;
    head->end_at = 0;
    head->reads_on = false;
    head->stream_end = UINT64_MAX;
    head->last_read_end = UINT64_MAX;
    head->in_stream = false;
}

void bf_head_setup(BfHead *head, const BfParams *params, uint64_t length)
{
    uint64_t stroke = params->stroke_size ? (uint64_t)params->stroke_size
                                          : length;
    uint64_t cylinder;

    *head = (BfHead) { .turn_ns = 0 };
    bf_head_reset(head);
    if (!params->rpm) {
        return;
    }
    head->turn_ns = MINUTE_NS / params->rpm;
    head->track_size = bf_params_track_size(params);
    head->tracks_per_cylinder = params->tracks_per_cylinder;
    head->ns_per_byte = (double)head->turn_ns / head->track_size;
    head->settle_ns = params->seek_settle_ns;
    head->average_ns = params->seek_average_ns;
    head->full_ns = params->seek_full_ns;
    head->switch_ns = params->track_switch_ns;
    cylinder = (uint64_t)head->track_size * head->tracks_per_cylinder;
    head->last_cylinder = stroke ? (stroke - 1) / cylinder : 0;
}

static Place place_of(const BfHead *head, uint64_t offset)
{
    Place place = { .track = offset / head->track_size };

    place.cylinder = place.track / head->tracks_per_cylinder;
    place.along = (offset - place.track * head->track_size) *
                  head->ns_per_byte;
    return place;
}

int64_t bf_head_cylinder(const BfHead *head, uint64_t offset)
{
    return offset / head->track_size / head->tracks_per_cylinder;
}

uint64_t bf_head_cylinder_start(const BfHead *head, int64_t cylinder)
{
    return cylinder * head->tracks_per_cylinder * head->track_size;
}

/*
 * Short seeks accelerate and brake: the square root of the distance.
 * Long ones coast: linear.  Both meet at a third of the stroke, which is
 * the mean distance of random seeks.
 */
int64_t bf_head_seek_ns(const BfHead *head, int64_t cylinders)
{
    double x;

    if (cylinders == 0) {
        return 0;
    }
    if (cylinders == 1 || head->last_cylinder < 2) {
        return head->settle_ns;
    }
    x = MIN(1, (double)(cylinders - 1) / (head->last_cylinder - 1));
    return x < 1.0 / 3
        ? head->settle_ns + (head->average_ns - head->settle_ns) *
                            sqrt(3 * x)
        : head->average_ns + (head->full_ns - head->average_ns) *
                             (x - 1.0 / 3) * 1.5;
}

bool bf_head_continues(const BfHead *head, uint64_t offset)
{
    return head->reads_on && offset == head->end;
}

/* Dividing takes time, and most numbers are small. */
static int64_t modulo(int64_t number, int64_t turn)
{
    return number < turn ? number : number % turn;
}

/* How far tracks are turned against the first one, in ns of a turn. */
static int64_t skew(const BfHead *head, const Place *place)
{
    int64_t turn = head->turn_ns;
    int64_t switches = modulo(place->track - place->cylinder, turn);
    int64_t cylinders = modulo(place->cylinder, turn);

    /* A turn is at most 1 s: no overflow. */
    return modulo(switches * modulo(head->switch_ns, turn) +
                  cylinders * modulo(head->settle_ns, turn), turn);
}

/* From @instant until @place comes by. */
static int64_t turn_until(const BfHead *head, int64_t instant,
                          const Place *place)
{
    int64_t turn = head->turn_ns;
    int64_t there = modulo(skew(head, place) + place->along, turn);
    int64_t here = instant % turn;

    return there >= here ? there - here : there - here + turn;
}

static int64_t move_to(const BfHead *head, const Place *place)
{
    if (place->track == head->track) {
        return 0;
    }
    return place->cylinder == head->cylinder
        ? head->switch_ns
        : bf_head_seek_ns(head, ABS(place->cylinder - head->cylinder));
}

/* Reading or writing from one place to another, without a pause. */
static int64_t pass(const BfHead *head, const Place *from, const Place *to)
{
    int64_t tracks = to->track - from->track;
    int64_t cylinders = to->cylinder - from->cylinder;

    return tracks * head->turn_ns + to->along - from->along +
           cylinders * head->settle_ns +
           (tracks - cylinders) * head->switch_ns;
}

/*
 * Behind the last byte before @offset, which is not yet the next track
 * where that begins.  @from is a place before, most likely on the track.
 */
static Place place_behind(const BfHead *head, const Place *from,
                          uint64_t offset)
{
    uint64_t along = offset - from->track * head->track_size;
    Place place = *from;

    if (along > (uint64_t)head->track_size) {
        place = place_of(head, offset - 1);
        along = offset - place.track * head->track_size;
    }
    place.along = along * head->ns_per_byte;
    return place;
}

static void rest_at(BfHead *head, const Place *place)
{
    head->track = place->track;
    head->cylinder = place->cylinder;
}

static int64_t go_and_pass(BfHead *head, int64_t ready, uint64_t offset,
                           uint64_t end)
{
    Place from = place_of(head, offset);
    Place to = place_behind(head, &from, end);
    int64_t there = MAX(ready, head->free_at) + move_to(head, &from);

    rest_at(head, &to);
    return there + turn_until(head, there, &from) + pass(head, &from, &to);
}

/*
 * The head has read on.  If the reader came so late that the buffer was
 * full, the head had to stop, and what lies beyond the buffer takes the
 * rest of a turn.
 */
static int64_t read_on(BfHead *head, int64_t ready, uint64_t end)
{
    Place here = { .track = head->track, .cylinder = head->cylinder };
    Place from = place_behind(head, &here, head->end);
    Place to = place_behind(head, &here, end);

    if (end > head->end + head->track_size) {
        uint64_t buffered = head->end + head->track_size;
        Place full = place_behind(head, &here, buffered);

        if (ready > head->end_at + pass(head, &from, &full)) {
            rest_at(head, &full);
            return go_and_pass(head, ready, buffered, end);
        }
    }
    rest_at(head, &to);
    return head->end_at + pass(head, &from, &to);
}

static void note_stream(BfHead *head, uint64_t offset, uint64_t end)
{
    head->in_stream = offset == head->stream_end ||
                      offset == head->last_read_end;
    if (head->in_stream) {
        head->stream_end = end;
    }
    head->last_read_end = end;
}

int64_t bf_head_serve(BfHead *head, int64_t ready, bool is_read,
                      uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + MAX(bytes, 1);

    head->end_at = is_read && bf_head_continues(head, offset)
        ? read_on(head, ready, end) : go_and_pass(head, ready, offset, end);
    head->in_stream = false;
    if (is_read) {
        note_stream(head, offset, end);
    }
    head->reads_on = is_read;
    head->end = end;
    head->free_at = MAX(MAX(ready, head->free_at), head->end_at);
    return head->free_at;
}
