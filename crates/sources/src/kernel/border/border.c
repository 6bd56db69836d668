// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What else crosses between C and Rust: the headers of the record and of hints. Compiled by the
// test `border` alone, which reads the types of these variables.
// Each lies in a section of its name.

#include "rust.h"
#include "pghot_hint_ring.h"

#define CROSSES(kind, type) \
	kind type crossing_##type __attribute__((section(".data." #type), used)) = { 0 }
#define CROSSES_ENUM(type) \
	enum type crossing_##type __attribute__((section(".data." #type), used)) = (enum type)0

CROSSES(struct, hotness_rule);
CROSSES(struct, hotness_layout);
CROSSES(struct, hotness_range);
CROSSES(struct, hotness_place);
CROSSES(struct, quick_faults);
CROSSES(struct, fault_block);
CROSSES(struct, pghot_access);
CROSSES(struct, pghot_range_view);
CROSSES(struct, pghot_counts);
CROSSES_ENUM(hotness_result);
CROSSES_ENUM(hint_fault);

/* Macros, which leave no trace. */
enum hotness_numbers {
	NR_LATE_MS = HOTNESS_LATE_MS,
	NR_LIVE = HOTNESS_LIVE,
	NR_HOT = HOTNESS_HOT,
	NR_SWEEPING = HOTNESS_SWEEPING,
	NR_UNTIL_SHIFT = HOTNESS_UNTIL_SHIFT,
	NR_SECTION_PAGES = HOTNESS_SECTION_PAGES,
	NR_RANGES_MAX = HOTNESS_RANGES_MAX,
	NR_CHUNK_BYTES = HOTNESS_CHUNK_BYTES,
};
CROSSES_ENUM(hotness_numbers);

enum hint_fault_numbers {
	NR_FAULT_CLASSES = FAULT_CLASSES,
	NR_FAULT_BLOCKS = FAULT_BLOCKS,
	NR_BLOCK_WORDS = BLOCK_WORDS,
};
CROSSES_ENUM(hint_fault_numbers);

CROSSES(struct, pghot_hint_range);
CROSSES(struct, pghot_hint_message);
CROSSES(struct, pghot_hint_answer);
CROSSES(struct, pghot_hint_slot);
CROSSES_ENUM(pghot_hint_flags);
CROSSES_ENUM(pghot_hint_refusal);

enum pghot_hint_numbers {
	NR_HINT_MAGIC = PGHOT_HINT_MAGIC,
	NR_HINT_RANGES_MAX = PGHOT_HINT_RANGES_MAX,
	NR_HINT_SLOTS = PGHOT_HINT_RING_SLOTS,
	NR_HINT_RING_BYTES = PGHOT_HINT_RING_BYTES,
};
CROSSES_ENUM(pghot_hint_numbers);
