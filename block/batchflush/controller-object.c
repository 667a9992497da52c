/* SPDX-License-Identifier: GPL-2.0-or-later */
/* -object batchflush-controller: a controller that nodes can name */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-batchflush.h"
#include "qapi/util.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qom/object_interfaces.h"

#include "batchflush.h"

#define TYPE_BATCHFLUSH_CONTROLLER "batchflush-controller"
OBJECT_DECLARE_SIMPLE_TYPE(BatchflushControllerObject, BATCHFLUSH_CONTROLLER)

struct BatchflushControllerObject {
    Object parent;
    BatchflushController *controller;
};

BatchflushController *batchflush_controller_find(const char *id,
                                                 Error **errp)
{
    Object *child = object_resolve_path_component(object_get_objects_root(),
                                                  id);
    Object *object = object_dynamic_cast(child, TYPE_BATCHFLUSH_CONTROLLER);

    if (!object) {
        error_setg(errp, "controller=%s is not known; allowed is the id of "
                   "an object of type batchflush-controller", id);
        return NULL;
    }
    return BATCHFLUSH_CONTROLLER(object)->controller;
}

static void controller_complete(UserCreatable *uc, Error **errp)
{
    BatchflushControllerObject *object = BATCHFLUSH_CONTROLLER(uc);
    const char *id = object_get_canonical_path_component(OBJECT(uc));

    object->controller = batchflush_controller_new(id);
}

/* The caller's error names the object. */
static bool controller_can_be_deleted(UserCreatable *uc)
{
    BatchflushControllerObject *object = BATCHFLUSH_CONTROLLER(uc);

    return object->controller->n_nodes == 0;
}

static void controller_finalize(Object *obj)
{
    BatchflushControllerObject *object = BATCHFLUSH_CONTROLLER(obj);

    if (object->controller) {
        batchflush_controller_unref(object->controller);
    }
}

static void controller_class_init(ObjectClass *class,
                                  BATCHFLUSH_CLASS_DATA *data)
{
    UserCreatableClass *ucc = USER_CREATABLE_CLASS(class);

    ucc->complete = controller_complete;
    ucc->can_be_deleted = controller_can_be_deleted;
}

static const TypeInfo controller_info = {
    .name = TYPE_BATCHFLUSH_CONTROLLER,
    .parent = TYPE_OBJECT,
    .instance_size = sizeof(BatchflushControllerObject),
    .instance_finalize = controller_finalize,
    .class_init = controller_class_init,
    .interfaces = (InterfaceInfo[]) {
        { TYPE_USER_CREATABLE },
        { }
    },
};

static void controller_register(void)
{
    type_register_static(&controller_info);
}

type_init(controller_register);

static BatchflushControllerInfo *controller_info_new(BatchflushController *c)
{
    BatchflushControllerInfo *info = g_new0(BatchflushControllerInfo, 1);
    const BfFlushStats *flush = &c->coordinator.stats;
    BDRVBatchflushState *s;

    QEMU_LOCK_GUARD(&c->lock);
    info->id = g_strdup(c->id);
    QLIST_FOREACH(s, &c->nodes, next) {
        QAPI_LIST_PREPEND(info->nodes,
                          g_strdup(bdrv_get_node_name(s->bs)));
        info->dirty_bytes += s->store ? bf_store_dirty(s->store) : 0;
    }
    info->flush_average_ns = batchflush_controller_flush_time(c);
    info->flush_arrivals = flush->arrivals;
    info->flushes_issued = flush->issued;
    info->flushes_joined = flush->joined;
    info->flushes_alone = flush->alone;
    info->flushes_failed = flush->failed;
    info->stalls = c->cache.stalls;
    info->stall_ns = c->cache.stall_ns;
    info->power_cuts = c->power.epoch;
    return info;
}

static int add_controller(Object *child, void *opaque)
{
    BatchflushControllerInfoList **list = opaque;
    Object *object = object_dynamic_cast(child, TYPE_BATCHFLUSH_CONTROLLER);

    if (object) {
        QAPI_LIST_PREPEND(*list, controller_info_new(
            BATCHFLUSH_CONTROLLER(object)->controller));
    }
    return 0;
}

BatchflushControllerInfoList *qmp_query_batchflush_controllers(Error **errp)
{
    BatchflushControllerInfoList *list = NULL;

    object_child_foreach(object_get_objects_root(), add_controller, &list);
    return list;
}
