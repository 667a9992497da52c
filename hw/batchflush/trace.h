#include "trace/trace-hw_batchflush.h"
