/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What survives a power cut, against the contract written down again
 *
 * A small device is put together from store, history, cut and choice, in
 * the way of the driver: data reaches the medium at a moment that
 * depends on the "host", some time before the instant at which the guest
 * is told.  The oracle knows only what the guest does, and for a
 * battery what was destaged: for each sector the values that it may
 * have.  After each cut the survivors have to be among them.
 *
 * The guest's doings and the host's speed come from two generators, so
 * that a run can be repeated on a faster or slower host: all survivors
 * have to be the same.
 *
 * Mutants are devices with a mistake.  The oracle has to notice them.
 *
 * BF_SEED repeats a run, BF_STEPS makes it longer.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <glib.h>

#include "choice.h"
#include "cut.h"

#define SECTOR BF_SECTOR_SIZE
#define PER_BLOCK (BF_BLOCK_SIZE / SECTOR)
#define BLOCKS 48
#define SECTORS (BLOCKS * PER_BLOCK)
#define OPS 12
#define STEPS 1000000

typedef enum Mutant {
    MUTANT_NONE,
    MUTANT_FLUSH_FORGETS,       /* a flush leaves out one run */
    MUTANT_FUA_IS_NOT,          /* a FUA write stays in the cache */
    MUTANT_NO_UNDO,             /* what was put over is not kept */
    MUTANT_TOO_KIND,            /* nothing is ever lost */
} Mutant;

typedef struct Setup {
    BfWriteCache write_cache;   /* volatile or battery */
    unsigned unit;
    bool whole_units;           /* the guest writes nothing less */
    unsigned capacity;          /* blocks */
    uint64_t history;
    bool errors;                /* of the medium */
    Mutant mutant;
} Setup;

typedef enum Kind { WRITE, FUA, ZERO, FLUSH, DESTAGE } Kind;

typedef struct Op {
    bool used;
    Kind kind;
    uint64_t arrived;           /* its place in the order */
    int64_t done_at;
    unsigned first, count;      /* sectors */
    uint64_t version;
    uint64_t number;
    BfChange change;
    bool has_change;
    BfSweep *sweep;
    uint64_t turn;              /* 0: none */
    bool moved;                 /* its turn is over */
    bool forgot;                /* mutant: left out its run */
    int ret;
    uint64_t failures;          /* of sweeps, when it was issued */
    /* The host has copied this and is about to write it. */
    uint64_t *run;
    uint64_t run_offset;
    size_t run_bytes;
    unsigned covers[SECTORS];   /* flush: values complete at its issue */
    bool claimed[SECTORS];      /* by its sweep */
} Op;

/* The values a sector may have, oldest first, numbered from @base on. */
typedef struct Sector {
    uint64_t *values;
    unsigned count, room;
    unsigned base;
    unsigned complete;          /* number of the last complete one */
} Sector;

typedef struct World {
    Setup setup;
    uint64_t guest, host;       /* generators */
    int64_t now;
    uint64_t arrivals;
    uint64_t version;
    BfStore *store;
    BfHistory *history;
    BfCompletions *completions;
    uint64_t medium[SECTORS];   /* a sector is one number */
    Sector sectors[SECTORS];
    Op ops[OPS];
    uint64_t turn_next, turn_now;
    uint64_t failures;          /* of sweeps */
    bool broken;                /* the oracle has found something */
    uint64_t cuts, operations, lost, kept;
    uint64_t trail;             /* hash of all survivors so far */
    char *why;
} World;

static uint64_t seed;
static uint64_t steps = STEPS;

#ifndef BF_FUZZ     /* tests/fuzz draws from its input instead */
static uint64_t draw(uint64_t *random, uint64_t below)
{
    uint64_t x = *random += 0x9e3779b97f4a7c15;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % below;
}
#endif

/* The oracle */

static void issue(World *w, unsigned i, uint64_t value)
{
    Sector *s = &w->sectors[i];

    if (s->count == s->room) {
        s->room = MAX(2 * s->room, 4);
        s->values = g_renew(uint64_t, s->values, s->room);
    }
    s->values[s->count++] = value;
}

static unsigned newest(const Sector *s)
{
    return s->base + s->count - 1;
}

/* The value of this number is complete. */
static unsigned number_of(const Sector *s, uint64_t value)
{
    for (unsigned i = s->count; i-- > 0;) {
        if (s->values[i] == value) {
            return s->base + i;
        }
    }
    g_assert_not_reached();
}

static void durable(Sector *s, unsigned number)
{
    unsigned gone = number > s->base ? number - s->base : 0;

    g_assert_cmpuint(gone, <, s->count);
    memmove(s->values, s->values + gone, (s->count - gone) * sizeof(uint64_t));
    s->count -= gone;
    s->base += gone;
}

/* Only this value is left, and it is durable. */
static void settle(Sector *s, uint64_t value)
{
    s->base = newest(s) + 1;
    s->complete = s->base;
    s->values[0] = value;
    s->count = 1;
}

static bool permitted(const Sector *s, uint64_t value, unsigned from)
{
    for (unsigned i = MAX(from, s->base) - s->base; i < s->count; i++) {
        if (s->values[i] == value) {
            return true;
        }
    }
    return false;
}

/* The device */

static void fill(uint64_t *to, uint64_t value)
{
    for (unsigned i = 0; i < SECTOR / sizeof(*to); i++) {
        to[i] = value;
    }
}

static uint64_t value_of(uint64_t version, unsigned sector)
{
    return version << 16 | sector;
}

static void write_medium(World *w, uint64_t offset, size_t bytes,
                         const uint64_t *data)
{
    for (size_t i = 0; i < bytes / SECTOR; i++) {
        w->medium[offset / SECTOR + i] =
            data ? data[i * SECTOR / sizeof(*data)] : 0;
    }
}

static void keep_before(World *w, uint64_t order, uint64_t offset,
                        size_t bytes)
{
    g_autofree uint64_t *data = g_malloc(bytes);

    if (w->setup.mutant == MUTANT_NO_UNDO) {
        return;
    }
    for (size_t i = 0; i < bytes / SECTOR; i++) {
        fill(data + i * SECTOR / sizeof(*data),
             w->medium[offset / SECTOR + i]);
    }
    bf_history_before(w->history, order, offset, bytes, (uint8_t *)data);
}

static Op *op_free_one(World *w)
{
    for (unsigned i = 0; i < OPS; i++) {
        if (!w->ops[i].used) {
            return &w->ops[i];
        }
    }
    return NULL;
}

static Op *op_new(World *w, Kind kind)
{
    Op *op = op_free_one(w);

    if (op) {
        memset(op, 0, sizeof(*op));
        op->used = true;
        op->kind = kind;
        op->arrived = ++w->arrivals;
        op->done_at = w->now + 1 + draw(&w->guest, 25);
        w->operations++;
    }
    return op;
}

static void op_end(World *w, Op *op)
{
    if (op->has_change) {
        bf_history_end(w->history, &op->change);
    }
    g_free(op->run);
    op->used = false;
}

/* The op whose turn it is, or NULL. */
static Op *in_turn(World *w)
{
    for (unsigned i = 0; i < OPS; i++) {
        Op *op = &w->ops[i];

        if (op->used && op->turn && !op->moved && op->turn == w->turn_now) {
            return op;
        }
    }
    return NULL;
}

static void end_turn(World *w, Op *op)
{
    op->moved = true;
    w->turn_now++;
}

static void copy_fua(World *w, Op *op)
{
    op->run_offset = (uint64_t)op->first * SECTOR;
    op->run_bytes = op->count * SECTOR;
    op->run = g_malloc(op->run_bytes);
    for (unsigned i = 0; i < op->count; i++) {
        fill(op->run + i * SECTOR / sizeof(*op->run),
             value_of(op->version, op->first + i));
    }
    keep_before(w, bf_order_of_write(op->number), op->run_offset,
                op->run_bytes);
}

static void copy_run(World *w, Op *op)
{
    op->run = g_malloc(BF_BLOCK_SIZE);
    op->run_bytes = bf_sweep_next(w->store, op->sweep, op->run,
                                  BF_BLOCK_SIZE, &op->run_offset);
    if (w->setup.mutant == MUTANT_FLUSH_FORGETS && op->kind == FLUSH &&
        !op->forgot && op->run_bytes) {
        op->forgot = true;
        op->run_bytes = bf_sweep_next(w->store, op->sweep, op->run,
                                      BF_BLOCK_SIZE, &op->run_offset);
    }
    if (op->run_bytes) {
        keep_before(w, bf_sweep_order(op->sweep), op->run_offset,
                    op->run_bytes);
    } else {
        g_clear_pointer(&op->run, g_free);
        end_turn(w, op);
    }
}

static void write_run(World *w, Op *op)
{
    if (w->setup.errors && draw(&w->host, 60) == 0) {
        op->ret = -1;
        if (op->sweep) {
            bf_store_sweep_abort(w->store, op->sweep);
            w->failures++;
        }
    } else {
        write_medium(w, op->run_offset, op->run_bytes, op->run);
    }
    g_clear_pointer(&op->run, g_free);
    if (op->kind == FUA) {
        op->change.failed = op->ret;
        end_turn(w, op);
    } else if (op->ret) {
        end_turn(w, op);
    }
}

/* The host gets one thing done.  Returns false if there is nothing. */
static bool host_step(World *w)
{
    Op *op = in_turn(w);

    if (!op) {
        return false;
    }
    if (op->run) {
        write_run(w, op);
    } else if (op->kind == FUA) {
        copy_fua(w, op);
    } else if (op->sweep) {
        copy_run(w, op);
    } else {
        end_turn(w, op);
    }
    return true;
}

static void move_before(World *w, const Op *op)
{
    while (op->turn && !op->moved) {
        g_assert_true(host_step(w));
    }
}

static bool is_backed(const World *w)
{
    return w->setup.write_cache == BF_CACHE_BATTERY;
}

static void complete_sectors(World *w, const Op *op, bool is_durable)
{
    for (unsigned i = op->first; i < op->first + op->count; i++) {
        Sector *s = &w->sectors[i];
        uint64_t value = op->kind == ZERO ? 0 : value_of(op->version, i);

        s->complete = MAX(s->complete, number_of(s, value));
        if (is_durable) {
            durable(s, s->complete);
        }
    }
}

static void complete_fua(World *w, Op *op)
{
    move_before(w, op);
    if (op->ret == 0) {
        bf_store_drop(w->store, op->first * SECTOR, op->count * SECTOR,
                      op->number);
        bf_history_durable(w->history, bf_order_of_write(op->number),
                           op->first * SECTOR, op->count * SECTOR);
        complete_sectors(w, op, true);
    } else {
        bf_history_failed(w->history, bf_order_of_write(op->number),
                          op->first * SECTOR, op->count * SECTOR);
    }
    bf_completions_end(w->completions, op->number);
}

static void complete_zero(World *w, Op *op)
{
    uint64_t place;

    while (in_turn(w)) {
        host_step(w);
    }
    place = bf_store_next_write(w->store);
    write_medium(w, op->first * SECTOR, op->count * SECTOR, NULL);
    bf_store_drop(w->store, op->first * SECTOR, op->count * SECTOR, place);
    bf_history_durable(w->history, bf_order_of_write(place),
                       op->first * SECTOR, op->count * SECTOR);
    complete_sectors(w, op, true);
    bf_completions_end(w->completions, op->number);
}

static void complete_sweep(World *w, Op *op)
{
    move_before(w, op);
    if (op->sweep) {
        bf_store_sweep_done(w->store, op->sweep, op->ret == 0);
    }
    /* One that was under way when it was issued held data it covers. */
    if (op->kind == FLUSH && op->failures != w->failures) {
        op->ret = -1;
    }
    /* What a battery holds is durable only once it is destaged. */
    if (op->ret == 0 && (op->kind == FLUSH || is_backed(w))) {
        for (unsigned i = 0; i < SECTORS; i++) {
            if (!is_backed(w) || op->claimed[i]) {
                durable(&w->sectors[i], op->covers[i]);
            }
        }
    }
}

static void complete(World *w, Op *op)
{
    switch (op->kind) {
    case WRITE:
        complete_sectors(w, op, false);
        bf_completions_end(w->completions, op->number);
        break;
    case FUA:
        complete_fua(w, op);
        break;
    case ZERO:
        complete_zero(w, op);
        break;
    default:
        complete_sweep(w, op);
        break;
    }
    op_end(w, op);
}

/* What ends first, and of those what came first; NULL if none is due. */
static Op *due(World *w)
{
    Op *first = NULL;

    for (unsigned i = 0; i < OPS; i++) {
        Op *op = &w->ops[i];

        if (op->used && op->done_at <= w->now &&
            (!first || op->done_at < first->done_at ||
             (op->done_at == first->done_at &&
              op->arrived < first->arrived))) {
            first = op;
        }
    }
    return first;
}

static void tick(World *w)
{
    Op *op;

    w->now++;
    while ((op = due(w))) {
        complete(w, op);
    }
    for (unsigned n = draw(&w->host, 4); n > 0 && host_step(w); n--) {
        continue;
    }
}

/* Often whole blocks, and often the same ones. */
static bool draw_range(World *w, unsigned *first, unsigned *count)
{
    if (w->setup.whole_units || draw(&w->guest, 2)) {
        unsigned blocks = 1 + draw(&w->guest, 3);

        *first = draw(&w->guest, BLOCKS - blocks + 1) * PER_BLOCK;
        *count = blocks * PER_BLOCK;
    } else {
        *first = draw(&w->guest, SECTORS);
        *count = 1 + draw(&w->guest, MIN(SECTORS - *first, 12u));
    }
    if (draw(&w->guest, 2)) {
        *first %= 8 * PER_BLOCK;
    }
    return !bf_history_changing(w->history, *first * SECTOR,
                                *count * SECTOR);
}

/* Two writes of one sector at a time are nobody's business. */
static bool is_in_flight(World *w, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < OPS; i++) {
        const Op *op = &w->ops[i];

        if (op->used && op->kind <= ZERO &&
            first < op->first + op->count && op->first < first + count) {
            return true;
        }
    }
    return false;
}

static void issue_range(World *w, Op *op)
{
    for (unsigned i = op->first; i < op->first + op->count; i++) {
        issue(w, i, op->kind == ZERO ? 0 : value_of(op->version, i));
    }
}

static void begin_cached(World *w, Op *op)
{
    size_t bytes = op->count * SECTOR;
    g_autofree uint64_t *data = g_malloc(bytes);
    struct iovec iov = { data, bytes };

    for (unsigned i = 0; i < op->count; i++) {
        fill(data + i * SECTOR / sizeof(*data),
             value_of(op->version, op->first + i));
    }
    op->number = bf_store_write(w->store, op->first * SECTOR, bytes, &iov, 1,
                                0);
}

static void begin_change(World *w, Op *op)
{
    size_t bytes = op->count * SECTOR;
    uint64_t *data = NULL;

    op->number = bf_store_next_write(w->store);
    if (op->kind == FUA) {
        data = g_malloc(bytes);
        for (unsigned i = 0; i < op->count; i++) {
            fill(data + i * SECTOR / sizeof(*data),
                 value_of(op->version, op->first + i));
        }
        op->turn = w->turn_next++;
        bf_store_settle(w->store, op->first * SECTOR, bytes, op->number);
    }
    bf_history_begin(w->history, &op->change, op->number,
                     op->first * SECTOR, bytes, (uint8_t *)data);
    op->has_change = true;
}

static void do_write(World *w, Kind kind)
{
    bool cached = kind == WRITE || (kind == FUA && is_backed(w));
    unsigned first, count;
    Op *op;

    if (!draw_range(w, &first, &count) || is_in_flight(w, first, count) ||
        !op_free_one(w)) {
        return;
    }
    if (cached && bf_store_room_for(w->store, first * SECTOR,
                                    count * SECTOR) +
        bf_store_used(w->store) > bf_store_capacity(w->store)) {
        return;
    }
    op = op_new(w, cached ? WRITE : kind);
    op->first = first;
    op->count = count;
    op->version = ++w->version;
    issue_range(w, op);
    if (cached) {
        begin_cached(w, op);
    } else if (kind == FUA && w->setup.mutant == MUTANT_FUA_IS_NOT &&
               bf_store_used(w->store) + count * SECTOR +
               2 * BF_BLOCK_SIZE <= bf_store_capacity(w->store)) {
        begin_cached(w, op);
        op->moved = true;
    } else {
        begin_change(w, op);
    }
    bf_completions_begin(w->completions, op->number);
}

static int64_t sweeps_end(World *w)
{
    int64_t end = 0;

    for (unsigned i = 0; i < OPS; i++) {
        const Op *op = &w->ops[i];

        if (op->used && op->sweep) {
            end = MAX(end, op->done_at);
        }
    }
    return end;
}

static void note_claimed(uint64_t offset, uint64_t bytes, void *opaque)
{
    Op *op = opaque;

    for (uint64_t i = 0; i < bytes / SECTOR; i++) {
        op->claimed[offset / SECTOR + i] = true;
    }
}

/* The newest value that the cache or the medium has: no zeroes to come. */
static unsigned newest_there(World *w, unsigned i)
{
    unsigned number = newest(&w->sectors[i]);

    for (unsigned j = 0; j < OPS; j++) {
        const Op *op = &w->ops[j];

        if (op->used && op->kind == ZERO && op->first <= i &&
            i < op->first + op->count) {
            return number - 1;
        }
    }
    return number;
}

static void do_flush(World *w, Kind kind)
{
    Op *op = op_new(w, kind);

    if (!op) {
        return;
    }
    for (unsigned i = 0; i < SECTORS; i++) {
        op->covers[i] = is_backed(w) ? newest_there(w, i)
                                     : w->sectors[i].complete;
    }
    if (kind == FLUSH && is_backed(w)) {
        op->ret = 1;            /* acknowledged, and nothing moves */
        return;
    }
    op->turn = w->turn_next++;
    op->failures = w->failures;
    if (kind == FLUSH) {
        op->sweep = bf_store_sweep(w->store, 0, UINT64_MAX);
        op->done_at = MAX(op->done_at, sweeps_end(w));
    } else {
        op->sweep = bf_store_sweep_run(
            w->store, draw(&w->guest, BLOCKS) * BF_BLOCK_SIZE,
            (1 + draw(&w->guest, 4)) * BF_BLOCK_SIZE);
    }
    if (op->sweep) {
        bf_sweep_foreach(op->sweep, note_claimed, op);
    }
}

/* The cut */

typedef struct Keep {
    const World *w;
    BfChoice choice;
} Keep;

static bool keep(uint64_t number, uint64_t unit, void *opaque)
{
    const Keep *k = opaque;

    return k->w->setup.mutant == MUTANT_TOO_KIND ||
           bf_choice_keep(&k->choice, number, unit);
}

static BfSurvivors cut_once(World *w, BfCutPolicy policy, uint64_t chosen,
                            bool held)
{
    g_autoptr(GArray) numbers = bf_cut_writes(w->store, w->history);
    Keep k = { .w = w };
    BfSurvivors survivors;

    bf_choice_init(&k.choice, policy, chosen, w->completions,
                   (uint64_t *)numbers->data, numbers->len,
                   bf_history_floor(w->history));
    if (held) {
        bf_choice_hold(&k.choice);
    }
    bf_cut(w->store, w->history, w->setup.unit, keep, &k, &survivors);
    bf_completions_settle(w->completions);
    w->lost += survivors.lost_bytes;
    w->kept += survivors.kept_bytes;
    return survivors;
}

/* What was about to be written may still reach the medium. */
static void end_ops(World *w)
{
    for (unsigned i = 0; i < OPS; i++) {
        Op *op = &w->ops[i];

        if (!op->used) {
            continue;
        }
        if (op->run && draw(&w->host, 2)) {
            write_medium(w, op->run_offset, op->run_bytes, op->run);
        }
        if (op->sweep) {
            bf_store_sweep_done(w->store, op->sweep, false);
        }
        op_end(w, op);
    }
    w->turn_now = w->turn_next;
}

static void apply_patches(World *w, BfSurvivors *survivors)
{
    for (guint i = 0; i < survivors->patches->len; i++) {
        const BfPatch *patch = &g_array_index(survivors->patches, BfPatch,
                                              i);

        write_medium(w, patch->offset, patch->bytes,
                     (uint64_t *)patch->data);
    }
    bf_survivors_destroy(survivors);
}

static void empty_cache(World *w)
{
    uint64_t data[BF_BLOCK_SIZE / sizeof(uint64_t)];
    BfSweep *sweep = bf_store_sweep(w->store, 0, UINT64_MAX);
    uint64_t offset;
    size_t bytes;

    if (!sweep) {
        return;
    }
    while ((bytes = bf_sweep_next(w->store, sweep, data, BF_BLOCK_SIZE,
                                  &offset))) {
        write_medium(w, offset, bytes, data);
    }
    bf_store_sweep_done(w->store, sweep, true);
    g_assert_cmpuint(bf_store_dirty(w->store), ==, 0);
}

static uint64_t seen(const World *w, unsigned sector)
{
    uint64_t data[SECTOR / sizeof(uint64_t)];
    struct iovec iov = { data, SECTOR };
    uint64_t run;

    if (!bf_store_lookup(w->store, (uint64_t)sector * SECTOR, SECTOR,
                         &run)) {
        return w->medium[sector];
    }
    bf_store_read(w->store, (uint64_t)sector * SECTOR, SECTOR, &iov, 1, 0);
    return data[0];
}

static void check(World *w, bool held)
{
    for (unsigned i = 0; i < SECTORS && !w->broken; i++) {
        const Sector *s = &w->sectors[i];
        uint64_t value = seen(w, i);

        if (!permitted(s, value, held ? s->complete : 0)) {
            w->broken = true;
            w->why = g_strdup_printf(
                "cut %" PRIu64 ": sector %u holds version %" PRIu64
                "; durable is %" PRIu64 ", newest %" PRIu64, w->cuts, i,
                value >> 16, s->values[0] >> 16,
                s->values[s->count - 1] >> 16);
        }
    }
}

/* A unit that is always written as a whole is not torn. */
static void check_units(World *w)
{
    unsigned per_unit = w->setup.unit / SECTOR;

    for (unsigned u = 0; u < SECTORS && !w->broken; u += per_unit) {
        uint64_t newest_version = 0;

        for (unsigned i = u; i < u + per_unit; i++) {
            newest_version = MAX(newest_version, seen(w, i) >> 16);
        }
        /* Whatever came before the newest one came with it. */
        for (unsigned i = u; i < u + per_unit; i++) {
            const Sector *s = &w->sectors[i];
            uint64_t value = seen(w, i);
            unsigned number = value ? number_of(s, value) : newest(s);

            if (number < newest(s) &&
                s->values[number + 1 - s->base] >> 16 <= newest_version &&
                s->values[number + 1 - s->base]) {
                w->broken = true;
                w->why = g_strdup_printf("cut %" PRIu64 ": the unit of "
                                         "sector %u is torn", w->cuts, i);
            }
        }
    }
}

static void note_survivors(World *w)
{
    for (unsigned i = 0; i < SECTORS; i++) {
        w->trail = (w->trail ^ seen(w, i)) * 0x100000001b3;
        if (!is_backed(w)) {
            settle(&w->sectors[i], seen(w, i));
        }
    }
}

/* With a battery, what is in the cache is complete but not destaged. */
static void note_held(World *w)
{
    for (unsigned i = 0; i < SECTORS; i++) {
        Sector *s = &w->sectors[i];
        uint64_t run;
        bool cached = bf_store_lookup(w->store, (uint64_t)i * SECTOR, SECTOR,
                                      &run);
        uint64_t value = seen(w, i);

        settle(s, w->medium[i]);
        if (cached) {
            issue(w, i, value);
            s->complete = newest(s);
        }
    }
}

static void do_cut(World *w)
{
    BfCutPolicy policy = draw(&w->guest, 4);
    uint64_t chosen = draw(&w->guest, UINT64_MAX);
    bool held = is_backed(w);
    bool hold_up_ends = held && draw(&w->guest, 2);
    uint64_t hash;
    BfSurvivors survivors = cut_once(w, policy, chosen, held);

    hash = survivors.hash;
    end_ops(w);
    apply_patches(w, &survivors);
    check(w, held);
    if (w->setup.whole_units) {
        check_units(w);
    }
    if (hold_up_ends) {
        survivors = cut_once(w, policy, chosen, false);
        hash ^= survivors.hash;
        apply_patches(w, &survivors);
        check(w, false);
    }
    if (!held || hold_up_ends) {
        empty_cache(w);
    }
    note_survivors(w);
    if (held) {
        note_held(w);
    }
    w->trail ^= hash;
    w->cuts++;
}

static void world_step(World *w)
{
    switch (draw(&w->guest, 20)) {
    case 0 ... 7:
        do_write(w, WRITE);
        break;
    case 8 ... 9:
        do_write(w, FUA);
        break;
    case 10:
        do_write(w, ZERO);
        break;
    case 11:
        do_flush(w, FLUSH);
        break;
    case 12:
        do_flush(w, DESTAGE);
        break;
    case 13:
        if (draw(&w->guest, 5) == 0) {
            do_cut(w);
        }
        break;
    default:
        tick(w);
        break;
    }
}

static World *world_new(const Setup *setup, uint64_t guest, uint64_t host)
{
    World *w = g_new0(World, 1);

    w->setup = *setup;
    w->guest = guest;
    w->host = host;
    w->turn_next = w->turn_now = 1;
    w->store = bf_store_new(setup->capacity * BF_BLOCK_SIZE, false);
    w->history = bf_history_new(setup->history);
    w->completions = bf_completions_new();
    bf_store_set_history(w->store, w->history);
    for (unsigned i = 0; i < SECTORS; i++) {
        issue(w, i, 0);
    }
    return w;
}

static void world_free(World *w)
{
    end_ops(w);
    for (unsigned i = 0; i < SECTORS; i++) {
        g_free(w->sectors[i].values);
    }
    bf_store_free(w->store);
    bf_history_free(w->history);
    bf_completions_free(w->completions);
    g_free(w->why);
    g_free(w);
}

/* Runs until @operations were issued or the oracle has found something. */
static World *run(const Setup *setup, uint64_t guest, uint64_t host,
                  uint64_t operations)
{
    World *w = world_new(setup, guest, host);

    while (w->operations < operations && !w->broken) {
        world_step(w);
    }
    return w;
}

#define VOLATILE .write_cache = BF_CACHE_VOLATILE, .capacity = 24
#define BATTERY .write_cache = BF_CACHE_BATTERY, .capacity = 24

static const Setup setups[] = {
    { VOLATILE, .unit = 512, .history = 1 << 20 },
    { VOLATILE, .unit = 4096, .history = 1 << 20, .whole_units = true },
    { VOLATILE, .unit = 4096, .history = 1 << 20 },
    { VOLATILE, .unit = 512, .history = 8192, .errors = true },
    { VOLATILE, .unit = 4096, .errors = true },
    { BATTERY, .unit = 512, .history = 1 << 20 },
    { BATTERY, .unit = 4096, .history = 4096 },
};

static void test_survivors_are_permitted(void)
{
    uint64_t each = steps / G_N_ELEMENTS(setups);

    for (unsigned i = 0; i < G_N_ELEMENTS(setups); i++) {
        World *w = run(&setups[i], seed + i, seed * 31 + i, each);

        g_test_message("setup %u: %" PRIu64 " operations, %" PRIu64 " cuts, "
                       "%" PRIu64 " bytes kept, %" PRIu64 " lost", i,
                       w->operations, w->cuts, w->kept, w->lost);
        if (w->broken) {
            g_error("BF_SEED=%" PRIu64 ", setup %u: %s", seed, i, w->why);
        }
        g_assert_cmpuint(w->cuts, >, 0);
        g_assert_cmpuint(w->kept, >, 0);
        g_assert_cmpuint(w->lost, >, 0);
        world_free(w);
    }
}

/* How fast the host is changes nothing, as long as it makes no errors. */
static void test_the_host_does_not_show(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(setups); i++) {
        Setup setup = setups[i];
        uint64_t trail = 0;

        setup.errors = false;
        setup.history = 1 << 20;
        setup.capacity = BLOCKS;
        for (uint64_t host = 0; host < 3; host++) {
            World *w = run(&setup, seed + i, host, steps / 40);

            g_assert_false(w->broken);
            if (host == 0) {
                trail = w->trail;
            }
            g_assert_cmphex(w->trail, ==, trail);
            world_free(w);
        }
    }
}

static bool notices(Mutant mutant)
{
    Setup setup = setups[0];
    bool broken = false;

    setup.mutant = mutant;
    for (uint64_t i = 0; i < 20 && !broken; i++) {
        World *w = run(&setup, seed + i, i, steps / 40);

        broken = w->broken;
        if (broken) {
            g_test_message("noticed after %" PRIu64 " cuts: %s", w->cuts,
                           w->why);
        }
        world_free(w);
    }
    return broken;
}

static void test_a_flush_that_forgets_is_noticed(void)
{
    g_assert_true(notices(MUTANT_FLUSH_FORGETS));
}

static void test_fua_that_is_not_is_noticed(void)
{
    g_assert_true(notices(MUTANT_FUA_IS_NOT));
}

/* Nothing that is permitted is missing but loss itself. */
static void test_a_device_too_kind_is_noticed(void)
{
    Setup setup = setups[0];
    World *w;

    setup.mutant = MUTANT_TOO_KIND;
    w = run(&setup, seed, 1, steps / 40);
    g_assert_false(w->broken);
    g_assert_cmpuint(w->lost, ==, 0);
    world_free(w);
}

/* Without undo everything is permitted still, but the host shows. */
static void test_a_missing_undo_is_noticed(void)
{
    Setup setup = setups[0];
    World *fast, *slow;

    setup.mutant = MUTANT_NO_UNDO;
    fast = run(&setup, seed, 1, steps / 40);
    slow = run(&setup, seed, 2, steps / 40);
    g_assert_cmphex(fast->trail, !=, slow->trail);
    world_free(fast);
    world_free(slow);
}

/* Every outcome that is permitted occurs: the device is not too kind. */

#define TRIED 2000

typedef struct Single {
    BfStore *store;
    BfHistory *history;
    BfCompletions *completions;
} Single;

static Single single_new(void)
{
    Single s = {
        bf_store_new(1 << 20, false),
        bf_history_new(1 << 20),
        bf_completions_new(),
    };

    bf_store_set_history(s.store, s.history);
    return s;
}

static void single_free(Single *s)
{
    bf_store_free(s->store);
    bf_history_free(s->history);
    bf_completions_free(s->completions);
}

static void single_write(Single *s, unsigned sectors, uint8_t pattern)
{
    uint8_t data[8 * SECTOR];
    struct iovec iov = { data, sectors * SECTOR };
    uint64_t number;

    memset(data, pattern, sizeof(data));
    number = bf_store_write(s->store, 0, sectors * SECTOR, &iov, 1, 0);
    bf_completions_begin(s->completions, number);
    bf_completions_end(s->completions, number);
}

static bool single_keep(uint64_t number, uint64_t unit, void *opaque)
{
    return bf_choice_keep(opaque, number, unit);
}

/* The patterns of the first @sectors after a cut, as one number. */
static uint64_t single_cut(Single *s, BfCutPolicy policy, uint64_t chosen,
                           unsigned unit, unsigned sectors)
{
    g_autoptr(GArray) numbers = bf_cut_writes(s->store, s->history);
    BfSurvivors survivors;
    BfChoice choice;
    uint64_t outcome = 0;

    bf_choice_init(&choice, policy, chosen, s->completions,
                   (uint64_t *)numbers->data, numbers->len, 0);
    bf_cut(s->store, s->history, unit, single_keep, &choice, &survivors);
    for (unsigned i = 0; i < sectors; i++) {
        uint8_t data[SECTOR] = { 0 };
        struct iovec iov = { data, SECTOR };
        uint64_t run;

        if (bf_store_lookup(s->store, i * SECTOR, SECTOR, &run)) {
            bf_store_read(s->store, i * SECTOR, SECTOR, &iov, 1, 0);
        }
        for (guint j = 0; j < survivors.patches->len; j++) {
            const BfPatch *it = &g_array_index(survivors.patches, BfPatch,
                                               j);

            if (it->offset <= i * SECTOR &&
                i * SECTOR < it->offset + it->bytes) {
                data[0] = it->data[i * SECTOR - it->offset];
            }
        }
        outcome = outcome << 8 | data[0];
    }
    bf_survivors_destroy(&survivors);
    return outcome;
}

/* Which outcomes there are, over many seeds. */
static GHashTable *outcomes(BfCutPolicy policy, unsigned unit,
                            unsigned sectors, unsigned writes)
{
    GHashTable *set = g_hash_table_new(g_direct_hash, g_direct_equal);

    for (uint64_t chosen = 0; chosen < TRIED; chosen++) {
        Single s = single_new();

        for (unsigned i = 0; i < writes; i++) {
            single_write(&s, sectors, i + 1);
        }
        g_hash_table_add(set, GSIZE_TO_POINTER(
            single_cut(&s, policy, chosen, unit, sectors)));
        single_free(&s);
    }
    return set;
}

static void assert_outcomes(BfCutPolicy policy, unsigned unit,
                            unsigned sectors, unsigned writes,
                            const uint64_t *wanted, unsigned count)
{
    g_autoptr(GHashTable) set = outcomes(policy, unit, sectors, writes);

    for (unsigned i = 0; i < count; i++) {
        g_assert_true(g_hash_table_contains(set,
                                            GSIZE_TO_POINTER(wanted[i])));
    }
    g_assert_cmpuint(g_hash_table_size(set), ==, count);
}

static void test_every_outcome_of_one_write(void)
{
    const uint64_t none[] = { 0 };
    const uint64_t whole[] = { 0, 0x01010101 };
    uint64_t torn[16];

    for (unsigned i = 0; i < 16; i++) {
        torn[i] = (uint64_t)(i >> 3 & 1) << 24 | (i >> 2 & 1) << 16 |
                  (i >> 1 & 1) << 8 | (i & 1);
    }
    assert_outcomes(BF_CUT_DROP_ALL, 512, 4, 1, none, 1);
    assert_outcomes(BF_CUT_PREFIX, 512, 4, 1, whole, 2);
    assert_outcomes(BF_CUT_SUBSET, 512, 4, 1, whole, 2);
    assert_outcomes(BF_CUT_TORN, 512, 4, 1, torn, 16);
    assert_outcomes(BF_CUT_TORN, 4096, 4, 1, whole, 2);
}

static void test_every_version_may_survive(void)
{
    const uint64_t versions[] = { 0, 1, 2, 3 };

    assert_outcomes(BF_CUT_PREFIX, 512, 1, 3, versions, 4);
    assert_outcomes(BF_CUT_SUBSET, 512, 1, 3, versions, 4);
    assert_outcomes(BF_CUT_TORN, 512, 1, 3, versions, 4);
}

/* A prefix has no holes, in the order in which writes were completed. */
static void test_a_prefix_follows_completion(void)
{
    const uint64_t numbers[] = { 1, 2, 3 };
    const uint64_t order[] = { 2, 3, 1 };
    BfCompletions *completions = bf_completions_new();
    bool seen_length[4] = { false };

    for (unsigned i = 0; i < 3; i++) {
        bf_completions_begin(completions, numbers[i]);
    }
    /* The third is in flight, and so behind those that were completed. */
    bf_completions_end(completions, 2);
    bf_completions_end(completions, 3);
    for (uint64_t chosen = 0; chosen < TRIED; chosen++) {
        BfChoice choice;
        unsigned length = 0;

        bf_choice_init(&choice, BF_CUT_PREFIX, chosen, completions, numbers,
                       3, 0);
        while (length < 3 && bf_choice_keep(&choice, order[length], 0)) {
            length++;
        }
        for (unsigned i = length; i < 3; i++) {
            g_assert_false(bf_choice_keep(&choice, order[i], 0));
        }
        seen_length[length] = true;
    }
    for (unsigned i = 0; i < 4; i++) {
        g_assert_true(seen_length[i]);
    }
    bf_completions_free(completions);
}

static void test_a_prefix_reaches_the_floor(void)
{
    const uint64_t numbers[] = { 1, 2, 3 };
    BfCompletions *completions = bf_completions_new();

    for (unsigned i = 0; i < 3; i++) {
        bf_completions_begin(completions, numbers[i]);
        bf_completions_end(completions, numbers[i]);
    }
    for (uint64_t chosen = 0; chosen < TRIED; chosen++) {
        BfChoice choice;

        bf_choice_init(&choice, BF_CUT_PREFIX, chosen, completions, numbers,
                       3, 2);
        g_assert_true(bf_choice_keep(&choice, 2, 0));
    }
    bf_completions_free(completions);
}

#ifndef BF_FUZZ
int main(int argc, char **argv)
{
    const char *given = g_getenv("BF_SEED");

    g_test_init(&argc, &argv, NULL);
    seed = given ? g_ascii_strtoull(given, NULL, 10)
                 : (uint64_t)g_get_real_time();
    if (g_getenv("BF_STEPS")) {
        steps = g_ascii_strtoull(g_getenv("BF_STEPS"), NULL, 10);
    }
    g_test_message("BF_SEED=%" PRIu64 " repeats this run", seed);

    g_test_add_func("/survivors/permitted", test_survivors_are_permitted);
    g_test_add_func("/survivors/the-host-does-not-show",
                    test_the_host_does_not_show);
    g_test_add_func("/survivors/mutant/flush-forgets",
                    test_a_flush_that_forgets_is_noticed);
    g_test_add_func("/survivors/mutant/fua-is-not",
                    test_fua_that_is_not_is_noticed);
    g_test_add_func("/survivors/mutant/too-kind",
                    test_a_device_too_kind_is_noticed);
    g_test_add_func("/survivors/mutant/no-undo",
                    test_a_missing_undo_is_noticed);
    g_test_add_func("/survivors/outcomes/one-write",
                    test_every_outcome_of_one_write);
    g_test_add_func("/survivors/outcomes/every-version",
                    test_every_version_may_survive);
    g_test_add_func("/survivors/prefix/completion",
                    test_a_prefix_follows_completion);
    g_test_add_func("/survivors/prefix/floor",
                    test_a_prefix_reaches_the_floor);
    return g_test_run();
}
#endif
