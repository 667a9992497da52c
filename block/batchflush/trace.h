#include "trace/trace-block_batchflush.h"
