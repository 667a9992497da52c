/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a fuzz target is: a function that libFuzzer calls with inputs */

#ifndef BF_FUZZ_H
#define BF_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What it finds wrong it says by ending the process.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
